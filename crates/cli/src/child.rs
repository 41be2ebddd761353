//! The command, as the leader of its own process group, and everything that it starts.
//!
//! A process between this one and the command keeps them; see `helper`.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::iter;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use nix::sys::signal::Signal;
use rustix::process::Pid;

use crate::descendants::Descendants;
use crate::exit::Ending;
use crate::helper::wire::{Kind, Message, listen_to, send, send_files};
use crate::helper::{self, ANSWER, KEEP, go_on};
use crate::state_files::{STATE_IN, STATE_OUT};

/// The variable that names the lock's node.
pub(crate) const NODE: &str = "ZKLOCK_NODE";

/// The variable that names that node after the nodes of the locks around it, one a line.
pub(crate) const NODES: &str = "ZKLOCK_NODES";

const TOKEN: &str = "ZKLOCK_TOKEN";

/// The variable that has the number of a permit.
pub(crate) const PERMIT: &str = "ZKLOCK_PERMIT";

/// The status after the keeper of the command's processes has been killed.
const NOT_KEPT: u8 = 70;

/// How often to look for the processes that a killed keeper has left.
const REST_POLL: Duration = Duration::from_millis(20);

/// The command's processes, which end with `zklock run`, however it ends.
#[derive(Debug)]
pub(crate) struct Child {
    pub(crate) group: Pid,
    keeper: UnixStream,
    /// The reports of the keeper; disconnected when it is gone.
    pub(crate) reports: Receiver<Message>,
    descendants: Descendants,
    /// The keeper, until it is reaped.
    process: Option<Pid>,
    /// How the command ended, if it has; what it has started may be left.
    pub(crate) ending: Option<Ending>,
    /// Whether no process that the command has started is left.
    pub(crate) is_gone: bool,
    /// Whether the keeper exists.
    pub(crate) is_kept: bool,
    /// How many signals to all processes were asked for, and how many found a process that was still there.
    asked: i32,
    pub(crate) obeyed: i32,
}

/// The variables for the command.
#[derive(Debug)]
pub(crate) struct Variables<'a> {
    pub(crate) path: &'a str,
    pub(crate) node: &'a str,
    /// The token; if there is none, the variable is removed, because another `zklock run` around
    /// this one may have set it.
    pub(crate) token: Option<String>,
    pub(crate) more: &'a [(&'static str, OsString)],
}

impl Child {
    /// Starts the command, which waits to begin.
    ///
    /// `unblocked` are the signals that the command does not block, and `key` is the key to end the
    /// session if this process is killed. The keeper of the command `before` is relieved.
    pub(crate) fn start(
        command: &[OsString],
        variables: &Variables<'_>,
        unblocked: &str,
        key: Option<&str>,
        before: Option<&Self>,
    ) -> io::Result<Self> {
        let descendants = Descendants::new();
        let (keeper, its_end) = UnixStream::pair()?;
        // A keeper that has the session and is left here for want of a thread would end it.
        let reports = listen_to(keeper.try_clone()?, "zklock-keeper")?;
        let process = start_keeper(variables, unblocked, its_end.into())?;
        let (input, before) = (io::stdin(), before.map(|before| before.keeper.as_fd()));
        let files: Vec<_> = iter::once(input.as_fd()).chain(before).collect();
        send_files(&keeper, &files)?;
        let words = i32::try_from(command.len()).unwrap_or(i32::MAX);
        send(&keeper, Kind::Brief, words, &brief(command, key))?;
        let ended = |_| io::Error::other("lock-keeper, which starts it, has ended");
        let answer = loop {
            match reports.recv_timeout(ANSWER) {
                // Somebody may have stopped the keeper: this process would get no other report.
                Err(RecvTimeoutError::Timeout) => go_on(process),
                answer => break answer.map_err(ended)?,
            }
        };
        let group = Pid::from_raw(answer.number);
        keeper.set_write_timeout(Some(ANSWER))?;
        Ok(Self {
            group: group.ok_or_else(|| io::Error::other(answer.text().into_owned()))?,
            reports,
            keeper,
            descendants,
            process: Some(process),
            ending: None,
            is_gone: false,
            is_kept: true,
            asked: 0,
            obeyed: 0,
        })
    }

    /// Sends a request to the keeper, which reports its own end. If the keeper takes no messages, it is stopped.
    pub(crate) fn ask(&self, kind: Kind) {
        self.tell(kind, 0, b"");
    }

    /// Tells the keeper until when the lock can be trusted: if this process is stopped by then, the
    /// command is killed.
    pub(crate) fn trust(&self, until: Duration) {
        let until = until.as_millis().to_string();
        self.tell(Kind::Trust, 0, until.as_bytes());
    }

    /// Like [`ask`](Self::ask), with what the request needs.
    pub(crate) fn tell(&self, kind: Kind, number: i32, text: &[u8]) {
        if let Err(error) = send(&self.keeper, kind, number, text) {
            log::debug!("cannot ask for {kind:?} of the command: {error}");
        }
    }

    /// Passes a signal on to all processes; returns its number among these signals.
    pub(crate) fn signal(&mut self, signal: Signal) -> i32 {
        self.tell(Kind::SignalAll, signal as i32, b"");
        self.asked += 1;
        self.asked
    }

