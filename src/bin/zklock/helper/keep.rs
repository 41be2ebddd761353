//! The process between `zklock run` and its command: the descendants of this one are the
//! command's, and nobody else's.
//!
//! It sends them the signals that `zklock run` asks for, and kills them when `zklock run` is
//! gone. It ends when the kernel says that there are none, and only then is the lock free.

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use nix::sys::select::{FdSet, pselect};
use nix::sys::signal::{SigSet, Signal as Number};
use nix::sys::time::TimeSpec;
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, kill_process_group, wait, waitpid,
};

use crate::descendants::{Descendants, Process, State};
use crate::helper::session::Session;
use crate::helper::wire::{Kind, number, receive, receive_file, send, send_number};
use crate::helper::{self, EXEC};
use crate::signals;
use crate::state_files;

/// How often what is to be stopped or killed is looked for.
const POLL: Duration = Duration::from_millis(20);

/// How long the group has to stop by itself: an editor restores the terminal first. Then, how
/// long a call that no signal interrupts may take.
const STOP_LIMIT: Duration = Duration::from_millis(500);

/// How long everything may take to stop, on a machine that is busy.
const LAST_STOP: Duration = Duration::from_secs(2);

/// How long processes may be left before that is told.
const QUIET: Duration = Duration::from_secs(2);

/// How many of the processes that are left are named.
const NAMED: usize = 8;

/// See the module's documentation.
struct Keeper {
    /// The same as the input.
    zklock: UnixStream,
    descendants: Descendants,
    /// The command, which leads its group.
    head: Pid,
    /// While it is not reaped, its number is its group's.
    head_lives: bool,
    /// What `Suspend` has stopped.
    suspended: Vec<Process>,
    /// Until when the group has to stop by itself.
    suspending: Option<Instant>,
    killing: bool,
    /// How many signals were sent to all.
    obeyed: i32,
    /// Since when the processes that are left should end.
    left: Option<Instant>,
    told: bool,
    /// Whether `zklock run` is gone.
    orphaned: bool,
    /// The session to end if it is.
    session: Option<Session>,
}

