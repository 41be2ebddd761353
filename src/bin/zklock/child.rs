//! The command, as the head of a process group of its own.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};

use rustix::io::{Errno, retry_on_intr};
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, kill_process_group,
    test_kill_process_group, wait, waitpid,
};

use crate::inner::{DONE, EXEC, WATCH};

/// A group of processes that ends with us, however we end.
#[derive(Debug)]
pub(crate) struct Child {
    group: Pid,
    ended: Option<WaitStatus>,
    /// While this is open, the watching process waits.
    watched: Option<ChildStdin>,
}

impl Child {
    /// Starts the command with some more variables in its environment.
    ///
    /// To be called on the main thread: the kernel ends the command with the thread that
    /// started it.
    pub(crate) fn start(command: &[OsString], variables: &[(&str, String)]) -> io::Result<Self> {
        adopt_orphans();
        let watched = watch();
        let mut exec = ourselves(EXEC);
        exec.arg(getpid().as_raw_pid().to_string())
            .args(command)
            .envs(variables.iter().map(|(name, value)| (name, value)));
        let group = spawn(&mut exec)?.0;
        // Before it can start anything.
        let told = watched.and_then(|mut watched| {
            write!(watched, "{}", group.as_raw_pid())?;
            Ok(watched)
        });
        if let Err(error) = &told {
            log::warn!("if zklock is killed, nobody ends what the command started: {error}");
        }
        Ok(Self {
            group,
            ended: release(group)?,
            watched: told.ok(),
        })
    }

    pub(crate) fn group(&self) -> Pid {
        self.group
    }

    /// Sends a signal to the whole group.
    pub(crate) fn signal(&self, signal: Signal) {
        // It fails when the group has just ended, and for processes of somebody else.
        if let Err(error) = kill_process_group(self.group, signal) {
            log::debug!("cannot send {signal:?} to the command: {error}");
        }
    }

    /// Sends a signal to the command alone.
    pub(crate) fn signal_head(&self, signal: Signal) {
        if self.ended.is_none() {
            let _ = kill_process(self.group, signal);
        }
    }

    /// Looks what became of our children; returns the signal that stopped the command, if
    /// one did.
    pub(crate) fn look(&mut self) -> Option<i32> {
        let mut stopped = None;
        while let Ok(Some((process, status))) = wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            if process != self.group {
                continue;
            }
            match status.stopping_signal() {
                Some(signal) => stopped = Some(signal),
                None => self.ended = Some(status),
            }
        }
        stopped
    }

    /// Returns whether the command has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Returns whether nothing is left of the group.
    pub(crate) fn is_gone(&self) -> bool {
        self.has_ended() && test_kill_process_group(self.group) == Err(Errno::SRCH)
    }

    /// Returns the command's exit status as a shell would tell it.
    pub(crate) fn code(&self) -> u8 {
        let status = self.ended;
        let code = status.and_then(|status| {
            let signal = status.terminating_signal().map(|signal| 128 + signal);
            status.exit_status().or(signal)
        });
        code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.is_gone() {
            // We were interrupted by a fault of our own.
            self.signal(Signal::KILL);
        }
        if let Some(mut watched) = self.watched.take() {
            drop(watched.write_all(DONE));
        }
    }
}

/// Makes what the command leaves behind our children, so that we hear of its end.
#[cfg(target_os = "linux")]
fn adopt_orphans() {
    let _ = rustix::process::set_child_subreaper(Some(getpid()));
}

#[cfg(not(target_os = "linux"))]
fn adopt_orphans() {}

/// Starts the watching process, which has yet to be told of the group.
fn watch() -> io::Result<ChildStdin> {
    let mut watch = ourselves(WATCH);
    watch
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let input = spawn(&mut watch)?.1;
    input.ok_or_else(|| io::Error::other("a process without an input"))
}

/// Waits until what becomes the command has stopped for us, and lets it go on; returns its
/// end if it did not come so far.
fn release(group: Pid) -> io::Result<Option<WaitStatus>> {
    let stopped = retry_on_intr(|| waitpid(Some(group), WaitOptions::UNTRACED))?;
    let ended = stopped.map(|(_, status)| status);
    if ended.is_some_and(|status| !status.stopped()) {
        return Ok(ended);
    }
    kill_process(group, Signal::CONT)?;
    Ok(None)
}

fn ourselves(part: &str) -> Command {
    // The path under which we were started may have got another program by now.
    let linux = Path::new("/proc/self/exe");
    let program = match linux.exists() {
        true => linux.to_owned(),
        false => std::env::current_exe().unwrap_or_else(|_| "zklock".into()),
    };
    let mut command = Command::new(program);
    command.arg0("zklock").arg(part).process_group(0);
    command
}

/// Starts a process that [`Child::look`] will wait for.
#[allow(clippy::zombie_processes)]
fn spawn(command: &mut Command) -> io::Result<(Pid, Option<ChildStdin>)> {
    let mut process = command.spawn()?;
    let id = i32::try_from(process.id()).ok().and_then(Pid::from_raw);
    let id = id.ok_or_else(|| io::Error::other("a process without a number"))?;
    Ok((id, process.stdin.take()))
}
