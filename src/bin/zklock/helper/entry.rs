//! What a helper process does: it becomes the command, keeps its processes, or listens.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use rustix::process::{Pid, Signal, getpid, getppid, kill_process};

#[cfg(target_os = "linux")]
use crate::helper::listen::listen;
use crate::helper::{EXEC, KEEP, LISTEN, at_the_parents_end, keep};
use crate::signals;
use crate::stderr::{flush, say};

const NOT_FOUND: u8 = 127;
const NOT_RUN: u8 = 126;

/// Runs the helper that this process was started as, if it was started as one.
pub(crate) fn main() -> Option<ExitCode> {
    let mut args = env::args_os().skip(1);
    let ended = match args.next()?.to_str()? {
        EXEC => {
            let parent = args.next()?.to_str()?.parse().ok()?;
            let unblocked = args.next()?;
            return Some(exec(Pid::from_raw(parent)?, &unblocked, args.next()?, args));
        }
        KEEP => keep::keep(),
        LISTEN => listen(),
        _ => return None,
    };
    Some(ExitCode::from(u8::from(ended.is_err())))
}

/// Becomes the command.
fn exec(
    parent: Pid,
    unblocked: &OsString,
    program: OsString,
    args: impl Iterator<Item = OsString>,
) -> ExitCode {
    // If it fails, `zklock run` still kills the command.
    at_the_parents_end(Signal::KILL);
    if getppid() != Some(parent) {
        // The parent died before the kernel was asked to kill this process with it.
        return ExitCode::from(NOT_RUN);
    }
    // Until `zklock run` has given it the terminal, and has looked at the lock again.
    let _ = kill_process(getpid(), Signal::STOP);
    signals::unblock(&unblocked.to_string_lossy());
    let error = Command::new(&program).args(args).exec();
    say(&format!(
        "cannot run {}: {error}",
        Path::new(&program).display()
    ));
    flush();
    ExitCode::from(match error.kind() {
        io::ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_RUN,
    })
}

/// Without siginfo, a terminal's signal cannot be told from others.
#[cfg(not(target_os = "linux"))]
fn listen() -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