    /// Kills everything that the command has started, until it [is gone](Self::is_gone).
    pub(crate) fn kill(&mut self) {
        self.ask(Kind::Kill);
        let until = Instant::now() + ANSWER;
        while let Ok(report) = self.reports.recv_deadline(until) {
            self.note(Some(&report));
            if [Kind::Killing, Kind::Gone].contains(&report.kind) {
                return;
            }
        }
        // The keeper is held by a debugger, or frozen: it is as good as gone.
        self.spare_bystanders();
        // Its children first, and then what is below them, for a panic that repeats nothing.
        let _ = self.descendants.kill() || self.descendants.kill();
        self.reports = bounded(0).1;
    }

    /// Excludes the orphans that this process has adopted: the keeper adopts the command's.
    pub(crate) fn spare_bystanders(&mut self) {
        if let Some(keeper) = self.process {
            self.descendants.only_of(keeper);
        }
    }

    /// Notes a report; returns the signal that has stopped the command, if one has. Without a
    /// report, the keeper is gone: kills the processes that it has left to this process. This must
    /// be repeated until the command [is gone](Self::is_gone).
    pub(crate) fn note(&mut self, report: Option<&Message>) -> Option<i32> {
        let Some(Message { kind, number, .. }) = report else {
            self.is_kept = false;
            self.ending = Some(Ending::Code(NOT_KEPT));
            self.end_what_is_left();
            return None;
        };
        match kind {
            Kind::Changed => {
                let status = ExitStatus::from_raw(*number);
                let code = status.code().map(|code| Ending::Code(code as u8));
                let signal = || status.signal().map(Ending::Signal);
                self.ending = code.or_else(signal).or(self.ending);
                return status.stopped_signal();
            }
            Kind::Gone => {
                self.is_gone = true;
                self.obeyed = *number;
            }
            _ => {}
        }
        None
    }

    fn end_what_is_left(&mut self) {
        #[cfg(not(target_os = "linux"))]
        let _ = rustix::process::kill_process_group(self.group, rustix::process::Signal::KILL);
        let is_calm = self.descendants.kill();
        let (_, is_left) = self.reap(None);
        // A frozen keeper keeps nothing any more.
        self.is_gone = !is_left || self.descendants.are_dead_but(self.process);
        if !self.is_gone && is_calm {
            thread::sleep(REST_POLL);
        }
    }

    /// Reaps the children of this process that have ended, and continues the keeper if it has
    /// stopped. Returns whether `other` has stopped, and whether there are other children.
    pub(crate) fn reap(&mut self, other: Option<Pid>) -> (bool, bool) {
        let mut has_stopped = false;
        let (changed, has_others) = self.descendants.reap();
        for (process, status) in changed {
            has_stopped |= status.stopped() && Some(process) == other;
            if Some(process) == self.process {
                match status.stopped() {
                    true => go_on(process),
                    false => self.process = None,
                }
            }
        }
        (has_stopped, has_others)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // The session goes on, unless this is a panic.
        if !thread::panicking() {
            self.ask(Kind::Spare);
        }
        if !self.is_gone {
            self.kill();
        } else if let Some(keeper) = self.process.take().filter(|_| self.is_kept) {
            // The keeper is reaped here, because the first process of a container may reap no zombies.
            helper::reap(keeper, &self.reports);
        }
    }
}

/// Returns the brief for the keeper.
fn brief(command: &[OsString], key: Option<&str>) -> Vec<u8> {
    let key = iter::once(key.unwrap_or_default().into());
    // The arguments let the keeper connect as this process did.
    let args = env::args_os().skip(1);
    let words = key.chain(command.iter().cloned()).chain(args);
    words.map(OsString::into_vec).collect::<Vec<_>>().join(&0)
}

/// Starts the keeper, from which the command inherits its variables, outputs and folder.
fn start_keeper(variables: &Variables<'_>, unblocked: &str, socket: OwnedFd) -> io::Result<Pid> {
    let mut keep = helper::command(KEEP);
    keep.arg(unblocked)
        .stdin(socket)
        .env("ZKLOCK_PATH", variables.path)
        .env(NODE, variables.node)
        .env(NODES, nodes(variables.node));
    // The variables of a lock around this one do not apply to the command.
    let of_others = ["ZKLOCK_SLOT", "ZKLOCK_ATTEMPT", "ZKLOCK_TERM", PERMIT];
    for name in of_others.iter().chain(&[TOKEN, STATE_IN, STATE_OUT]) {
        keep.env_remove(name);
    }
    keep.envs(variables.token.iter().map(|token| (TOKEN, token)));
    keep.envs(variables.more.iter().map(|(name, value)| (name, value)));
    helper::spawn(&mut keep).map_err(|error| match error.kind() {
        ErrorKind::NotFound => io::Error::other("zklock does not find itself: is /proc mounted?"),
        _ => error,
    })
}

/// Returns this node after the nodes of the locks around this one.
fn nodes(node: &str) -> OsString {
    let around = env::var_os(NODES).filter(|nodes| !nodes.is_empty());
    let nodes: Vec<_> = around.into_iter().chain([node.into()]).collect();
    nodes.join(OsStr::new("\n"))
}
