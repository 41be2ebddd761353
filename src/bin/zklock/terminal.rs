//! Whose turn it is on the terminal.
//!
//! The command has a process group of its own, and so it is not in the foreground. If
//! stdin, stdout and stderr are all the terminal, it is given the terminal at once.
//! Otherwise others of our own group, in a pipeline, may be using it, and the command
//! gets it when it asks: by reading from it, for which the system stops it. While it has the
//! terminal, a `listener` tells us what that sends to it.

use std::fs::File;
use std::io::{self, IsTerminal};

use rustix::process::{Pid, getpgrp, getpid, getppid, getsid};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

#[derive(Debug)]
pub(crate) struct Terminal {
    file: File,
    ours: Pid,
}

impl Terminal {
    /// Returns the terminal that we were started from, if there is one.
    pub(crate) fn open() -> Option<Self> {
        let file = File::options()
            .read(true)
            .write(true)
            .open("/dev/tty")
            .ok()?;
        Some(Self {
            file,
            ours: getpgrp(),
        })
    }

    /// Whether we are in the foreground.
    pub(crate) fn is_ours(&self) -> bool {
        self.is_with(&[self.ours])
    }

    /// Whether one of these groups is in the foreground.
    pub(crate) fn is_with(&self, groups: &[Pid]) -> bool {
        tcgetpgrp(&self.file).is_ok_and(|group| groups.contains(&group))
    }

    /// Whether nobody but the command can be using it.
    pub(crate) fn is_all_ours(&self) -> bool {
        self.is_ours()
            && io::stdin().is_terminal()
            && io::stdout().is_terminal()
            && io::stderr().is_terminal()
    }

    /// Puts `group` into the foreground.
    pub(crate) fn give(&self, group: Pid) {
        // It fails if the group has ended already.
        let _ = tcsetpgrp(&self.file, group);
    }

    /// Puts ourselves into the foreground if `group` is there.
    pub(crate) fn take_back(&self, group: Pid) {
        if self.is_with(&[group]) {
            let _ = tcsetpgrp(&self.file, self.ours);
        }
    }
}

/// Whether somebody would continue us if we stopped: a shell in the same session.
pub(crate) fn has_job_control() -> bool {
    let session = getsid(None);
    let parent = getppid().and_then(|parent| getsid(Some(parent)).ok());
    session.is_ok_and(|session| parent == Some(session) && session != getpid())
}
