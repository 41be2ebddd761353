//! Supervises a command and its lock.
//!
//! The command is stopped before anything is said about it. Messages go through `stderr`, which
//! never blocks: only the loop of [`Supervisor::run`] waits.

mod job_control;
mod lock_watch;
mod looks;

use std::mem;
use std::time::{Duration, Instant};

use crossbeam_channel::{after, select};
use nix::sys::signal::Signal;
use zklock::{GuardEvent, GuardState};

use self::looks::Looks;
pub(crate) use self::looks::is_attended;
use crate::args::Guarded;
use crate::child::Child;
use crate::exit::Ending;
use crate::failure::{Failure, LOST};
use crate::held::Held;
use crate::helper::trust::since_boot;
use crate::helper::wire::{Kind, Message};
use crate::signals::{Signals, Stop};
use crate::stderr::say;
use crate::stop_policy::{StopAction, StopPolicy};
use crate::terminal::Terminal;
use crate::terminal_listener::TerminalListener;

/// How often the lock is checked if its loss does not stop the command.
const LOOK: Duration = Duration::from_secs(1);

/// A command to be run while its lock is held.
pub(crate) struct Order<'a> {
    pub(crate) what: &'a Guarded,
    pub(crate) lock: &'a dyn Held,
    /// The lock, for messages.
    pub(crate) name: String,
    pub(crate) policy: StopPolicy,
    pub(crate) told: &'a dyn Fn(News),
}

/// What observers are told while a command runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum News {
    /// The command is about to begin, and whoever kills this process kills it too.
    Begins,
    /// The lock's state has changed.
    Is(GuardState),
    /// The command is asked to end, or killed, because of its lock; or the lock is lost.
    Stops,
}

/// How a command ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) ending: Ending,
    /// Whether the command was stopped because of its lock, or because another client asked for that.
    pub(crate) by_lock: bool,
    /// Whether the lock was lost, or the command was stopped because the lock was in doubt.
    pub(crate) lost: bool,
    /// Whether the command was stopped because it ran for too long.
    pub(crate) over_time: bool,
    /// Whether a signal that ends programs was passed on to the command, or came to it from the terminal; a SIGHUP
    /// that was passed on counts only if it ended the command.
    pub(crate) by_signal: bool,
    /// A signal that ends programs and came too late for the command.
    pub(crate) late: Option<Signal>,
}

impl Ended {
    /// Returns whether the command succeeded, under its lock.
    pub(crate) fn is_success(&self) -> bool {
        self.ending == Ending::Code(0) && !self.lost
    }
}

/// See the module's documentation.
pub(crate) struct Supervisor<'a> {
    order: Order<'a>,
    /// The last state that was reported.
    state: GuardState,
    looks: Looks,
    child: Child,
    began: Instant,
    terminal: &'a Terminal,
    signals: &'a Signals,
    /// When SIGTERM was sent because the lock was suspect, and because the time was over.
    doubted: Option<Instant>,
    over_time: Option<Instant>,
    /// Whether the command was killed because of the lock.
    killed: bool,
    /// The time until which the lock can be trusted, as last told to the keeper.
    trusted: Duration,
    /// Whether another client has asked for the lock.
    revoked: bool,
    /// Whether a signal other than SIGHUP that ends programs was passed on to the command, or any of them came to it
    /// from the terminal.
    by_signal: bool,
    /// Whether it was reported that processes are left after the end of the command.
    has_left: bool,
    /// The last signal that ends programs, and its number in `child`.
    last: Option<(Signal, i32)>,
    /// Present once the command has the terminal.
    listener: Option<TerminalListener>,
    had_terminal: bool,
    /// Whether SIGTSTP was passed on to the command.
    passed_stop: bool,
    /// How this process stops once everything that the command has started is stopped.
    own_stop: Stop,
}

impl<'a> Supervisor<'a> {
    pub(crate) fn new(
        order: Order<'a>,
        child: Child,
        terminal: &'a Terminal,
        signals: &'a Signals,
    ) -> Self {
        Self {
            looks: Looks::begin(order.policy.session_timeout),
            order,
            state: GuardState::Held,
            child,
            began: Instant::now(),
            terminal,
            signals,
            doubted: None,
            over_time: None,
            killed: false,
            trusted: Duration::ZERO,
            revoked: false,
            by_signal: false,
            has_left: false,
            last: None,
            listener: None,
            had_terminal: false,
            passed_stop: false,
            own_stop: Stop::default(),
        }
    }

    /// Lets the command begin, unless the lock was lost or a signal came meanwhile: on a slow disk,
    /// starting a program takes a while.
    fn begin(&mut self) -> Result<(), Failure> {
        if self.terminal.is_all_ours() {
            self.give_terminal();
        }
        (self.order.told)(News::Begins);
        let lock = self.order.lock;
        self.tell_trust(since_boot(), lock.valid_for());
        let action = self
            .order
            .policy
            .decide(lock.state(), lock.valid_for(), None);
        if !matches!(action, StopAction::Wait(_)) {
            self.child.kill();
            self.terminal.take_back(self.child.group);
            let why = self.why_lost(", because");
            let name = &self.order.name;
            let message = format!("the lock {name} was lost before the command began{why}");
            return Err(Failure::new(LOST, message));
        }
        // The helper that becomes the command dies of a signal that ends programs. The command
        // itself might handle or ignore it.
        for signal in self.signals.taken.try_iter() {
            self.signalled(signal);
        }
        self.child.ask(Kind::Begin);
        let name = &self.order.name;
        log::info!("got {name}, the command is process {}", self.child.group);
        Ok(())
    }

