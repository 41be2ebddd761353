//! The helper processes that `zklock run` starts beside the user's command.
//!
//! ```text
//! zklock run ──┬── __keep ── __exec    becomes the command, the head of a process group
//!              │      └─ ─ ─ ─ ─ ─     and adopts what the command's processes leave behind
//!              └── __listen            hears what a terminal sends to that group
//! ```
//!
//! `__keep` is a subreaper without other children. So the kernel keeps the set of the
//! command's processes: they are the descendants of `__keep`, whatever their groups, sessions
//! and parents are, and the last one has ended when `__keep` has no child. Processes that
//! `zklock run` had inherited are not among them.
//!
//! If `zklock run` ends before that, `__keep` reads the end of their socket, kills the
//! command's processes, and ends the session when they are gone, so that the lock is free at
//! once. If `__keep` ends, the kernel kills the command, and gives its other processes to
//! `zklock run`, which kills them before it releases the lock. The arguments of `__keep` name
//! neither the lock nor the command, so that `pkill -f` does not kill both.
//!
//! This module starts the helpers; `entry`, `keep` and `listen` are what they do.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command};

use rustix::process::Pid;

pub(crate) mod entry;
mod keep;
#[cfg(target_os = "linux")]
mod listen;
mod session;
pub(crate) mod wire;

pub(crate) const EXEC: &str = "__exec";
pub(crate) const KEEP: &str = "__keep";
pub(crate) const LISTEN: &str = "__listen";

/// A process that was started.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) id: Pid,
    pub(crate) input: Option<ChildStdin>,
    pub(crate) output: Option<ChildStdout>,
}

/// Returns a command that starts this program as a helper.
pub(crate) fn command(helper: &str) -> Command {
    // The path from which the program was started may be another program by now.
    let linux = Path::new("/proc/self/exe");
    let program = match linux.exists() {
        true => linux.to_owned(),
        false => std::env::current_exe().unwrap_or_else(|_| "zklock".into()),
    };
    let mut command = Command::new(program);
    command.arg0("lock-keeper").arg(helper).process_group(0);
    command
}

/// Starts a process, which is reaped elsewhere.
#[allow(clippy::zombie_processes)]
pub(crate) fn spawn(command: &mut Command) -> io::Result<Started> {
    let mut process = command.spawn()?;
    let id = i32::try_from(process.id()).ok().and_then(Pid::from_raw);
    Ok(Started {
        id: id.ok_or_else(|| io::Error::other("a process without a number"))?,
        input: process.stdin.take(),
        output: process.stdout.take(),
    })
}

/// Makes the orphans of the processes below this one its children.
#[cfg(target_os = "linux")]
pub(crate) fn adopt_orphans() {
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn adopt_orphans() {}
