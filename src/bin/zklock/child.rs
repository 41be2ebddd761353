//! The command, as the leader of its own process group, and everything that it starts.
//!
//! A process between this one and the command keeps them; see `helper`.

use std::cell::Cell;
use std::env;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, unbounded};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, kill_process_group, wait, waitpid};

use crate::descendants::Descendants;
use crate::exit::Ending;
use crate::helper::wire::{Kind, number, receive, send, send_file, send_number};
use crate::helper::{self, KEEP};
use crate::state_files::{STATE_IN, STATE_OUT};
use crate::terminal_listener::TerminalListener;

/// The variable that names the lock's node.
pub(crate) const NODE: &str = "ZKLOCK_NODE";

/// The variable that names that node after those of the locks around it, one a line.
pub(crate) const NODES: &str = "ZKLOCK_NODES";

/// The variable that tells the number of a permit.
pub(crate) const PERMIT: &str = "ZKLOCK_PERMIT";

/// The status after the process that keeps the command's has been killed.
const NOT_KEPT: u8 = 70;

/// How long the keeper may take to end when nothing is left for it to do.
const END_LIMIT: Duration = Duration::from_millis(500);

/// The command's processes, which end with `zklock run`, however it ends.
#[derive(Debug)]
pub(crate) struct Child {
    group: Pid,
    keeper: UnixStream,
    /// What the keeper says; disconnected when it is gone.
    pub(crate) reports: Receiver<Report>,
    /// All but the processes that this one has, or had before, and that are not the command's.
    descendants: Descendants,
    /// The keeper, until it is reaped.
    process: Option<Pid>,
    ended: Option<Ending>,
    is_gone: bool,
    is_kept: bool,
    /// How many signals to all were asked for, and how many were sent.
    asked: Cell<i32>,
    obeyed: i32,
}

/// What the keeper says about the command.
#[derive(Debug)]
pub(crate) enum Report {
    /// A signal has stopped it.
    Stopped(i32),
    /// Everything is stopped, but for this.
    Suspended(String),
    /// It should have ended some time ago, and this is left.
    Left(String),
    /// Something else has happened that [`Child`] notes.
    Other(Kind, i32),
}

/// The variables for the command.
#[derive(Debug)]
pub(crate) struct Variables<'a> {
    pub(crate) path: &'a str,
    pub(crate) node: &'a str,
    /// If there is none, the variable is removed: another `zklock run` around this one may
    /// have set it.
    pub(crate) token: Option<String>,
    pub(crate) more: &'a [(&'static str, OsString)],
}

