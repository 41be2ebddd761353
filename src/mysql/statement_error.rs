//! What the errors of the database mean for a lock.
//!
//! Two questions decide: whether to try again, and whether a statement that failed may have
//! been carried out. The connection itself is in `connection`.

use std::any::Any;
use std::error::Error as _;
use std::fmt;
use std::io;

use ::mysql::DriverError::{
    CleartextPluginDisabled, CouldNotConnect, OldMysqlPasswordDisabled, Timeout, TlsNotSupported,
    UnknownAuthPlugin,
};
use ::mysql::Error as DriverError;

use crate::error::Error;

/// A statement that failed, or a connection that could not be made.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct StatementError {
    pub(super) class: ErrorClass,
    /// What the server or the connection said.
    pub(super) message: String,
}

/// What an error means.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ErrorClass {
    /// There was no connection: nothing was sent.
    Unreachable,
    /// The answer did not arrive: the statement may have been carried out, or may still be.
    InDoubt,
    /// The server rolled the statement back; it may succeed when tried again.
    Busy,
    /// Like `Busy`, because other transactions want the same row, as is usual for a lock.
    Contended,
    /// The server rolled the statement back, because another transaction has locked the row.
    Locked,
    /// The server takes no writes.
    ReadOnly,
    /// The server refused the credentials.
    Denied,
    /// The user is known, but lacks a right.
    NoRight,
    /// Like `NoRight`, for the whole database, which might not exist.
    NoRightToDatabase,
    /// The database is missing.
    NoDatabase,
    /// The tables are missing.
    NoTable,
    /// Trying again does not help.
    Refused,
}

impl ErrorClass {
    /// Returns `true` if the same statement may succeed later.
    pub(super) fn is_transient(self) -> bool {
        self.is_the_connection() || self.is_rolled_back()
    }

    /// Returns `true` unless the server said that nothing was done.
    pub(super) fn may_be_done(self) -> bool {
        matches!(
            self,
            Self::InDoubt | Self::NoRight | Self::NoRightToDatabase | Self::Refused
        )
    }

    /// Returns `true` if the server rolled the statement back, and is otherwise well.
    pub(super) fn is_rolled_back(self) -> bool {
        matches!(self, Self::Busy | Self::Contended | Self::Locked)
    }

    /// Returns `true` if the connection failed, regardless of the statement.
    pub(super) fn is_the_connection(self) -> bool {
        matches!(self, Self::Unreachable | Self::InDoubt)
    }

    /// Classifies the codes of MySQL, MariaDB, Galera and ProxySQL; see `docs/mysql.md`.
    fn of_code(code: u16) -> Self {
        match code {
            1205 | 3572 => Self::Locked,
            // A row that changed under a snapshot, a deadlock, a conflict between nodes.
            1020 | 1213 | 3101 => Self::Contended,
            // A full disk, lock table or list of transactions.
            1021 | 1114 | 1206 | 1637 => Self::Busy,
            // No memory or thread for a connection or statement, too many connections, a node
            // that is not ready, a shutdown; errors in packets and at the commit; a killed
            // connection or statement, or a statement that ran too long.
            1037
            | 1040..=1041
            | 1047
            | 1053
            | 1135
            | 1152
            | 1154..=1161
            | 1180
            | 1203
            | 1226
            | 1317
            | 1927
            | 1969
            | 3024
            | 3100
            | 3169
            | 4031 => Self::InDoubt,
            _ if is_of_proxy(code) => Self::InDoubt,
            1290 | 1792 | 1836 | 3032 => Self::ReadOnly,
            1045 | 1698 => Self::Denied,
            1044 => Self::NoRightToDatabase,
            1142 | 1143 | 1227 => Self::NoRight,
            1049 => Self::NoDatabase,
            1146 => Self::NoTable,
            _ => Self::Refused,
        }
    }
}

impl StatementError {
    /// Returns the error of a call whose time is up.
    pub(super) fn no_answer() -> Self {
        Self {
            class: ErrorClass::Unreachable,
            message: "no answer from the database in time".to_owned(),
        }
    }

    /// Returns the error of a connection that could not be made.
    pub(super) fn before_sending(error: &DriverError) -> Self {
        let sent = Self::after_sending(error);
        let class = match sent.class {
            class if class == ErrorClass::InDoubt || class.is_rolled_back() => {
                ErrorClass::Unreachable
            }
            class => class,
        };
        Self { class, ..sent }
    }

    /// Returns the error of a statement that failed.
    pub(super) fn after_sending(error: &DriverError) -> Self {
        let class = match error {
            DriverError::MySqlError(error) => ErrorClass::of_code(error.code),
            DriverError::UrlError(_)
            | DriverError::FromValueError(_)
            | DriverError::FromRowError(_)
            | DriverError::TlsError(_)
            | DriverError::DriverError(
                TlsNotSupported
                | UnknownAuthPlugin(_)
                | OldMysqlPasswordDisabled
                | CleartextPluginDisabled,
            ) => ErrorClass::Refused,
            _ if is_too_large(error) => ErrorClass::Refused,
            _ if io_error(error).is_some_and(is_of_certificate) => ErrorClass::Refused,
            _ => ErrorClass::InDoubt,
        };
        Self {
            class,
            message: message(error),
        }
    }

