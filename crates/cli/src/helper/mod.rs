//! The helper processes that `zklock run` starts beside the user's command.
//!
//! ```text
//! zklock run ──┬── __keep ── __exec    becomes the command, the head of a process group
//!              │      └─ ─ ─ ─ ─ ─     and adopts what the command's processes leave behind
//!              └── __listen            hears what a terminal sends to that group
//! ```
//!
//! `__keep` is a subreaper without other children, so the kernel keeps the set of the command's
//! processes: they are the descendants of `__keep`, whatever their groups, sessions and parents
//! are, and the last one has ended when `__keep` has no child. Processes that `zklock run` had
//! inherited are not among them.
//!
//! If `zklock run` ends before it dismisses `__keep`, `__keep` reads the end of their socket, kills
//! the command's processes, and ends the session when they are gone, so that the lock is free at
//! once. If another command follows under the lock, such as a hook, its `__keep` relieves the one
//! before: at every moment, one of them reads the end of the socket.
//!
//! If `zklock run` alone is stopped, and so cannot stop the command before another client has the
//! lock, `__keep` kills the command's processes.
//!
//! If `__keep` ends, the kernel kills the command, and gives its other processes to `zklock run`,
//! which kills them before it releases the lock. The arguments of `__keep` name neither the lock nor
//! the command, so that `pkill -f` does not kill both.
//!
//! This module starts the helpers; `entry`, `keep` and `terminal_signals` are what they do.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::iter;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use rustix::io::retry_on_intr;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use self::wire::receive;

pub(crate) mod entry;
mod keep;
mod session;
#[cfg(target_os = "linux")]
mod terminal_signals;
pub(crate) mod trust;
pub(crate) mod wire;

pub(crate) const EXEC: &str = "__exec";
pub(crate) const KEEP: &str = "__keep";
pub(crate) const LISTEN: &str = "__listen";

/// How long a helper may take to answer, and to take a message.
pub(crate) const ANSWER: Duration = Duration::from_millis(100);

/// How long a helper may take to end when nothing is left for it to do.
const END_LIMIT: Duration = Duration::from_millis(500);

/// How often to look whether it has ended. Its socket is closed just before.
const END_POLL: Duration = Duration::from_micros(200);

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
pub(crate) fn spawn(command: &mut Command) -> io::Result<Pid> {
    Ok(Pid::from_child(&command.spawn()?))
}

/// Starts the process that becomes a command, with the signals to unblock before its words, and
/// waits until it waits for its input at this socket.
fn exec(words: impl Iterator<Item = OsString>) -> io::Result<(Pid, UnixStream)> {
    let (gate, its_end) = UnixStream::pair()?;
    gate.set_read_timeout(Some(ANSWER))?;
    let mut exec = command(EXEC);
    let head = spawn(exec.args(words).stdin(OwnedFd::from(its_end)))?;
    drop(exec);
    loop {
        match receive(&gate) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => go_on(head),
            Err(_) => return Err(io::Error::other("the process that becomes it has ended")),
            Ok(_) => return Ok((head, gate)),
        }
    }
}

/// Continues a child, which somebody may have stopped. It is not reaped, so the number is its own.
pub(crate) fn go_on(child: Pid) {
    let _ = kill_process(child, Signal::CONT);
}

/// Reaps a process that ends by itself, and disconnects these messages; returns those that were not
/// taken. It may have been stopped, or a debugger may keep its end for itself: then it is left.
pub(crate) fn reap<T>(process: Pid, messages: &Receiver<T>) -> Vec<T> {
    let until = Instant::now() + END_LIMIT;
    let rest = iter::from_fn(|| messages.recv_deadline(until).ok()).collect();
    let ended = || retry_on_intr(|| waitpid(Some(process), WaitOptions::NOHANG));
    while Instant::now() < until && matches!(ended(), Ok(None)) {
        thread::sleep(END_POLL);
    }
    rest
}

/// Has the kernel send this process a signal when its parent ends.
fn at_the_parents_end(signal: Signal) {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_parent_process_death_signal(Some(signal));
    #[cfg(not(target_os = "linux"))]
    let _ = signal;
}

/// Sets the priority of this process, as far as its user may.
fn set_priority(nice: i32) {
    let _ = rustix::process::setpriority_process(None, nice);
}