impl Child {
    /// Starts the command, which waits to [begin](Self::begin).
    ///
    /// `unblocked` are the signals that the command does not block, and `key` is what is needed
    /// to end the session if this process is killed.
    pub(crate) fn start(
        command: &[OsString],
        variables: &Variables<'_>,
        unblocked: &str,
        key: Option<&str>,
    ) -> io::Result<Self> {
        helper::adopt_orphans();
        let mut descendants = Descendants::new();
        descendants.except = bystanders(&descendants);
        let (keeper, its_end) = UnixStream::pair()?;
        let process = start_keeper(variables, its_end.into())?;
        send_file(&keeper, io::stdin().as_fd())?;
        send(&keeper, Kind::Brief, &brief(command, unblocked, key))?;
        let group = match receive(&keeper)? {
            (Kind::Started, text) => number(&text).and_then(Pid::from_raw),
            (_, text) => return Err(io::Error::other(String::from_utf8_lossy(&text))),
        };
        Ok(Self {
            group: group.ok_or_else(|| io::Error::other("a process without a number"))?,
            reports: listen_to(keeper.try_clone()?)?,
            keeper,
            descendants,
            process: Some(process),
            ended: None,
            is_gone: false,
            is_kept: true,
            asked: Cell::new(0),
            obeyed: 0,
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
        self.descendants.except.push(listener.process);
        Ok(listener)
    }

    /// Sends a signal to the group, and to the processes that have left it.
    /// Returns its number among all of these, for [`has_sent`](Self::has_sent).
    pub(crate) fn signal(&self, signal: Signal) -> i32 {
        self.ask(Kind::SignalAll, signal.as_raw());
        self.asked.set(self.asked.get() + 1);
        self.asked.get()
    }

    /// Returns whether something was still there to get this signal.
    pub(crate) fn has_sent(&self, number: i32) -> bool {
        number <= self.obeyed
    }

    /// Sends a signal only to the group.
    pub(crate) fn signal_group(&self, signal: Signal) {
        self.ask(Kind::SignalGroup, signal.as_raw());
    }

    /// Sends a signal only to the command.
    pub(crate) fn signal_head(&self, signal: Signal) {
        self.ask(Kind::SignalHead, signal.as_raw());
    }

    /// Stops everything that the command has started; a report tells when that is done.
    pub(crate) fn suspend(&self) {
        self.ask(Kind::Suspend, 0);
    }

    /// Continues what was suspended.
    pub(crate) fn go_on(&self) {
        self.ask(Kind::Continue, 0);
    }

    /// Kills everything that the command has started, until it [is gone](Self::is_gone).
    pub(crate) fn kill(&self) {
        if let Some(process) = self.process {
            // Somebody may have stopped it. It is not reaped, so the number is its own.
            let _ = kill_process(process, Signal::CONT);
        }
        self.ask(Kind::Kill, 0);
    }

    /// If the keeper is gone, the reports tell.
    fn ask(&self, kind: Kind, number: i32) {
        if let Err(error) = send_number(&self.keeper, kind, number) {
            log::debug!("cannot ask for {kind:?} of the command: {error}");
        }
    }

    /// Notes a report. Without one, because the keeper is gone, kills what it has left to this
    /// process; this must be repeated until the command [is gone](Self::is_gone).
    pub(crate) fn note(&mut self, report: Option<&Report>) {
        match report {
            Some(Report::Other(Kind::Exited, code)) => {
                self.ended = Some(Ending::Code(u8::try_from(*code).unwrap_or(1)));
            }
            Some(Report::Other(Kind::Died, signal)) => self.ended = Some(Ending::Signal(*signal)),
            Some(Report::Other(Kind::Gone, obeyed)) => {
                self.is_gone = true;
                self.obeyed = *obeyed;
                self.ask(Kind::Spare, 0);
            }
            Some(_) => {}
            None => {
                self.is_kept = false;
                self.ended = Some(Ending::Code(NOT_KEPT));
                self.is_gone = self.end_what_is_left();
            }
        }
    }

    /// Returns whether nothing was left.
    fn end_what_is_left(&mut self) -> bool {
        // What has not ended yet cannot be another group.
        let is_only_group = !cfg!(target_os = "linux");
        if is_only_group && kill_process_group(self.group, Signal::KILL) == Err(Errno::SRCH) {
            return true;
        }
        self.descendants.kill();
        !self.reap() || self.descendants.living().is_ok_and(|rest| rest.is_empty())
    }

    /// Reaps the processes of this one that have ended; returns whether it has others.
    pub(crate) fn reap(&mut self) -> bool {
        reap(|process| {
            // The number may be given to another process.
            self.descendants.except.retain(|other| *other != process);
            self.process.take_if(|keeper| *keeper == process);
        })
    }

    /// Leaves no zombie to the first process of a container, which may not reap any.
    fn reap_keeper(&mut self) {
        let until = Instant::now() + END_LIMIT;
        let Some(keeper) = self.process.take() else {
            return;
        };
        while self.reports.recv_deadline(until).is_ok() {}
        // It has closed its socket, or does not end in time.
        if Instant::now() < until {
            let _ = retry_on_intr(|| waitpid(Some(keeper), WaitOptions::empty()));
        }
    }

    /// Returns whether the process that keeps the command's processes is there.
    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Returns whether nothing that the command has started is left.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Returns how the command ended.
    pub(crate) fn ending(&self) -> Ending {
        self.ended.unwrap_or(Ending::Code(1))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.is_gone {
            self.reap_keeper();
        } else {
            // The session goes on, unless this is a panic.
            if !thread::panicking() {
                self.ask(Kind::Spare, 0);
            }
            self.kill();
        }
    }
}

/// Returns the processes that this one has although it did not start them: it was another
/// program before, such as a shell, or the first process of a container.
fn bystanders(all: &Descendants) -> Vec<Pid> {
    match reap(|_| {}) {
        true => all.children().unwrap_or_default(),
        false => Vec::new(),
    }
}

/// Reaps all that have ended; returns whether there are others.
fn reap(mut ended: impl FnMut(Pid)) -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((process, _))) => ended(process),
            Ok(None) => return true,
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// Returns what the keeper is told.
fn brief(command: &[OsString], unblocked: &str, key: Option<&str>) -> Vec<u8> {
    let count = command.len().to_string();
    let mut words: Vec<&[u8]> = vec![
        key.unwrap_or_default().as_bytes(),
        unblocked.as_bytes(),
        count.as_bytes(),
    ];
    words.extend(command.iter().map(|word| word.as_bytes()));
    // It connects as this process did.
    let args: Vec<_> = env::args_os().skip(1).collect();
    words.extend(args.iter().map(|arg| arg.as_bytes()));
    words.join(&0)
}

fn listen_to(keeper: UnixStream) -> io::Result<Receiver<Report>> {
    let (to, reports) = unbounded();
    let listen = move || {
        while let Ok((kind, text)) = receive(&keeper) {
            let number = number(&text).unwrap_or_default();
            let text = || String::from_utf8_lossy(&text).into_owned();
            let report = match kind {
                Kind::Stopped => Report::Stopped(number),
                Kind::Suspended => Report::Suspended(text()),
                Kind::Left => Report::Left(text()),
                other => Report::Other(other, number),
            };
            if to.send(report).is_err() {
                return;
            }
        }
    };
    thread::Builder::new()
        .name("zklock-keeper".into())
        .spawn(listen)?;
    Ok(reports)
}

/// Starts the keeper, from which the command inherits its variables, outputs and folder.
fn start_keeper(variables: &Variables<'_>, socket: OwnedFd) -> io::Result<Pid> {
    let mut keep = helper::command(KEEP);
    keep.stdin(socket)
        .env("ZKLOCK_PATH", variables.path)
        .env(NODE, variables.node)
        .env(NODES, nodes(variables.node));
    match &variables.token {
        Some(token) => keep.env("ZKLOCK_TOKEN", token),
        None => keep.env_remove("ZKLOCK_TOKEN"),
    };
    // The variables of a lock around this one do not apply to the command.
    let of_others = ["ZKLOCK_SLOT", "ZKLOCK_ATTEMPT", "ZKLOCK_TERM", PERMIT];
    for name in of_others.into_iter().chain([STATE_IN, STATE_OUT]) {
        keep.env_remove(name);
    }
    keep.envs(variables.more.iter().map(|(name, value)| (name, value)));
    Ok(helper::spawn(&mut keep)?.id)
}

/// Returns this node after the nodes of the locks around this one.
fn nodes(node: &str) -> OsString {
    let mut nodes = env::var_os(NODES).unwrap_or_default();
    if !nodes.is_empty() {
        nodes.push("\n");
    }
    nodes.push(node);
    nodes
}
