//! Turns signals into values in a channel.
//!
//! All threads block the signals, and one thread waits for them, so nothing runs in a handler. Only
//! the dispositions of SIGCHLD and SIGXFSZ change: SIGCHLD must not be ignored, and SIGXFSZ must
//! not end the program.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use nix::sys::signal::{SigSet, Signal, kill, raise};
use nix::unistd::{Pid, getpid};
use parking_lot::Mutex;
use procfs_core::FromRead;
use procfs_core::process::Status;

use crate::exit::Ending;

/// How long leaving the queue may take after a signal; after that, the end of the session
/// removes the node.
const LEAVE_LIMIT: Duration = Duration::from_secs(5);

/// How long leaving the queue may take after a second signal.
const SECOND_LEAVE_LIMIT: Duration = Duration::from_secs(2);

/// A signal that is repeated within this time is the same one: timeout(1) sends it to its child,
/// and then to the group of both.
const ECHO: Duration = Duration::from_millis(100);

/// How long a stop may take to begin: SIGCONT cancels a stop that has not begun.
const STOP_LIMIT: Duration = Duration::from_millis(500);

/// The signals that are turned into values.
const TAKEN: [Signal; 9] = [
    Signal::SIGCHLD,
    Signal::SIGCONT,
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGTSTP,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// What a signal does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    /// A signal ends the program: there is nothing to clean up.
    Connecting,
    /// A signal ends the wait: the queue must be left first.
    Waiting,
    /// A signal goes to the command.
    Running,
}

/// How this process stops itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Stop {
    /// With its group, as Ctrl-Z does: another `zklock` in it first stops what its own command has started.
    #[default]
    Group,
    Alone,
    /// With its group, as the system stops one that reads from a terminal which it does not have: another `zklock`
    /// around this one gives it the terminal.
    ForTerminal,
}

#[derive(Debug)]
pub(crate) struct Signals {
    pub(crate) taken: Receiver<Signal>,
    /// Receives a message when the wait for the lock is to end.
    pub(crate) cancel: Receiver<()>,
    /// The names of the signals that the caller had not blocked, for [`unblock`].
    pub(crate) unblocked: String,
    /// Receives a message when this process continues after a stop of its own.
    continued: Receiver<()>,
    state: Arc<Mutex<SignalState>>,
}

#[derive(Debug)]
struct SignalState {
    phase: Phase,
    /// Signals that this process sends to its own group, and must itself ignore.
    own: SigSet,
}

impl Signals {
    /// Blocks the signals and starts the thread; no other thread may exist before.
    pub(crate) fn take() -> io::Result<Self> {
        let ignored = ignored();
        let wanted = |one: &Signal| *one == Signal::SIGCHLD || !ignored.contains(*one);
        let set: SigSet = TAKEN.into_iter().filter(wanted).collect();
        // SIGTTOU would stop a background process that writes to its terminal, and the heartbeat of
        // its session with it.
        let mut blocked = set;
        blocked.add(Signal::SIGTTOU);
        let before = SigSet::thread_get_mask()?;
        blocked.thread_block()?;
        let unblocked = blocked.iter().filter(|signal| !before.contains(*signal));
        let unblocked: Vec<_> = unblocked.map(Signal::as_str).collect();
        // If SIGCHLD were ignored, the system would discard the status of children that have ended.
        handle(Signal::SIGCHLD)?;
        // A file that may not grow is an error of the write, not the end of a program that holds a lock.
        if !ignored.contains(Signal::SIGXFSZ) {
            handle(Signal::SIGXFSZ)?;
        }

        let (to, taken) = unbounded();
        let (cancels, cancel) = bounded(1);
        let (continues, continued) = bounded(1);
        let state = Arc::new(Mutex::new(SignalState {
            phase: Phase::Connecting,
            own: SigSet::empty(),
        }));
        let shared = state.clone();
        thread::Builder::new()
            .name("zklock-signals".into())
            .spawn(move || forward(set, &to, &cancels, &continues, &shared))?;
        Ok(Self {
            taken,
            cancel,
            unblocked: unblocked.join(","),
            continued,
            state,
        })
    }

    /// Makes a signal end the wait for the lock from now on.
    pub(crate) fn waiting(&self) {
        self.state.lock().phase = Phase::Waiting;
    }

    /// Makes a signal go to the command from now on.
    pub(crate) fn running(&self) {
        self.state.lock().phase = Phase::Running;
    }

    /// Returns the signal that ended the wait, if one did.
    pub(crate) fn ended_by(&self) -> Option<Signal> {
        self.taken.try_iter().find(|signal| ends(*signal))
    }

    /// Ends the program if a signal ended the wait: the end of the session cleans up.
    pub(crate) fn end_if_signalled(&self) {
        if let Some(signal) = self.ended_by() {
            exit_by(signal);
        }
    }

    /// Sends a signal to this process's group, and ignores it itself.
    pub(crate) fn tell_group(&self, signal: Signal) {
        self.state.lock().own.add(signal);
        let _ = kill(GROUP, signal);
    }

    /// Stops this process; returns when it continues.
    pub(crate) fn stop(&self, how: Stop) {
        let (whom, signal) = match how {
            Stop::Group => (GROUP, Signal::SIGTSTP),
            Stop::Alone => (getpid(), Signal::SIGTSTP),
            Stop::ForTerminal => (GROUP, Signal::SIGTTIN),
        };
        let _ = self.continued.try_recv();
        self.state.lock().own.add(signal);
        let _ = kill(whom, signal);
        let _ = self.continued.recv_timeout(STOP_LIMIT);
        self.state.lock().own.remove(signal);
    }
}

