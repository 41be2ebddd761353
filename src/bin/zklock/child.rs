//! The command, as the head of a process group of its own, and all that it starts.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use rustix::io::{Errno, retry_on_intr};
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, kill_process_group,
    test_kill_process_group, wait, waitpid,
};

use crate::descendants;
use crate::ending::Ending;
use crate::inner::{DONE, EXEC, NODE, WATCH};
use crate::listener::Listener;

/// Processes that end with us, however we end.
#[derive(Debug)]
pub(crate) struct Child {
    group: Pid,
    ended: Option<WaitStatus>,
    /// While this is open, the watching process waits.
    watched: Option<ChildStdin>,
    /// Our own processes, which are no part of it.
    ours: Vec<Pid>,
}

/// What the command finds in its environment.
#[derive(Debug)]
pub(crate) struct Variables<'a> {
    pub(crate) path: &'a str,
    pub(crate) node: &'a str,
    /// One of somebody else's, which runs us as his command, says nothing of this lock.
    pub(crate) token: Option<String>,
}

/// A process that was started.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) id: Pid,
    pub(crate) input: Option<ChildStdin>,
    pub(crate) output: Option<ChildStdout>,
}

impl Child {
    /// Starts the command as far as the moment before it begins.
    ///
    /// To be called on the main thread: the kernel ends the command with the thread that
    /// started it.
    pub(crate) fn start(command: &[OsString], variables: &Variables<'_>) -> io::Result<Self> {
        adopt_orphans();
        let watch = watch(variables.node);
        let mut exec = ourselves(EXEC);
        exec.arg(getpid().as_raw_pid().to_string())
            .args(command)
            .env("ZKLOCK_PATH", variables.path)
            .env(NODE, variables.node);
        match &variables.token {
            Some(token) => exec.env("ZKLOCK_TOKEN", token),
            None => exec.env_remove("ZKLOCK_TOKEN"),
        };
        let group = spawn(&mut exec)?.id;
        let ours = watch.iter().map(|watch| watch.id).collect();
        // Before it can start anything.
        let told = watch.and_then(|watch| {
            let input = watch.input;
            let mut input = input.ok_or_else(|| io::Error::other("a process without an input"))?;
            write!(input, "{}", group.as_raw_pid())?;
            Ok(input)
        });
        if let Err(error) = &told {
            log::warn!("if zklock is killed, nobody ends what the command started: {error}");
        }
        Ok(Self {
            group,
            ended: stopped(group)?,
            watched: told.ok(),
            ours,
        })
    }

    /// Lets the command begin.
    pub(crate) fn begin(&self) {
        self.signal_head(Signal::CONT);
    }

    pub(crate) fn group(&self) -> Pid {
        self.group
    }

    /// Has the group listened to, for what the terminal sends to it.
    pub(crate) fn listen(&mut self) -> io::Result<Listener> {
        let listener = Listener::start(self.group)?;
        self.ours.push(listener.process);
        Ok(listener)
    }

    /// Sends a signal to the whole group, and to what has left it.
    pub(crate) fn signal(&self, signal: Signal) {
        self.signal_group(signal);
        for process in descendants::living(&self.ours).unwrap_or_default() {
            if process.group != Some(self.group) {
                let _ = kill_process(process.id, signal);
            }
        }
    }

    /// Kills everything that the command has started.
    ///
    /// To be repeated until it [is gone](Self::is_gone).
    pub(crate) fn kill(&self) {
        self.signal_group(Signal::KILL);
        descendants::kill(&self.ours);
    }

    /// Sends a signal to the group alone.
    pub(crate) fn signal_group(&self, signal: Signal) {
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
                // Its number may become another's.
                if !status.stopped() {
                    self.ours.retain(|ours| *ours != process);
                }
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

    /// Returns whether nothing is left of what it has started.
    pub(crate) fn is_gone(&self) -> bool {
        let is_gone = || match descendants::living(&self.ours) {
            Some(rest) => rest.is_empty(),
            None => test_kill_process_group(self.group) == Err(Errno::SRCH),
        };
        // What was orphaned during the first look is there during the second.
        self.has_ended() && is_gone() && is_gone()
    }

    /// Names what is left, to a person.
    pub(crate) fn rest(&self) -> String {
        let rest = descendants::living(&self.ours).unwrap_or_default();
        let numbers: Vec<_> = rest.iter().take(8).map(|one| one.id.to_string()).collect();
        match numbers.is_empty() {
            true => format!("process group {}", self.group),
            false => format!("process {}", numbers.join(", ")),
        }
    }

    /// Returns how the command ended.
    pub(crate) fn ending(&self) -> Ending {
        let Some(status) = self.ended else {
            return Ending::Code(1);
        };
        if let Some(signal) = status.terminating_signal() {
            return Ending::Signal(signal);
        }
        let code = status.exit_status().map(u8::try_from);
        Ending::Code(code.and_then(Result::ok).unwrap_or(1))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.is_gone() {
            // We were interrupted by a fault of our own.
            self.kill();
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
fn watch(node: &str) -> io::Result<Started> {
    let mut watch = ourselves(WATCH);
    watch
        .arg(node)
        // Of a lock that we ourselves run under: its watching process must leave this one
        // the time to do the same.
        .env_remove(NODE)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    spawn(&mut watch)
}

/// Waits until what becomes the command has stopped for us; returns its end if it did not
/// come so far.
fn stopped(group: Pid) -> io::Result<Option<WaitStatus>> {
    let stopped = retry_on_intr(|| waitpid(Some(group), WaitOptions::UNTRACED))?;
    let ended = stopped.map(|(_, status)| status);
    Ok(ended.filter(|status| !status.stopped()))
}

/// Returns a command that starts this program again, for one of its parts.
pub(crate) fn ourselves(part: &str) -> Command {
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
pub(crate) fn spawn(command: &mut Command) -> io::Result<Started> {
    let mut process = command.spawn()?;
    let id = i32::try_from(process.id()).ok().and_then(Pid::from_raw);
    Ok(Started {
        id: id.ok_or_else(|| io::Error::other("a process without a number"))?,
        input: process.stdin.take(),
        output: process.stdout.take(),
    })
}
