//! What a helper process does: it becomes the command, or watches over it.

use std::env;
use std::ffi::OsString;
use std::io::{self, Read};
use std::iter;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;

use rustix::process::{Pid, Signal, getpid, getppid, kill_process, kill_process_group};

use crate::args::Args;
use crate::connect;
use crate::descendants;
use crate::helper::{EXEC, LISTEN, WATCH};
use crate::signals;
use crate::stderr::{flush, say};

/// How often to check whether the command is gone.
const GONE_POLL: Duration = Duration::from_millis(10);
/// How long to try to end a session.
const END_LIMIT: Duration = Duration::from_secs(5);

const NOT_FOUND: u8 = 127;
const NOT_RUN: u8 = 126;

/// Runs the helper that this process was started as, if it was started as one.
pub(crate) fn main() -> Option<ExitCode> {
    let mut args = env::args_os().skip(1);
    let helper = args.next()?;
    if helper == EXEC {
        let parent = number(args.next().as_deref().map(OsStrExt::as_bytes))?;
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
    // Wait until `__watch` knows the group.
    let _ = kill_process(getpid(), Signal::STOP);
    signals::unblock();
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

/// Without siginfo, a terminal's signal cannot be told from others.
#[cfg(not(target_os = "linux"))]
fn listen() -> ExitCode {
    ExitCode::FAILURE
}

/// Waits for the end of `zklock run`, kills what is left of its command, and ends its
/// session, so that the next holder does not have to wait for the session timeout.
fn watch(node: &str) -> ExitCode {
    let folder = env::current_dir();
    // Otherwise the folder's file system could not be unmounted.
    drop(env::set_current_dir("/"));
    let mut said = Vec::new();
    let read = io::stdin().read_to_end(&mut said);
    let mut words = said.split(|byte| *byte == 0);
    let (group, key) = (number(words.next()), words.next().unwrap_or_default());
    let mut args: Vec<_> = words
        .map(|word| OsString::from_vec(word.to_vec()))
        .collect();
    // The last argument is followed by `DONE`, or by nothing.
    let is_killed = args.pop().is_some_and(|rest| rest.is_empty());
    if let (Ok(_), Some(group), true) = (read, group, is_killed) {
        let _ = kill_process_group(group, Signal::KILL);
        descendants::kill_under(node);
        let args = Args::try_parse_from(iter::once("zklock".into()).chain(args));
        if let (Ok(mut args), Ok(key)) = (args, std::str::from_utf8(key)) {
            if let Ok(folder) = folder {
                args.make_absolute(&folder);
            }
            end_session(&args, key, || descendants::are_gone(group, node));
        }
    }
    ExitCode::SUCCESS
}

fn number(word: Option<&[u8]>) -> Option<Pid> {
    let number = std::str::from_utf8(word?).ok()?.parse().ok();
    number.filter(|id| *id > 0).and_then(Pid::from_raw)
}

/// Ends the session of a process that was killed, once its command is gone.
///
/// If that takes as long as a session timeout, or no server answers, the session ends by itself.
fn end_session(args: &Args, key: &str, gone: impl Fn() -> bool) {
    let until = Instant::now() + args.session_timeout;
    while !gone() {
        if until <= Instant::now() {
            return;
        }
        thread::sleep(GONE_POLL);
    }
    // Another process may be waiting for what comes out of a pipe.
    if args.auth_file.as_ref().is_some_and(|file| !file.is_file()) {
        return;
    }
    let Ok(builder) = connect::builder(args) else {
        return;
    };
    if let Ok(client) = builder.resume(key).connect_timeout(END_LIMIT).connect() {
        drop(client.close());
    }
}
