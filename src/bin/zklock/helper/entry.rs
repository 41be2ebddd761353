//! What a helper process does: becomes the command, or watches over it.

use std::env;
use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::process::{Pid, Signal, getpid, getppid, kill_process, kill_process_group};

use crate::descendants;
use crate::helper::{EXEC, LISTEN, NODE, WATCH};
use crate::signals;
use crate::stderr::{flush, say};

const NOT_FOUND: u8 = 127;
const NOT_RUN: u8 = 126;

/// Runs the helper that this process was started as, if it was.
pub(crate) fn main() -> Option<ExitCode> {
    let mut args = env::args_os().skip(1);
    let helper = args.next()?;
    let number = |args: &mut dyn Iterator<Item = OsString>| {
        let number = args.next()?.to_str()?.parse().ok();
        number.filter(|id| *id > 0).and_then(Pid::from_raw)
    };
    if helper == EXEC {
        let parent = number(&mut args)?;
        return Some(exec(parent, args.next()?, args));
    }
    if helper == LISTEN {
        return Some(listen());
    }
    let node = args.next();
    (helper == WATCH).then(|| watch(&node.unwrap_or_default().to_string_lossy()))
}

/// Becomes the command.
fn exec(parent: Pid, program: OsString, args: impl Iterator<Item = OsString>) -> ExitCode {
    die_with_the_parent();
    if getppid() != Some(parent) {
        // The parent died before the kernel was asked to kill this process with it.
        return ExitCode::from(NOT_RUN);
    }
    // Until `__watch` knows the group.
    let _ = kill_process(getpid(), Signal::STOP);
    signals::unblock();
    let error = Command::new(&program).args(args).exec();
    say(&format!("cannot run {}: {error}", program.display()));
    flush();
    ExitCode::from(match error.kind() {
        io::ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_RUN,
    })
}

#[cfg(target_os = "linux")]
fn die_with_the_parent() {
    // If it fails, `__watch` still kills the command.
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
}

#[cfg(not(target_os = "linux"))]
fn die_with_the_parent() {}

#[cfg(target_os = "linux")]
fn listen() -> ExitCode {
    crate::helper::listen::main()
}

/// Without siginfo, a signal of the terminal cannot be told from others.
#[cfg(not(target_os = "linux"))]
fn listen() -> ExitCode {
    ExitCode::FAILURE
}

/// Waits for the end of `zklock run`, and kills what is left of its command.
fn watch(node: &str) -> ExitCode {
    // Otherwise the file system of the current folder could not be unmounted.
    drop(env::set_current_dir("/"));
    let mut said = String::new();
    let read = io::stdin().read_to_string(&mut said);
    // With `DONE` after it, it is no number.
    let group = said
        .parse()
        .ok()
        .filter(|id| *id > 0)
        .and_then(Pid::from_raw);
    if let (Ok(_), Some(group)) = (read, group) {
        let _ = kill_process_group(group, Signal::KILL);
        descendants::kill_with_variable(NODE, node);
    }
    ExitCode::SUCCESS
}