/// How a signal was handled.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Taken {
    /// The signal was passed on, `early` if no command runs yet.
    Passed {
        early: bool,
    },
    Ignored,
    /// The signal stops this process.
    Stops,
}

/// The argument of kill(2) for the group of this process.
const GROUP: Pid = Pid::from_raw(0);

/// Sets a handler that does nothing, for a signal that must be neither ignored nor fatal. No command inherits it.
pub(crate) fn handle(signal: Signal) -> io::Result<()> {
    signal_hook::flag::register(signal as i32, Arc::default()).map(drop)
}

/// The name of all signals, for [`unblock`].
pub(crate) const ALL: &str = "*";

/// Unblocks signals, given by their names, in a process that inherited the mask.
pub(crate) fn unblock(names: &str) {
    let set = match names {
        ALL => SigSet::all(),
        _ => names
            .split(',')
            .filter_map(|name| name.parse().ok())
            .collect(),
    };
    // This cannot fail for a set of known signals.
    let _ = set.thread_unblock();
}

/// Returns whether a signal asks the program to end.
pub(crate) fn ends(signal: Signal) -> bool {
    matches!(
        signal,
        Signal::SIGHUP | Signal::SIGINT | Signal::SIGQUIT | Signal::SIGTERM
    )
}

fn forward(
    set: SigSet,
    to: &Sender<Signal>,
    cancels: &Sender<()>,
    continues: &Sender<()>,
    state: &Arc<Mutex<SignalState>>,
) {
    let mut last: Option<(Signal, Instant)> = None;
    // This cannot fail for a set of known signals.
    while let Ok(signal) = set.wait() {
        if signal == Signal::SIGCONT {
            let _ = continues.try_send(());
        }
        let is_echo = last.is_some_and(|(same, at)| same == signal && at.elapsed() < ECHO);
        match take(state, signal, is_echo, to) {
            Taken::Stops => {
                stop();
                let _ = continues.try_send(());
            }
            Taken::Passed { early } if ends(signal) => {
                if early {
                    // The message follows the signal, for which its receiver looks.
                    let is_first = cancels.try_send(()).is_ok();
                    limit(signal, is_first, state.clone());
                }
                // An echo that has arrived meanwhile is still an echo, however long this took on a busy machine.
                last = Some((signal, Instant::now()));
            }
            Taken::Passed { .. } | Taken::Ignored => {}
        }
    }
}

/// Passes a signal on, unless it is this process's own. The mutex ensures that a later change of
/// the phase finds the signal: one on its way between two phases would end neither the wait nor the
/// command.
fn take(state: &Mutex<SignalState>, signal: Signal, is_echo: bool, to: &Sender<Signal>) -> Taken {
    let mut state = state.lock();
    let own = state.own.contains(signal);
    state.own.remove(signal);
    if state.phase == Phase::Connecting && ends(signal) {
        // Until then the program requests nothing that outlasts this process: `waiting` locks the mutex first.
        exit_by(signal);
    }
    let early = state.phase != Phase::Running;
    if signal == Signal::SIGTSTP && (own || early) {
        return Taken::Stops;
    }
    // A daemon may take each SIGHUP for a reload.
    if own || is_echo && (early || signal != Signal::SIGHUP) {
        return Taken::Ignored;
    }
    let _ = to.send(signal);
    Taken::Passed { early }
}

/// Stops this process with SIGTSTP, which tells a `zklock` around this one to stop too.
fn stop() {
    let signal = SigSet::from_iter([Signal::SIGTSTP]);
    let _ = signal.thread_unblock();
    let _ = raise(Signal::SIGTSTP);
    let _ = signal.thread_block();
}

/// Ends the program if the queue is not left in time.
fn limit(signal: Signal, is_first: bool, state: Arc<Mutex<SignalState>>) {
    let limit = match is_first {
        true => LEAVE_LIMIT,
        false => SECOND_LEAVE_LIMIT,
    };
    let end = move || {
        thread::sleep(limit);
        // If the lock has been acquired meanwhile, the signal goes to the command.
        let state = state.lock();
        if state.phase == Phase::Waiting {
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

/// Returns the signals that the caller ignores, as nohup(1) does, if the system tells.
pub(crate) fn ignored() -> SigSet {
    let mask = Status::from_file("/proc/self/status").map_or(0, |status| status.sigign);
    let is_ignored = |signal: &Signal| mask >> (*signal as u32 - 1) & 1 == 1;
    Signal::iterator().filter(is_ignored).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_there_before_the_phase_can_change() {
        let state = Arc::new(Mutex::new(SignalState {
            phase: Phase::Running,
            own: SigSet::empty(),
        }));
        // This send lasts until a receiver takes it.
        let (to, taken) = bounded(0);
        let shared = state.clone();
        let passes = thread::spawn(move || take(&shared, Signal::SIGTERM, false, &to));
        let until = Instant::now() + Duration::from_secs(60);
        while state.try_lock().is_some() {
            assert!(Instant::now() < until, "not held during the send");
            thread::yield_now();
        }
        assert_eq!(taken.recv(), Ok(Signal::SIGTERM));
        assert_eq!(
            passes.join().expect("no panic"),
            Taken::Passed { early: false }
        );
    }
}
