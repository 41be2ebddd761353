//! The command, as the leader of its own process group, and everything that it starts.

use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::{ChildStdin, Command, Stdio};

use rustix::io::{Errno, retry_on_intr};
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, kill_process_group,
    test_kill_process_group, wait, waitpid,
};

use crate::descendants;
use crate::exit::Ending;
use crate::helper::{self, DONE, EXEC, NODE, NODES, Started, WATCH};
use crate::terminal_listener::TerminalListener;

/// The command's processes, which end with `zklock run`, however it ends.
#[derive(Debug)]
pub(crate) struct Child {
    group: Pid,
    ended: Option<WaitStatus>,
    /// `__watch` waits while this is open.
    watched: Option<ChildStdin>,
    /// The helper processes, which do not belong to the command.
    helpers: Vec<Pid>,
}

/// The variables for the command.
#[derive(Debug)]
pub(crate) struct Variables<'a> {
    pub(crate) path: &'a str,
    pub(crate) node: &'a str,
    /// If there is none, the variable is removed: another `zklock run` around this one may
    /// have set it.
    pub(crate) token: Option<String>,
    pub(crate) more: &'a [(&'static str, String)],
}

impl Child {
    /// Starts the command, which waits to [begin](Self::begin).
    ///
    /// Must be called on the main thread: the kernel kills the command when the thread that
    /// started it ends. `key` is what is needed to end the session if this process is killed.
    pub(crate) fn start(
        command: &[OsString],
        variables: &Variables<'_>,
        key: Option<&str>,
    ) -> io::Result<Self> {
        adopt_orphans();
        let watch = watch(variables.node);
        let group = helper::spawn(&mut execution(command, variables))?.id;
        let helpers = watch.iter().map(|watch| watch.id).collect();
        // This comes before the command can start anything.
        let told = watch.and_then(|watch| brief(watch, group, key));
        if let Err(error) = &told {
            log::warn!("if zklock is killed, nobody ends what the command started: {error}");
        }
        Ok(Self {
            group,
            ended: stopped(group)?,
            watched: told.ok(),
            helpers,
        })
    }

    /// Lets the command begin.
    pub(crate) fn begin(&self) {
        self.signal_head(Signal::CONT);
    }

    pub(crate) fn group(&self) -> Pid {
        self.group
    }

    /// Starts a helper that reports what the terminal sends to the group.
    pub(crate) fn listen(&mut self) -> io::Result<TerminalListener> {
        let listener = TerminalListener::start(self.group)?;
        self.helpers.push(listener.process);
        Ok(listener)
    }

    /// Sends a signal to the group, and to the processes that have left it.
    pub(crate) fn signal(&self, signal: Signal) {
        self.signal_group(signal);
        for process in descendants::living(&self.helpers).unwrap_or_default() {
            if process.group != Some(self.group) {
                let _ = kill_process(process.id, signal);
            }
        }
    }

    /// Kills everything that the command has started.
    ///
    /// Must be repeated until the command [is gone](Self::is_gone).
    pub(crate) fn kill(&self) {
        self.signal_group(Signal::KILL);
        descendants::kill(&self.helpers);
    }

    /// Sends a signal only to the group.
    pub(crate) fn signal_group(&self, signal: Signal) {
        // This fails if the group has just ended, and for processes of other users.
        if let Err(error) = kill_process_group(self.group, signal) {
            log::debug!("cannot send {signal:?} to the command: {error}");
        }
    }

    /// Sends a signal only to the command.
    pub(crate) fn signal_head(&self, signal: Signal) {
        if self.ended.is_none() {
            let _ = kill_process(self.group, signal);
        }
    }

    /// Reaps children that have ended; returns the signal that stopped the command, if it was
    /// stopped.
    pub(crate) fn look(&mut self) -> Option<i32> {
        let mut stopped = None;
        while let Ok(Some((process, status))) = wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            if process != self.group {
                // The number may be given to another process.
                if !status.stopped() {
                    self.helpers.retain(|helpers| *helpers != process);
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

    /// Returns whether nothing that the command has started is left.
    pub(crate) fn is_gone(&self) -> bool {
        let is_gone = || match descendants::living(&self.helpers) {
            Some(rest) => rest.is_empty(),
            None => test_kill_process_group(self.group) == Err(Errno::SRCH),
        };
        // A process that is orphaned during the first look is found in the second.
        self.has_ended() && is_gone() && is_gone()
    }

    /// Names the processes that are left.
    pub(crate) fn rest(&self) -> String {
        let rest = descendants::living(&self.helpers).unwrap_or_default();
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
            // Only a panic leads here.
            self.kill();
        }
        if let Some(mut watched) = self.watched.take() {
            drop(watched.write_all(DONE));
        }
    }
}

/// Makes the command's orphans children of this process, so that it learns of their end.
#[cfg(target_os = "linux")]
fn adopt_orphans() {
    let _ = rustix::process::set_child_subreaper(Some(getpid()));
}

#[cfg(not(target_os = "linux"))]
fn adopt_orphans() {}

/// Returns this node after the nodes of the locks around this one.
fn nodes(node: &str) -> OsString {
    let mut nodes = env::var_os(NODES).unwrap_or_default();
    if !nodes.is_empty() {
        nodes.push("\n");
    }
    nodes.push(node);
    nodes
}

/// Starts `__watch`, which is told the group later.
fn watch(node: &str) -> io::Result<Started> {
    let mut watch = helper::command(WATCH);
    watch
        .arg(node)
        // Under another `zklock run`, its `__watch` must not kill this `__watch` first.
        .env_remove(NODE)
        .env_remove(NODES)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    helper::spawn(&mut watch)
}

/// Tells `__watch` which group to watch, and with which `key` to end the session.
fn brief(watch: Started, group: Pid, key: Option<&str>) -> io::Result<ChildStdin> {
    let input = watch.input;
    let mut input = input.ok_or_else(|| io::Error::other("a process without an input"))?;
    write!(
        input,
        "{}\0{}\0",
        group.as_raw_pid(),
        key.unwrap_or_default()
    )?;
    // `__watch` connects as this process did.
    for arg in env::args_os().skip(1) {
        input.write_all(arg.as_bytes())?;
        input.write_all(b"\0")?;
    }
    Ok(input)
}

/// Returns the process that becomes the command.
fn execution(command: &[OsString], variables: &Variables<'_>) -> Command {
    let mut exec = helper::command(EXEC);
    exec.arg(getpid().as_raw_pid().to_string())
        .args(command)
        .env("ZKLOCK_PATH", variables.path)
        .env(NODE, variables.node)
        .env(NODES, nodes(variables.node));
    match &variables.token {
        Some(token) => exec.env("ZKLOCK_TOKEN", token),
        None => exec.env_remove("ZKLOCK_TOKEN"),
    };
    // The variables of a lock around this one do not apply to the command.
    for name in ["ZKLOCK_SLOT", "ZKLOCK_ATTEMPT", "ZKLOCK_TERM"] {
        exec.env_remove(name);
    }
    exec.envs(variables.more.iter().map(|(name, value)| (name, value)));
    exec
}

/// Waits until `__exec` has stopped itself; returns its status if it ended instead.
fn stopped(group: Pid) -> io::Result<Option<WaitStatus>> {
    let stopped = retry_on_intr(|| waitpid(Some(group), WaitOptions::UNTRACED))?;
    let ended = stopped.map(|(_, status)| status);
    Ok(ended.filter(|status| !status.stopped()))
}
