//! Signals become values in a channel.
//!
//! They are blocked in all threads and taken out by one that waits for them, so nothing
//! runs in a handler. No disposition changes that the command would inherit but that of
//! SIGCHLD, which must not be ignored, as with flock(1).

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use nix::sys::signal::{SigSet, Signal, raise};

use crate::ending::Ending;

/// How long leaving the queue may take after a signal. The end of the session does it
/// otherwise.
const TIDY: Duration = Duration::from_secs(5);

/// As above, for who has sent a second signal.
const HURRY: Duration = Duration::from_secs(2);

/// Those that we take out.
const TAKEN: [Signal; 8] = [
    Signal::SIGCHLD,
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGTSTP,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// What the end of the wait means to a signal.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
enum Phase {
    /// There is nothing to be cleaned up.
    Connecting,
    /// The queue has to be left first.
    Waiting,
    /// It is the command's.
    Running,
}

#[derive(Debug)]
pub(crate) struct Signals {
    pub(crate) taken: Receiver<Signal>,
    /// Told when the wait for the lock is to end.
    pub(crate) cancel: Receiver<()>,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    phase: AtomicU8,
    /// Signals that we have sent to our own group, which are not meant for us.
    own: AtomicU64,
}

impl Signals {
    /// Begins; no other thread may have been started before.
    pub(crate) fn take() -> io::Result<Self> {
        let set = wanted();
        // A background process that writes to its terminal would be stopped by this one,
        // and with it the heart of its lock.
        let mut blocked = set;
        blocked.add(Signal::SIGTTOU);
        blocked.thread_block()?;
        hear_of_children()?;

        let (to, taken) = unbounded();
        let (cancels, cancel) = bounded(1);
        let state = Arc::new(State {
            phase: AtomicU8::new(Phase::Connecting as u8),
            own: AtomicU64::new(0),
        });
        let shared = state.clone();
        thread::Builder::new()
            .name("zklock-signals".into())
            .spawn(move || forward(set, &to, &cancels, &shared))?;
        Ok(Self {
            taken,
            cancel,
            state,
        })
    }

    /// From now on a signal ends the wait for the lock.
    pub(crate) fn waiting(&self) {
        self.enter(Phase::Waiting);
    }

    /// From now on a signal is the command's.
    pub(crate) fn running(&self) {
        self.enter(Phase::Running);
    }

    /// Returns the signal that ended the wait, if one did.
    pub(crate) fn ended_by(&self) -> Option<Signal> {
        self.taken.try_iter().find(|signal| ends(*signal))
    }

    /// Passes over this signal once: we are about to send it to our own group.
    pub(crate) fn pass_over(&self, signal: Signal) {
        self.state.own.fetch_or(mask(signal), Ordering::SeqCst);
    }

    fn enter(&self, phase: Phase) {
        self.state.phase.store(phase as u8, Ordering::SeqCst);
    }
}

impl State {
    fn is(&self, phase: Phase) -> bool {
        self.phase.load(Ordering::SeqCst) == phase as u8
    }

    /// Returns whether it is one of our own.
    fn passes_over(&self, signal: Signal) -> bool {
        let mask = mask(signal);
        self.own.fetch_and(!mask, Ordering::SeqCst) & mask != 0
    }
}

/// Has the system keep the status of children that have ended until it is asked for, even if
/// our caller ignores SIGCHLD, and we with it: it would forget them at once, and we would
/// wait for an end that nobody tells of.
///
/// What handles a signal never does so, because the signal is blocked, and is not inherited.
fn hear_of_children() -> io::Result<()> {
    signal_hook::flag::register(Signal::SIGCHLD as i32, Arc::default()).map(drop)
}

/// Undoes the blocking, in a process that inherited it.
pub(crate) fn unblock() {
    let mut set: SigSet = TAKEN.into_iter().collect();
    set.add(Signal::SIGTTOU);
    // The command runs with them blocked if this fails, which it never does.
    let _ = set.thread_unblock();
}

/// The signals that a terminal sends to those in its foreground to end them.
#[cfg(target_os = "linux")]
pub(crate) fn of_terminal() -> SigSet {
    [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT]
        .into_iter()
        .collect()
}

/// Whether a signal asks for the end.
pub(crate) fn ends(signal: Signal) -> bool {
    matches!(
        signal,
        Signal::SIGHUP | Signal::SIGINT | Signal::SIGQUIT | Signal::SIGTERM
    )
}

fn forward(set: SigSet, to: &Sender<Signal>, cancels: &Sender<()>, state: &Arc<State>) {
    // It fails for a set that no system has.
    while let Ok(signal) = set.wait() {
        if state.passes_over(signal) {
            continue;
        }
        let early = !state.is(Phase::Running);
        if early && signal == Signal::SIGTSTP {
            let _ = raise(Signal::SIGSTOP);
            continue;
        }
        if state.is(Phase::Connecting) && ends(signal) {
            exit_by(signal);
        }
        // The signal comes first: whoever is told to stop looks for the reason.
        if to.send(signal).is_err() {
            return;
        }
        if early && ends(signal) {
            let second = cancels.try_send(()).is_err();
            limit(signal, if second { HURRY } else { TIDY }, state.clone());
        }
    }
}

/// Ends the program when the queue is not left in time.
fn limit(signal: Signal, limit: Duration, state: Arc<State>) {
    let end = move || {
        thread::sleep(limit);
        // It may have got its lock before it heard of the signal, which is the command's then.
        if state.is(Phase::Waiting) {
            exit_by(signal);
        }
    };
    if thread::Builder::new().spawn(end).is_err() {
        exit_by(signal);
    }
}

fn exit_by(signal: Signal) {
    let _ = Ending::Signal(signal as i32).end();
    std::process::exit(128 + signal as i32);
}

/// Leaves out what our caller wants to be ignored, as nohup(1) does with SIGHUP.
fn wanted() -> SigSet {
    let ignored = ignored();
    TAKEN
        .into_iter()
        .filter(|signal| *signal == Signal::SIGCHLD || ignored & mask(*signal) == 0)
        .collect()
}

fn mask(signal: Signal) -> u64 {
    1 << (signal as u32 - 1)
}

/// The mask of the signals that are ignored, where the system tells.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}
