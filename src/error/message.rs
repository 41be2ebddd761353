//! The messages of the errors.

use std::fmt;

use super::tried::no_lock;
use super::{Error, LostReason};
use crate::time::utc;
use zklock_core::dialect::Dialect;

/// The most characters of a message at its beginning and at its end; what is between them is left out.
const END: usize = 2_000;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        struct Whole<'a>(&'a Error);
        impl fmt::Display for Whole<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt_lock(f)
            }
        }
        // A path may have a megabyte, and what to do comes after it.
        let whole = Whole(self).to_string();
        let ends = (
            whole.char_indices().nth(END),
            whole.char_indices().rev().nth(END),
        );
        match ends {
            (Some((first, _)), Some((last, _))) if first < last => {
                write!(f, "{} .. {}", &whole[..first], &whole[last..])
            }
            _ => f.write_str(&whole),
        }
    }
}

/// Formats the error as the name of its variant, followed by the message.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {self}", self.name())
    }
}

const CLOSED: &str = "the client is closed, or was connected before a fork: connect a new one";

fn fmt_foreign(
    node: &str,
    library: &str,
    dialect: Option<Dialect>,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    match node.strip_suffix("/leases") {
        // The node is the directory itself, which may be empty.
        Some(path) => write!(f, "{path} is {library}, which no other lock waits for: ")?,
        None => write!(
            f,
            "the contender {node} looks like {library}, which would not wait for this client: "
        )?,
    }
    match dialect {
        Some(dialect) => write!(f, "use Dialect::{dialect:?} or another path"),
        None => f.write_str("use another path, or the same kind of lock on this one"),
    }
}

