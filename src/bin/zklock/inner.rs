//! What `zklock run` starts of itself, beside the user's command.
//!
//! ```text
//! zklock run ──┬── zklock __exec  ──► becomes the command, the head of a process group
//!              ├── zklock __watch     outlives us, and kills that group
//!              └── zklock __listen    hears what a terminal sends to it
//! ```
//!
//! The first lets the kernel kill the command when we die, which can only be said from
//! inside the process. That says nothing of what the command started, and that is what
//! the second is for: it waits for the end of its input, which comes with our end,
//! whatever it is. It is there first, and the command does not begin before it knows the
//! group. What has left the group it knows by a variable, because whose descendant it was
//! nobody can tell any more. See `listener` for the third.

use std::env;
use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::process::{Pid, Signal, getpid, getppid, kill_process, kill_process_group};

use crate::stderr::{flush, say};
use crate::{descendants, listener, signals};

pub(crate) const EXEC: &str = "__exec";
pub(crate) const WATCH: &str = "__watch";
pub(crate) const LISTEN: &str = "__listen";

/// The variable that tells the command, and us, which node its lock is.
pub(crate) const NODE: &str = "ZKLOCK_NODE";

/// What the watching process is sent, after the group, when it is no longer needed.
pub(crate) const DONE: &[u8] = b".";

const NOT_FOUND: u8 = 127;
const NOT_RUN: u8 = 126;

/// Does such a part, if this process was started for one.
pub(crate) fn main() -> Option<ExitCode> {
    let mut args = env::args_os().skip(1);
    let part = args.next()?;
    let number = |args: &mut dyn Iterator<Item = OsString>| {
        let number = args.next()?.to_str()?.parse().ok();
        number.filter(|id| *id > 0).and_then(Pid::from_raw)
    };
    if part == EXEC {
        let parent = number(&mut args)?;
        return Some(exec(parent, args.next()?, args));
    }
    if part == LISTEN {
        return Some(listener::main());
    }
    let node = args.next();
    (part == WATCH).then(|| watch(&node.unwrap_or_default().to_string_lossy()))
}

/// Becomes the command.
fn exec(parent: Pid, program: OsString, args: impl Iterator<Item = OsString>) -> ExitCode {
    die_with_the_parent();
    if getppid() != Some(parent) {
        // It died before the kernel knew that this matters to us.
        return ExitCode::from(NOT_RUN);
    }
    // Until the watching process knows of us.
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
    // Where it fails, the watching process is left.
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
}

#[cfg(not(target_os = "linux"))]
fn die_with_the_parent() {}

/// Waits for the end of `zklock run`, and leaves nothing of its command.
fn watch(node: &str) -> ExitCode {
    // A folder in use cannot be unmounted.
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
