//! The tasks of a helper process: it becomes the command, keeps the command's processes, or listens.

use std::env;
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use rustix::process::Signal;

use crate::helper::wire::{Kind, receive_files, send};
use crate::helper::{EXEC, KEEP, at_the_parents_end, keep};
#[cfg(target_os = "linux")]
use crate::helper::{LISTEN, terminal_signals};
use crate::signals;
use crate::stderr::{flush, say};

const NOT_FOUND: u8 = 127;
const NOT_RUN: u8 = 126;

/// Runs the helper that this process was started as, if it was started as one.
pub(crate) fn main() -> Option<ExitCode> {
    let mut args = env::args_os().skip(1);
    let ended = match args.next()?.to_str()? {
        EXEC => {
            let unblocked = args.next()?;
            return Some(exec(&unblocked, args.next()?, args));
        }
        KEEP => keep::keep(),
        #[cfg(target_os = "linux")]
        LISTEN => terminal_signals::listen(),
        _ => return None,
    };
    Some(ExitCode::from(u8::from(ended.is_err())))
}

/// Becomes the command.
fn exec(unblocked: &OsString, program: OsString, args: impl Iterator<Item = OsString>) -> ExitCode {
    // If this fails, `zklock run` still kills the command.
    at_the_parents_end(Signal::KILL);
    if await_input().is_err() {
        return ExitCode::from(NOT_RUN);
    }
    signals::unblock(&unblocked.to_string_lossy());
    let error = Command::new(&program).args(args).exec();
    let name = Path::new(&program).display().to_string();
    let is_a_line = error.kind() == ErrorKind::NotFound && name.contains(' ');
    let advice = match is_a_line {
        true => "; put sh -c before a line of the shell",
        false => "",
    };
    say(&format!("cannot run {name}: {error}{advice}"));
    flush();
    ExitCode::from(match error.kind() {
        ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_RUN,
    })
}

/// Waits until `zklock run` has given the command the terminal, and has looked at the lock again.
fn await_input() -> io::Result<()> {
    let keeper = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    send(&keeper, Kind::Started, 0, b"")?;
    let mut files = receive_files(&keeper)?.into_iter();
    // There is no file if the keeper has died, even before the kernel was asked to kill this process with it.
    let input = files.next().ok_or(ErrorKind::UnexpectedEof)?;
    Ok(rustix::stdio::dup2_stdin(input)?)
}