/// The messages: each function writes those of one kind, and leaves the others to the next.
impl Error {
    fn fmt_lock(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost { path, why } => write!(
                f,
                "the lock {path} was lost because {why}: stop, {}",
                match why {
                    LostReason::OverTime => "the run counts as failed",
                    _ => "another client may hold it",
                }
            ),
            Self::Stale { token, highest } => write!(
                f,
                "the fencing token {token} is older than {highest}: stop, a later holder has been at work"
            ),
            Self::Suspect { path } => write!(
                f,
                "the servers have not confirmed the lock {path} in time: pause until it is held again or lost"
            ),
            Self::WouldDeadlock { path } => write!(
                f,
                "this thread has the lock {path} already and would wait for itself: drop that guard first, or pass it on (a ReentrantMutex can be locked twice; of a read-write lock, ask for write at once)"
            ),
            Self::Deadlock { path, circle } => write!(
                f,
                "waiting for the lock {path} would close a circle ({}): let go of what you hold, and lock all of them in one order",
                circle.join(" waits for ")
            ),
            Self::Evicted { node } => write!(
                f,
                "another client deleted the node {node} while it waited in the queue: lock again if that was not meant"
            ),
            Self::ForeignContender {
                node,
                library,
                dialect,
            } => fmt_foreign(node, library, *dialect, f),
            _ => self.fmt_wait(f),
        }
    }

    fn fmt_wait(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GaveUp { path } => write!(
                f,
                "the wait for the job {path} ended before a run began, and who runs it is not known: call again"
            ),
            Self::Exhausted { path, reason } => write!(
                f,
                "the sequence numbers under {path} are used up, and {reason}: delete the directory when it is idle"
            ),
            Self::PermitsDisagree {
                path,
                ours,
                theirs,
                holder,
                since,
            } => write!(
                f,
                "the semaphore {path} has {theirs} permits for another client and {ours} for this one, and {holder} has one of them since {}: make the numbers agree, or wait, with a time limit, until all are given back",
                utc::written(*since)
            ),
            _ => self.fmt_argument(f),
        }
    }

    fn fmt_argument(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadArgument { name, rule } => {
                write!(f, "the argument {name} cannot be used: {rule}")
            }
            Self::BadPath { path, rule } => {
                write!(f, "the path {path:?} cannot be used: {rule}")
            }
            Self::BadHosts { hosts, reason } => write!(
                f,
                "cannot read the servers {hosts:?}: {reason}; write host:port,host:port/chroot"
            ),
            Self::BadTls { reason } => write!(
                f,
                "TLS cannot be set up: {reason}; name PEM files with certificates and their key"
            ),
            _ => self.fmt_session(f),
        }
    }

    fn fmt_session(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ConnectTimeout {
                limit,
                tried,
                round_trip,
                held_back,
            } => no_lock(f, (*limit, tried), *round_trip, *held_back),
            Self::AuthFailed => f.write_str(
                "the server refused the credentials: check the user or scheme, and the password",
            ),
            Self::SaslRefused {
                principal,
                server,
                reason,
            } => write!(
                f,
                "the server {server} refused the SASL login of {principal}: {reason}; check the user and the password"
            ),
            Self::Closed => f.write_str(CLOSED),
            Self::NoThread { reason } => write!(
                f,
                "the system cannot start a thread for the client: {reason}; raise its limits, or use fewer clients"
            ),
            Self::Unconfirmed { what, next, limit } if limit.is_zero() => {
                write!(f, "{what} is not confirmed: {next}")
            }
            Self::Unconfirmed { what, next, limit } => {
                write!(f, "{what} is not confirmed after {limit:.1?}: {next}")
            }
            Self::SessionExpired => {
                f.write_str("the ZooKeeper session expired: every lock held through it is lost")
            }
            _ => self.fmt_request(f),
        }
    }

    fn fmt_request(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAuth { path } => write!(
                f,
                "the access control list of {path} does not allow this: add credentials, with ClientBuilder::auth or ZKLOCK_AUTH, or change the list"
            ),
            Self::Refused { path, code, text } => {
                write!(
                    f,
                    "the server refused a request for {path}: {text} ({code})"
                )
            }
            Self::RequestTooLong { path, bytes, limit } => write!(
                f,
                "a request for {:.300} has {bytes} bytes and the limit is {limit}: shorten it, or raise jute.maxbuffer of the servers and max_buffer of this client",
                path
            ),
            Self::ReplyTooLong { path, bytes, limit } => write!(
                f,
                "the reply to a request for {path} has {bytes} bytes and the limit is {limit}: delete what does not belong there, or raise max_buffer of this client"
            ),
            Self::Fence { file, reason } => write!(
                f,
                "the fencing token in {file} cannot be read or written: {reason}; nothing was done"
            ),
            Self::Database { what, message } => write!(f, "cannot {what}: {message}"),
            Self::Unmarked { path, what } => write!(
                f,
                "{path} is not {what}: its node was made for something else, such as a lock or the directory of other paths, or a later version of zklock has added to it; check the path, use one that does not exist yet, update this program, or wait for a minute or two if a lock or semaphore has just been there"
            ),
            Self::SlotForgotten { path, slot, up_to } => write!(
                f,
                "whether slot {slot} of {path} is done is not known any more, as of all slots up to {up_to}: it was not run; JobOptions::again, or zklock once --again, runs it"
            ),
            Self::Unsupported { what } => {
                write!(f, "this client or its server does not support {what}")
            }
            _ => f.write_str(self.name()),
        }
    }

    /// Returns the name of the variant, which `Debug` puts before the message.
    fn name(&self) -> &'static str {
        match self {
            Self::Lost { .. } => "Lost",
            Self::Suspect { .. } => "Suspect",
            Self::WouldDeadlock { .. } => "WouldDeadlock",
            Self::Deadlock { .. } => "Deadlock",
            Self::Evicted { .. } => "Evicted",
            Self::ForeignContender { .. } => "ForeignContender",
            Self::BadArgument { .. } => "BadArgument",
            Self::BadPath { .. } => "BadPath",
            Self::BadHosts { .. } => "BadHosts",
            Self::BadTls { .. } => "BadTls",
            Self::ConnectTimeout { .. } => "ConnectTimeout",
            Self::AuthFailed => "AuthFailed",
            Self::SaslRefused { .. } => "SaslRefused",
            Self::NoAuth { .. } => "NoAuth",
            Self::Closed => "Closed",
            Self::Unconfirmed { .. } => "Unconfirmed",
            Self::GaveUp { .. } => "GaveUp",
            Self::NoThread { .. } => "NoThread",
            Self::SessionExpired => "SessionExpired",
            Self::Refused { .. } => "Refused",
            Self::RequestTooLong { .. } => "RequestTooLong",
            Self::ReplyTooLong { .. } => "ReplyTooLong",
            Self::Exhausted { .. } => "Exhausted",
            Self::PermitsDisagree { .. } => "PermitsDisagree",
            Self::Database { .. } => "Database",
            Self::Stale { .. } => "Stale",
            Self::Fence { .. } => "Fence",
            Self::SlotForgotten { .. } => "SlotForgotten",
            Self::Unmarked { .. } => "Unmarked",
            Self::Unsupported { .. } => "Unsupported",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn every_error_has_a_message() {
        let (path, node) = (|| "/a".to_owned(), || "/a/n".to_owned());
        let (limit, since) = (Duration::from_secs(1), SystemTime::UNIX_EPOCH);
        let (reason, holder, message) = (String::new, String::new, String::new);
        let (rule, bytes, what) = ("", 2, "");
        #[rustfmt::skip]
        let errors = [
            Error::Lost { path: path(), why: LostReason::NodeGone },
            Error::Suspect { path: path() },
            Error::WouldDeadlock { path: path() },
            Error::Deadlock { path: path(), circle: vec![path()] },
            Error::Evicted { node: node() },
            Error::ForeignContender { node: node(), library: "", dialect: None },
            Error::BadArgument { name: "", rule: rule.into() },
            Error::BadPath { path: path(), rule },
            Error::BadHosts { hosts: path(), reason: reason() },
            Error::BadTls { reason: reason() },
            Error::ConnectTimeout { limit, tried: Vec::new(), round_trip: None, held_back: None },
            Error::ConnectTimeout { limit, tried: Vec::new(), round_trip: Some(limit), held_back: None },
            Error::ConnectTimeout { limit, tried: Vec::new(), round_trip: None, held_back: Some(limit) },
            Error::AuthFailed,
            Error::SaslRefused { principal: holder(), server: path(), reason: reason() },
            Error::NoAuth { path: path() },
            Error::Closed,
            Error::Unconfirmed { what, next: what, limit },
            Error::GaveUp { path: path() },
            Error::NoThread { reason: reason() },
            Error::SessionExpired,
            Error::Refused { path: path(), code: 0, text: "" },
            Error::SlotForgotten { path: path(), slot: path(), up_to: path() },
            Error::Unmarked { path: path(), what },
            Error::RequestTooLong { path: path(), bytes, limit: 1 },
            Error::ReplyTooLong { path: path(), bytes, limit: 1 },
            Error::Exhausted { path: path(), reason: "" },
            Error::PermitsDisagree { path: path(), ours: 1, theirs: 2, holder: holder(), since },
            Error::Database { what, message: message() },
            Error::Stale { token: 1.into(), highest: 2.into() },
            Error::Fence { file: path(), reason: reason() },
            Error::Unsupported { what },
        ];
        for error in errors {
            assert!(
                error.to_string().len() > 8 && error.to_string() != error.name(),
                "{error:?}"
            );
        }
    }

    #[test]
    fn a_path_of_a_megabyte_is_cut_and_what_to_do_is_told() {
        let rule = "it ends with '/'; leave that out";
        for letter in ["x", "é"] {
            let path = format!("/{}/", letter.repeat(1_000_000));
            let error = Error::BadPath { path, rule };
            for shown in [error.to_string(), format!("{error:?}")] {
                assert!(shown.chars().count() < 4_100, "{}", shown.len());
                assert!(shown.contains("the path \"/"), "{shown}");
                assert!(
                    shown.ends_with(&format!("/\" cannot be used: {rule}")),
                    "{shown}"
                );
            }
        }
    }

    #[test]
    fn servers_that_answered_a_part_are_not_said_to_be_silent() {
        let within = |tried: &[&str]| {
            let error = Error::ConnectTimeout {
                limit: Duration::from_millis(16),
                tried: tried.iter().map(|why| (*why).to_owned()).collect(),
                round_trip: None,
                held_back: None,
            };
            error.to_string()
        };
        let connected = "no ZooKeeper server answered all that was asked within 16ms: ";
        assert!(within(&[]).starts_with(connected));
        let refused = "no ZooKeeper server answered within 16ms (zk1:2181: refused): ";
        assert!(within(&["zk1:2181: refused"]).starts_with(refused));
    }

    #[test]
    fn the_message_of_a_lost_lock_says_why() {
        #[rustfmt::skip]
        let table = [
            (LostReason::Evicted, "because another client evicted it", None),
            (LostReason::SessionExpired, "because the session expired", Some(Error::SessionExpired)),
            (LostReason::NotConfirmed, "because the servers did not confirm it in time", None),
            (LostReason::Disconnected, "because the connection broke and its session cannot be resumed", None),
            (LostReason::Closed, "because the client was closed", Some(Error::Closed)),
            (LostReason::AuthFailed, "because the servers refused the credentials", Some(Error::AuthFailed)),
            (LostReason::NodeGone, "because its node is gone", None),
            (LostReason::OverTime, "because the run took longer than it may", None),
            (LostReason::HandedOver, "because it was handed over to another process", None),
        ];
        for (why, words, source) in table {
            let path = "/m".to_owned();
            let error = Error::Lost { path, why };
            let then = match why {
                // The lock is still there.
                LostReason::OverTime => "the run counts as failed",
                _ => "another client may hold it",
            };
            let message = format!("the lock /m was lost {words}: stop, {then}");
            assert_eq!(error.to_string(), message);
            let told = error.source().map(ToString::to_string);
            assert_eq!(told, source.map(|error| error.to_string()));
        }
    }
}