    /// Lets the command begin and waits until none of its processes is left. Also returns the child
    /// that is still to be reaped.
    pub(crate) fn run(mut self) -> Result<(Ended, Child), Failure> {
        self.begin()?;
        let events = self.order.lock.events().clone();
        while !self.child.is_gone {
            let wait = self.look_at_time().min(self.look_at_lock());
            let reports = self.child.reports.clone();
            self.child.spare_bystanders();
            select! {
                recv(reports) -> report => self.reported(report.ok().as_ref()),
                recv(self.signals.taken) -> signal => if let Ok(signal) = signal {
                    self.signalled(signal);
                },
                recv(events) -> event => if event == Ok(GuardEvent::RevokeRequested) {
                    self.asked_for();
                },
                recv(self.heard()) -> signal => match signal {
                    Ok(signal) => self.tell_foreground(signal.number),
                    Err(_) => self.listener = None,
                },
                recv(after(wait)) -> _ => {}
            }
        }
        let ending = self.end();
        let late = self.last.filter(|last| self.child.obeyed < last.1);
        let ended = Ended {
            ending,
            by_lock: self.revoked || self.was_stopped(),
            lost: self.is_doubted() || self.order.lock.state() == GuardState::Lost,
            over_time: self.over_time.is_some(),
            by_signal: self.by_signal || self.last.is_some() && self.has_died_of_hangup(),
            late: late.map(|last| last.0),
        };
        Ok((ended, self.child))
    }

    /// Returns whether the command was stopped because of its lock.
    fn is_doubted(&self) -> bool {
        self.doubted.is_some() || self.killed
    }

    fn was_stopped(&self) -> bool {
        self.is_doubted() || self.over_time.is_some()
    }

    /// Handles a report of the keeper; `None` if the keeper is gone.
    fn reported(&mut self, report: Option<&Message>) {
        if report.is_none() && self.child.is_kept {
            say("lock-keeper, which keeps the command's processes, was killed: so are they");
        }
        if let Some(signal) = self.child.note(report) {
            self.stopped(signal);
        }
        let Some(report) = report else { return };
        match report.kind {
            Kind::Suspended => self.suspended(&report.text()),
            Kind::Killing => self.was_stopped_alone(),
            Kind::Left => {
                self.has_left = true;
                let what = match self.killed {
                    true => "the command was killed, what does not end keeps the lock",
                    false => "the command has ended, what it has started keeps the lock",
                };
                say(&format!("{what}: {}", report.text()));
            }
            _ => {}
        }
    }

    /// Returns whether SIGHUP has ended the command. A daemon may have taken the signal for a reload.
    fn has_died_of_hangup(&self) -> bool {
        let hangup = Signal::SIGHUP as i32;
        let endings = [Ending::Signal(hangup), Ending::Code(128 + hangup as u8)];
        let has_died = self.child.ending.is_some_and(|one| endings.contains(&one));
        has_died || self.terminal.is_gone()
    }

    fn end(&mut self) -> Ending {
        self.terminal.take_back(self.child.group);
        self.hear_the_rest();
        if self.was_stopped() {
            return Ending::Code(LOST);
        }
        if self.order.lock.state() == GuardState::Lost {
            let name = &self.order.name;
            say(&format!(
                "the lock {name} was lost before the command ended: another may have run meanwhile"
            ));
        }
        self.child.ending.unwrap_or(Ending::Code(1))
    }

    fn signalled(&mut self, signal: Signal) {
        match signal {
            Signal::SIGCHLD => {
                let listener = self.listener.as_ref().map(|listener| listener.process);
                // The command has sent SIGSTOP to its group, as editors do. The terminal stops no listener.
                if self.child.reap(listener).0 {
                    self.child.ask(Kind::Suspend);
                }
            }
            Signal::SIGUSR1 | Signal::SIGUSR2 => {
                self.child.tell(Kind::SignalHead, signal as i32, b"");
            }
            Signal::SIGTSTP => {
                self.child.tell(Kind::SignalGroup, signal as i32, b"");
                let has_ended = self.child.ending.is_some();
                self.passed_stop = !has_ended;
                if has_ended {
                    self.own_stop = Stop::Alone;
                    // The command cannot report that it has stopped.
                    self.child.ask(Kind::Suspend);
                }
            }
            // A stopped command continues with this process. A command that has not stopped may
            // have started a process that has, and wait for it, as vfork(2) does.
            Signal::SIGCONT => {
                if mem::take(&mut self.passed_stop) {
                    self.child.ask(Kind::Continue);
                }
            }
            _ => {
                self.last = Some((signal, self.child.signal(signal)));
                self.end_what_is_left(signal);
                self.by_signal |= signal != Signal::SIGHUP;
                log::info!("passed {signal} on to the command");
            }
        }
    }
}
