//! Signals become values in a channel.
//!
//! They are blocked in all threads and taken out by one that waits for them, so nothing
//! runs in a handler, and no disposition changes that the command would inherit.

use std::fs;
use std::io;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use nix::sys::signal::{SigSet, Signal, raise};

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
    phase: Arc<AtomicU8>,
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

        let (to, taken) = unbounded();
        let (cancels, cancel) = bounded(1);
        let phase = Arc::new(AtomicU8::new(Phase::Connecting as u8));
        let now = phase.clone();
        thread::Builder::new()
            .name("zklock-signals".into())
            .spawn(move || forward(set, &to, &cancels, &now))?;
        Ok(Self {
            taken,
            cancel,
            phase,
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

    fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::SeqCst);
    }
}

/// Undoes the blocking, in a process that inherited it.
pub(crate) fn unblock() {
    let mut set: SigSet = TAKEN.into_iter().collect();
    set.add(Signal::SIGTTOU);
    // The command runs with them blocked if this fails, which it never does.
    let _ = set.thread_unblock();
}

/// Whether a signal asks for the end.
pub(crate) fn ends(signal: Signal) -> bool {
    matches!(
        signal,
        Signal::SIGHUP | Signal::SIGINT | Signal::SIGQUIT | Signal::SIGTERM
    )
}

fn forward(set: SigSet, to: &Sender<Signal>, cancels: &Sender<()>, phase: &AtomicU8) {
    // It fails for a set that no system has.
    while let Ok(signal) = set.wait() {
        let phase = phase.load(Ordering::SeqCst);
        let early = phase != Phase::Running as u8;
        if early && signal == Signal::SIGTSTP {
            let _ = raise(Signal::SIGSTOP);
            continue;
        }
        // The signal comes first: whoever is told to stop looks for the reason.
        if to.send(signal).is_err() {
            return;
        }
        if early && ends(signal) {
            let second = cancels.try_send(()).is_err();
            if second || phase == Phase::Connecting as u8 {
                process::exit(128 + signal as i32);
            }
        }
    }
}

/// Leaves out what our caller wants to be ignored, as nohup(1) does with SIGHUP.
fn wanted() -> SigSet {
    let ignored = ignored();
    let mask = |signal: Signal| 1_u64 << (signal as u32 - 1);
    TAKEN
        .into_iter()
        .filter(|signal| *signal == Signal::SIGCHLD || ignored & mask(*signal) == 0)
        .collect()
}

/// The mask of the signals that are ignored, where the system tells.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}