    /// Returns the error of statements at which the driver has panicked. It panics at some answers that no server should
    /// give, and at a login plugin that it knows but was built without.
    pub(super) fn of_panic(panic: &(dyn Any + Send)) -> Self {
        const BAD_ANSWER: &str = "the server's answer makes the driver panic";
        let said = panic.downcast_ref::<&str>().copied().unwrap_or_default();
        match said.contains("authentication plugin") {
            true => Self {
                class: ErrorClass::Refused,
                message: said.to_owned(),
            },
            false => Self::after_sending(&in_doubt(BAD_ANSWER)),
        }
    }

    /// Returns the error for a caller that wanted to do `what`.
    pub(super) fn into_error(self, what: &'static str) -> Error {
        let hint = match self.class {
            ErrorClass::Denied => {
                "; check the user and the password: in the URL, %40 is an @, %2F a slash and %25 a percent sign"
            }
            ErrorClass::NoRight => {
                "; grant the user SELECT, INSERT, UPDATE and DELETE on the tables of the locks, and CREATE to create them"
            }
            ErrorClass::NoRightToDatabase => {
                "; correct its name at the end of the URL, or grant the user SELECT, INSERT, UPDATE and DELETE on the tables of the locks, and CREATE to create them"
            }
            ErrorClass::NoDatabase => "; create it, or correct its name at the end of the URL",
            ErrorClass::ReadOnly => "; this server takes no writes: connect to the primary",
            ErrorClass::NoTable => {
                "; create the tables with Client::create_table or mysql::CREATE_TABLE"
            }
            _ => "",
        };
        Error::Database {
            what,
            message: format!("{}{hint}", self.message),
        }
    }
}

impl fmt::Display for StatementError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Returns whether a proxy says so that it cannot reach its server, or has lost it: with a code that
/// its own client got, or with one of ProxySQL's.
fn is_of_proxy(code: u16) -> bool {
    matches!(
        code,
        2002..=2003 | 2005..=2006 | 2013 | 2055 | 9001..=9002
    )
}

/// Returns an error that leaves the outcome of the statements open.
pub(super) fn in_doubt(message: &str) -> DriverError {
    io::Error::other(message).into()
}

/// Returns `true` if the server did not answer in time, on a connection that is still open.
pub(super) fn is_silence(error: &DriverError) -> bool {
    io_error(error).is_some_and(is_timeout)
}

/// Returns `true` if the connection has ended.
pub(super) fn is_broken(error: &DriverError) -> bool {
    io_error(error).is_some_and(|error| !is_timeout(error))
}

fn io_error(error: &DriverError) -> Option<&io::Error> {
    match error {
        DriverError::IoError(error) => Some(error),
        DriverError::CodecError(error) => error.source()?.downcast_ref(),
        _ => None,
    }
}

/// Returns `true` if statements are longer than the URL or the server allows, judged by the
/// driver's message: it does not expose the type.
fn is_too_large(error: &DriverError) -> bool {
    let DriverError::CodecError(error) = error else {
        return false;
    };
    error.to_string().contains("max_allowed_packet")
}

/// Returns `true` if the server's certificate is not trusted, judged by rustls' message.
fn is_of_certificate(error: &io::Error) -> bool {
    let is_data = error.kind() == io::ErrorKind::InvalidData;
    is_data && error.to_string().starts_with("invalid peer certificate")
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

/// Returns the message of an error, without the driver's wrapping.
fn message(error: &DriverError) -> String {
    if let Some(error) = io_error(error) {
        return io_message(error);
    }
    match error {
        DriverError::MySqlError(error) => format!("{} ({})", error.message, error.code),
        DriverError::DriverError(error @ CouldNotConnect(_)) => {
            format!("{error}; check host and port, and that the server runs")
        }
        DriverError::DriverError(Timeout) => "no connection of the pool is free".to_owned(),
        DriverError::DriverError(error) => error.to_string(),
        other => other.to_string(),
    }
}

fn io_message(error: &io::Error) -> String {
    // MariaDB answers nothing more to a packet of which a statement was killed.
    const SILENCE: &str = "no answer in time: the server is busy, cannot be reached, or somebody has ended the statement (KILL QUERY)";
    // The driver says this of an answer in UTF-16.
    const UNREADABLE: &str = "Invalid catalog value";
    match error.to_string() {
        _ if is_timeout(error) => SILENCE.to_owned(),
        said if said.starts_with(UNREADABLE) => {
            format!("{said}; check character_set_results in the server's init_connect")
        }
        said => said,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_before_it_was_sent_leaves_no_doubt() {
        let error = || DriverError::from(io::Error::other("refused"));
        let before = StatementError::before_sending(&error());
        let after = StatementError::after_sending(&error());
        assert_eq!(before.class, ErrorClass::Unreachable);
        assert_eq!(after.class, ErrorClass::InDoubt);
    }
}
