//! The helper processes that `zklock run` starts beside the user's command.
//!
//! ```text
//! zklock run ──┬── zklock __exec    becomes the command, the head of a process group
//!              ├── zklock __watch   outlives zklock run, kills that group, ends the session
//!              └── zklock __listen  hears what a terminal sends to that group
//! ```
//!
//! `__exec` has the kernel kill the command when `zklock run` dies. Only the process itself
//! can set that, and it does not extend to what the command starts. That is left to
//! `__watch`: it waits for the end of its input, which comes with the end of `zklock run`,
//! however it ends. It starts first, and the command does not begin before `__watch` knows
//! the group. `__watch` finds processes that have left the group by variables, because after
//! the end of `zklock run` nobody can tell whose descendants they were. When all of them are
//! gone, it resumes the session and ends it, so that the lock is free at once.
//!
//! This module starts the helpers; `entry` and `listen` are what they do.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command};

use rustix::process::Pid;

pub(crate) mod entry;
#[cfg(target_os = "linux")]
mod listen;

pub(crate) const EXEC: &str = "__exec";
pub(crate) const WATCH: &str = "__watch";
pub(crate) const LISTEN: &str = "__listen";

/// The variable that names the lock's node, for the command and for `__watch`.
pub(crate) const NODE: &str = "ZKLOCK_NODE";

/// The variable that names that node after those of the locks around it, one a line: for
/// their `__watch`, the command is one of theirs too.
pub(crate) const NODES: &str = "ZKLOCK_NODES";

/// What `__watch` is sent, after the group, when it is no longer needed.
pub(crate) const DONE: &[u8] = b".";

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
    command.arg0("zklock").arg(helper).process_group(0);
    command
}

/// Starts a process; `Child::look` reaps it.
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
