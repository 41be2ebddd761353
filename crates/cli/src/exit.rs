//! How the program ends.

use std::fmt;
use std::process::ExitCode;

use nix::sys::signal::{SigSet, Signal, raise};
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::stderr;

/// An exit status, or a signal if the command ended by one, so that the caller sees what it would
/// see of the command.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Ending {
    Code(u8),
    Signal(i32),
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "ended with status {code}"),
            Self::Signal(signal) => write!(f, "ended by signal {signal}"),
        }
    }
}

impl Ending {
    /// Returns the exit status that a shell sees.
    pub(crate) fn status(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(number) => u8::try_from(128 + number).unwrap_or(u8::MAX),
        }
    }

    /// Ends the program, or returns the status to end with.
    ///
    /// The status is 128 + N, as in shells, where signal N does not end the process: the
    /// first process of a container survives its own signals, and some signals are ignored.
    pub(crate) fn end(self) -> ExitCode {
        stderr::flush();
        if let Self::Signal(number) = self {
            if let Ok(signal) = Signal::try_from(number) {
                die_of(signal);
            }
        }
        ExitCode::from(self.status())
    }
}

fn die_of(signal: Signal) {
    // This program must not dump core beside the command.
    let core = getrlimit(Resource::Core);
    let none = rustix::process::Rlimit {
        current: Some(0),
        ..core
    };
    let _ = setrlimit(Resource::Core, none);
    // The signal was blocked, so it has its default effect.
    let _ = SigSet::from_iter([signal]).thread_unblock();
    let _ = raise(signal);
    // The runtime handles SIGSEGV and SIGBUS, and restores the default when it gets one.
    let _ = raise(signal);
}
