//! Which process group has the terminal.
//!
//! The command has its own process group, so it does not start in the foreground. If stdin, stdout
//! and stderr are all the terminal, the command gets it at once. Otherwise other processes of a
//! pipeline may be using it. The command then gets the terminal when it reads from it, for which
//! the system stops the command. While the command has the terminal, a `terminal_listener` reports
//! what the terminal sends.

use std::fs::File;
use std::io::{self, IsTerminal};

use nix::unistd::{Pid as Number, getpgrp, getpid, getppid, getsid, tcgetpgrp, tcsetpgrp};
use rustix::process::Pid;

/// The number that the kernel reports for a process, a group or a session outside of this process's
/// namespace, such as those of a process that starts a container. rustix treats it as a number.
const OUTSIDE: Number = Number::from_raw(0);

#[derive(Debug)]
pub(crate) struct Terminal {
    /// The terminal; absent if the program was not started from one.
    file: Option<File>,
    ours: Number,
}

impl Terminal {
    /// Opens the terminal that the program was started from.
    pub(crate) fn open() -> Self {
        let file = File::options().read(true).write(true).open("/dev/tty");
        let ours = getpgrp();
        Self {
            // A group without a number cannot be put into the foreground again.
            file: file.ok().filter(|_| ours != OUTSIDE),
            ours,
        }
    }

    pub(crate) fn is_there(&self) -> bool {
        self.file.is_some()
    }

    /// Returns whether this process is in the foreground.
    pub(crate) fn is_ours(&self) -> bool {
        self.foreground() == Some(self.ours)
    }

    /// Returns whether a message would not get in the way of another process.
    pub(crate) fn is_no_others(&self) -> bool {
        !self.is_there() || self.is_ours()
    }

    /// Returns whether this group is in the foreground.
    pub(crate) fn is_with(&self, group: Pid) -> bool {
        self.foreground() == Some(number(group))
    }

    /// Returns whether the terminal has hung up.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_there() && self.foreground().is_none()
    }

    fn foreground(&self) -> Option<Number> {
        tcgetpgrp(self.file.as_ref()?).ok()
    }

    /// Returns whether only the command can be using the terminal.
    pub(crate) fn is_all_ours(&self) -> bool {
        self.is_ours()
            && io::stdin().is_terminal()
            && io::stdout().is_terminal()
            && io::stderr().is_terminal()
    }

    /// Puts `group` into the foreground.
    pub(crate) fn give(&self, group: Pid) {
        self.set_foreground(number(group));
    }

    /// Puts this process into the foreground if `group` is there.
    pub(crate) fn take_back(&self, group: Pid) {
        if self.is_with(group) {
            self.set_foreground(self.ours);
        }
    }

    fn set_foreground(&self, group: Number) {
        // This fails if the group has ended.
        let _ = self.file.as_ref().map(|file| tcsetpgrp(file, group));
    }
}

fn number(group: Pid) -> Number {
    Number::from_raw(group.as_raw_pid())
}

/// Returns whether a shell in the same session would continue this process if it stopped.
pub(crate) fn has_job_control() -> bool {
    let session = getsid(None);
    let parent = Some(getppid()).filter(|parent| *parent != OUTSIDE);
    let of_parent = parent.and_then(|parent| getsid(Some(parent)).ok());
    session.is_ok_and(|session| of_parent == Some(session) && session != getpid())
}
