//! Errors of the program: a message for the user, and an exit status.

use std::io;
use std::process::ExitCode;

use clap::ValueEnum;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use zklock::Error;

use crate::args::LockDialect;
use crate::exit::Ending;
use crate::stderr::say;

/// The exit codes of sysexits.h.
pub(crate) const USAGE: u8 = 64;
pub(crate) const UNAVAILABLE: u8 = 69;
pub(crate) const OTHER: u8 = 70;
pub(crate) const LOST: u8 = 75;
pub(crate) const NO_PERMISSION: u8 = 77;
/// The path serves something else, or its chroot does not exist.
pub(crate) const CONFIG: u8 = 78;

/// The answer of servers that admit only clients that have logged in.
const LOGIN_REQUIRED: i32 = -124;

/// The use that a path is not for if it cannot keep a job's record.
const A_JOB: &str = "a job";

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(USAGE, message)
    }

    pub(crate) fn other(message: impl Into<String>) -> Self {
        Self::new(OTHER, message)
    }

    /// Returns the failure of a process or thread that the system does not start.
    pub(crate) fn not_started(what: &str, error: &io::Error) -> Self {
        Self::other(format!("cannot start {what}: {}", advised(error)))
    }

    /// Returns whether the failure is the loss of the lock.
    pub(crate) fn is_loss(&self) -> bool {
        self.code == LOST
    }

    /// Leaves out the reasons that were told before, if they are the same.
    pub(crate) fn without(self, told: Option<&str>) -> Self {
        let told = told.map(|told| format!(" ({told})")).unwrap_or_default();
        Self::new(self.code, self.message.replacen(&told, "", 1))
    }

    /// Returns the failure of a hold or a pause at a semaphore's path.
    pub(crate) fn of_a_semaphore(path: &str, kind: &str) -> Self {
        let message = format!("{path} is a semaphore's, whose permits do not wait for a {kind}");
        Self::new(CONFIG, message)
    }

    /// Returns the failure of a permit at a job's path.
    pub(crate) fn of_a_job(path: &str) -> Self {
        let message = format!(
            "{path} is a job's, whose record a semaphore would replace: give the permits a path of their own, or give the job up with zklock forget {path}"
        );
        Self::new(CONFIG, message)
    }

    pub(crate) fn code(&self) -> u8 {
        self.code
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Reports the failure to the user; the program continues.
    pub(crate) fn tell(&self) {
        say(&self.message);
    }

    pub(crate) fn report(&self) -> ExitCode {
        say(&self.message);
        Ending::Code(self.code).end()
    }
}

/// Returns why the system does not start a process or thread, and what to do if a limit is the reason.
pub(crate) fn advised(error: &io::Error) -> String {
    let advice = match error.kind() {
        io::ErrorKind::WouldBlock => {
            "; raise the limit of processes and threads: ulimit -u, or pids.max of the container"
        }
        _ => "",
    };
    format!("{error}{advice}")
}

/// Reports a failed write to stdout, unless the reader has closed the pipe.
pub(crate) fn written(done: io::Result<()>) -> Result<(), Failure> {
    match done {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::other(format!("cannot write to stdout: {error}")))
        }
        _ => Ok(()),
    }
}

/// Returns whether somebody may still read stdout: a pipe tells when its reader has closed it.
pub(crate) fn has_reader() -> bool {
    let stdout = io::stdout();
    let mut stdout = [PollFd::new(&stdout, PollFlags::empty())];
    let _ = poll(&mut stdout, Some(&Timespec::default()));
    !stdout[0]
        .revents()
        .intersects(PollFlags::ERR | PollFlags::HUP)
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match &error {
            error if error.is_bad_input() => USAGE,
            Error::ConnectTimeout { .. } | Error::Closed | Error::SessionExpired => UNAVAILABLE,
            Error::AuthFailed | Error::NoAuth { .. } | Error::SaslRefused { .. } => NO_PERMISSION,
            Error::Refused { code, .. } if *code == LOGIN_REQUIRED => NO_PERMISSION,
            Error::Unmarked { .. } | Error::ForeignContender { .. } => CONFIG,
            _ => OTHER,
        };
        let hint = match &error {
            Error::Unmarked { what: A_JOB, .. } => {
                "; if it was a job's before, zklock forget --repair begins a new record"
            }
            Error::ForeignContender { node, .. } if node.ends_with("/leases") => {
                "; zklock run --permits N takes one of its permits"
            }
            Error::Refused { code, .. } if *code == LOGIN_REQUIRED => {
                ", with a line sasl:user:password in the file of --auth-file"
            }
            _ => "",
        };
        Self::new(code, in_options(format!("{error}{hint}")))
    }
}

/// Has an error of the library advise an option where it advises a dialect.
pub(crate) fn in_options(message: String) -> String {
    let dialects = LockDialect::value_variants().iter();
    dialects.fold(message, |message, dialect| {
        let option = dialect.to_possible_value().expect("none is hidden");
        let option = format!("--dialect {}", option.get_name());
        message.replace(&format!("Dialect::{dialect:?}"), &option)
    })
}