pub(super) fn main() -> ExitCode {
    match keep() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn keep() -> io::Result<()> {
    let zklock = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    helper::adopt_orphans();
    // Before the command begins, so that no limit of open files can prevent it later.
    let descendants = Descendants::new();
    signals::hear_of_children()?;
    let input = receive_file(&zklock)?;
    let (Kind::Brief, brief) = receive(&zklock)? else {
        return Err(ErrorKind::InvalidData.into());
    };
    let words = brief.split(|byte| *byte == 0);
    let mut words = words.map(|word| OsString::from_vec(word.to_vec()));
    let mut next = || words.next().unwrap_or_default();
    let (key, unblocked, count) = (next(), next(), next().into_vec());
    let count = number(&count).and_then(|count| usize::try_from(count).ok());
    let command: Vec<_> = words.by_ref().take(count.unwrap_or(0)).collect();
    let head = match start(input, unblocked, command) {
        Ok(head) => head,
        Err(error) => return send(&zklock, Kind::Failed, error.to_string().as_bytes()),
    };
    let session = Session::new(key, words.collect());
    become_quiet()?;
    send_number(&zklock, Kind::Started, head.as_raw_pid())?;
    let keeper = Keeper {
        zklock,
        descendants,
        head,
        head_lives: true,
        suspended: Vec::new(),
        suspending: None,
        killing: false,
        obeyed: 0,
        left: None,
        told: false,
        orphaned: false,
        session: Some(session),
    };
    keeper.run()
}

/// Starts the process that becomes the command, and waits until it has stopped itself.
fn start(input: OwnedFd, unblocked: OsString, command: Vec<OsString>) -> io::Result<Pid> {
    let mut exec = helper::command(EXEC);
    exec.arg(getpid().as_raw_pid().to_string()).arg(unblocked);
    let head = helper::spawn(exec.args(command).stdin(input))?.id;
    let status = retry_on_intr(|| waitpid(Some(head), WaitOptions::UNTRACED))?;
    match status.is_some_and(|(_, status)| status.stopped()) {
        true => Ok(head),
        false => Err(io::Error::other("the process that becomes it has ended")),
    }
}

/// Lets go of what the command's readers and its folder's file system wait for, and leaves all
/// signals to the command.
fn become_quiet() -> io::Result<()> {
    SigSet::all().thread_set_mask()?;
    let null = File::options().write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    drop(env::set_current_dir("/"));
    Ok(())
}

impl Keeper {
    fn run(mut self) -> io::Result<()> {
        while !self.reap() {
            self.suspend();
            self.kill();
            self.tell_what_is_left();
            // What has ended gets no signal that comes later.
            if self.wait()? && !self.reap() {
                self.hear();
            }
        }
        let told = send_number(&self.zklock, Kind::Gone, self.obeyed);
        if self.orphaned || told.is_err() || self.is_unheard() {
            state_files::remove_what_is_left();
            if let Some(session) = self.session {
                session.end();
            }
        }
        Ok(())
    }

    /// Waits until `zklock run` answers that the session goes on; returns whether it ended instead. A
    /// process that is being killed takes messages, and reads none.
    fn is_unheard(&self) -> bool {
        while self.session.is_some() {
            match receive(&self.zklock) {
                Ok((Kind::Spare, _)) => return false,
                // A signal that comes too late.
                Ok(_) => {}
                Err(_) => return true,
            }
        }
        false
    }

    /// Reaps what has ended; returns whether nothing is left.
    fn reap(&mut self) -> bool {
        loop {
            match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some((process, status))) if process == self.head && self.head_lives => {
                    self.head_changed(status);
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return false,
                Err(_) => return self.is_gone_without_adoption(),
            }
        }
    }

    /// Where orphans are not adopted, the group has to be gone too.
    fn is_gone_without_adoption(&self) -> bool {
        cfg!(target_os = "linux")
            || rustix::process::test_kill_process_group(self.head) == Err(Errno::SRCH)
    }

    fn head_changed(&mut self, status: WaitStatus) {
        let (kind, number) = if let Some(signal) = status.stopping_signal() {
            (Kind::Stopped, signal)
        } else if let Some(signal) = status.terminating_signal() {
            (Kind::Died, signal)
        } else {
            (Kind::Exited, status.exit_status().unwrap_or(1))
        };
        if kind != Kind::Stopped {
            self.head_lives = false;
            self.left.get_or_insert_with(Instant::now);
        }
        self.say_number(kind, number);
    }

    /// If `zklock run` is gone, the next look at the socket tells.
    fn say(&self, kind: Kind, text: &str) {
        drop(send(&self.zklock, kind, text.as_bytes()));
    }

    fn say_number(&self, kind: Kind, number: i32) {
        drop(send_number(&self.zklock, kind, number));
    }

    /// Waits for a child, a message, or the next time to look; returns whether there is a message.
    fn wait(&self) -> io::Result<bool> {
        let (input, mut read, mut mask) = (io::stdin(), FdSet::new(), SigSet::all());
        if !self.orphaned {
            read.insert(input.as_fd());
        }
        mask.remove(Number::SIGCHLD);
        let timeout = self.timeout().map(TimeSpec::from_duration);
        match pselect(None, &mut read, None, None, timeout.as_ref(), &mask) {
            Err(nix::Error::EINTR) => Ok(false),
            ready => Ok(ready? > 0),
        }
    }

    fn hear(&mut self) {
        match receive(&self.zklock) {
            Ok((kind, text)) => self.obey(kind, &text),
            Err(_) => {
                self.orphaned = true;
                self.start_killing();
            }
        }
    }

    fn timeout(&self) -> Option<Duration> {
        if self.killing || self.suspending.is_some() || !cfg!(target_os = "linux") {
            return Some(POLL);
        }
        let left = self.left.filter(|_| !self.told)?;
        Some(QUIET.saturating_sub(left.elapsed()))
    }

    fn obey(&mut self, kind: Kind, text: &[u8]) {
        let signal = number(text).and_then(Signal::from_named_raw);
        match (kind, signal) {
            (Kind::SignalAll, Some(signal)) => {
                self.obeyed += 1;
                self.signal_all(signal);
            }
            (Kind::SignalGroup, Some(signal)) => drop(self.signal_group(signal)),
            (Kind::SignalHead, Some(signal)) if self.head_lives => {
                // Not reaped yet, so the number is still its own.
                let _ = kill_process(self.head, signal);
            }
            (Kind::Kill, _) => self.start_killing(),
            (Kind::Suspend, _) => self.suspending = Some(Instant::now() + STOP_LIMIT),
            (Kind::Continue, _) => self.go_on(),
            (Kind::Spare, _) => self.session = None,
            _ => {}
        }
    }

    /// Sends a signal to the group at once, so that no process that starts meanwhile misses it.
    /// Returns whether it was sent.
    fn signal_group(&self, signal: Signal) -> bool {
        // Afterwards, the number may be another group's.
        if self.head_lives {
            let _ = kill_process_group(self.head, signal);
            return true;
        }
        for process in self.descendants.living().unwrap_or_default() {
            if process.is_in(self.head) {
                drop(process.signal(signal));
            }
        }
        false
    }

    /// Sends a signal to the group, and to the processes that have left it.
    fn signal_all(&self, signal: Signal) {
        self.signal_group(signal);
        for process in self.descendants.living().unwrap_or_default() {
            if !process.is_in(self.head) {
                // Those of other users are told when they are left.
                drop(process.signal(signal));
            }
        }
    }

    fn start_killing(&mut self) {
        self.killing = true;
        self.suspending = None;
        self.left.get_or_insert_with(Instant::now);
    }

    fn kill(&self) {
        if self.killing {
            if self.head_lives {
                let _ = kill_process_group(self.head, Signal::KILL);
            }
            self.descendants.kill();
        }
    }

    /// Stops everything, once the group has stopped by itself.
    fn suspend(&mut self) {
        let Some(until) = self.suspending else { return };
        let head = self.head;
        let stops = |all: Vec<Process>| all.iter().any(|one| one.is_in(head) && one.runs());
        if Instant::now() < until && self.descendants.living().is_ok_and(stops) {
            return;
        }
        let late = Instant::now().saturating_duration_since(until);
        let (stopped, told) = self.descendants.stop(match late > STOP_LIMIT {
            true => State::Uninterruptible,
            false => State::Stopped,
        });
        self.suspended.extend(stopped);
        if told.is_err() && late < LAST_STOP {
            return;
        }
        self.suspending = None;
        let failed = told.err().map(|error| error.to_string());
        self.say(Kind::Suspended, &failed.unwrap_or_default());
    }

    fn go_on(&mut self) {
        self.suspending = None;
        for process in self.suspended.drain(..) {
            drop(process.signal(Signal::CONT));
        }
        self.signal_group(Signal::CONT);
    }

    fn tell_what_is_left(&mut self) {
        if self.told || self.left.is_none_or(|left| left.elapsed() < QUIET) {
            return;
        }
        self.told = true;
        let text = match self.descendants.living() {
            Err(error) => format!("processes that cannot be listed: {error}"),
            Ok(rest) => {
                let rest: Vec<_> = rest.iter().take(NAMED).map(Process::describe).collect();
                format!("process {}", rest.join(", "))
            }
        };
        self.say(Kind::Left, &text);
    }
}
