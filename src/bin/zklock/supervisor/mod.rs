//! Supervises a command and its lock.
//!
//! The command is stopped before anything is said about it, and messages go through `stderr`,
//! which never blocks: only the loop of [`Supervisor::run`] waits.

mod attended;
mod job_control;
mod lock_watch;
mod time_limit;

use std::mem;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{after, select};
use nix::sys::signal::Signal as Number;
use rustix::process::Signal;
use zklock::{GuardEvent, GuardState};

use self::attended::Attended;
pub(crate) use self::attended::is_attended;
use self::time_limit::TimeLimit;
use crate::args::Guarded;
use crate::child::{Child, Report, Variables};
use crate::exit::Ending;
use crate::failure::{Failure, LOST};
use crate::held::Held;
use crate::signals::{Signals, ends};
use crate::stderr::say;
use crate::stop_policy::{StopAction, StopPolicy};
use crate::terminal::Terminal;
use crate::terminal_listener::TerminalListener;

/// How often the lock is checked if its loss does not stop the command.
const LOOK: Duration = Duration::from_secs(1);

/// How often to look for what a killed keeper has left.
const REST_POLL: Duration = Duration::from_millis(20);

/// A command to be run while its lock is held.
pub(crate) struct Order<'a> {
    pub(crate) what: &'a Guarded,
    pub(crate) lock: &'a dyn Held,
    pub(crate) variables: &'a Variables<'a>,
    /// What is needed to end the lock's session.
    pub(crate) key: Option<String>,
    pub(crate) told: &'a dyn Fn(News),
}

/// What others may want to hear while a command runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum News {
    /// The lock's state has changed.
    Is(GuardState),
    /// The command is asked to end, or killed, because of its lock; or the lock is lost.
    Stops,
}

/// How a command ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) ending: Ending,
    /// It was stopped because of its lock, or because another client asked for that.
    pub(crate) by_lock: bool,
    /// The lock was lost, or the command was stopped because it was in doubt.
    pub(crate) lost: bool,
    /// It was stopped because it ran for too long.
    pub(crate) over_time: bool,
    /// A signal that ends programs was passed on to it; SIGHUP, and it ended by that.
    pub(crate) by_signal: bool,
    /// A signal that ends programs came too late for it.
    pub(crate) late: Option<Number>,
}

impl Ended {
    /// Whether the command did what it was to do, under its lock.
    pub(crate) fn is_success(&self) -> bool {
        self.ending == Ending::Code(0) && !self.lost
    }
}

/// See the module's documentation.
pub(crate) struct Supervisor<'a> {
    what: &'a Guarded,
    /// The lock, for messages.
    name: String,
    lock: &'a dyn Held,
    told: &'a dyn Fn(News),
    /// The last state that was told.
    state: GuardState,
    attended: Attended,
    policy: StopPolicy,
    child: Child,
    terminal: Option<&'a Terminal>,
    signals: &'a Signals,
    /// When SIGTERM was sent because the lock was suspect.
    term_sent: Option<Instant>,
    killed: bool,
    /// How long it may run, and what was done about it.
    limit: TimeLimit,
    by_lock: bool,
    /// A signal other than SIGHUP that ends programs was passed on to it.
    by_signal: bool,
    /// The last signal that ends programs, and its number in `child`.
    last: Option<(Number, i32)>,
    /// The last state that the user was warned of.
    warned: GuardState,
    /// Present once the command has the terminal.
    listener: Option<TerminalListener>,
    had_terminal: bool,
    stop: Stop,
    /// SIGTSTP was passed on to it.
    passed_stop: bool,
}

/// Why the command has stopped.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stop {
    OfItself,
    /// It wants the terminal.
    ForTheTerminal,
    /// This process got SIGTSTP, as its group did if it was typed.
    Asked,
}

impl<'a> Supervisor<'a> {
    pub(crate) fn new(
        order: Order<'a>,
        policy: StopPolicy,
        terminal: Option<&'a Terminal>,
        signals: &'a Signals,
    ) -> Result<Self, Failure> {
        let Order {
            what,
            lock,
            variables,
            key,
            told,
        } = order;
        let child = start(what, variables, signals, key.as_deref())?;
        let mut supervisor = Self {
            what,
            name: variables.path.replace('\n', ", "),
            lock,
            told,
            state: GuardState::Held,
            attended: Attended,
            policy,
            child,
            terminal,
            signals,
            term_sent: None,
            killed: false,
            limit: TimeLimit::new(what.max_time),
            by_lock: false,
            by_signal: false,
            last: None,
            warned: GuardState::Held,
            listener: None,
            had_terminal: false,
            stop: Stop::OfItself,
            passed_stop: false,
        };
        supervisor.begin()?;
        Ok(supervisor)
    }

    /// Lets the command begin, unless the lock was lost or a signal came meanwhile: on a slow
    /// disk, starting a program takes a while.
    fn begin(&mut self) -> Result<(), Failure> {
        if self.terminal.is_some_and(Terminal::is_all_ours) {
            self.give_terminal();
        }
        let lock = self.lock;
        let action = self.policy.decide(lock.state(), lock.valid_for(), None);
        if !matches!(action, StopAction::Wait(_)) {
            self.child.kill();
            self.take_terminal_back();
            let path = &self.name;
            let why = lock.lost_reason().map(|why| format!(", because {why}"));
            let why = why.unwrap_or_default();
            let message = format!("the lock {path} was lost before the command began{why}");
            return Err(Failure::new(LOST, message));
        }
        // The helper that becomes the command dies of a signal that ends programs. The command
        // itself might handle or ignore it.
        let early: Vec<_> = self.signals.taken.try_iter().collect();
        for signal in early.iter().filter(|signal| ends(**signal)) {
            self.signalled(*signal);
        }
        self.child.begin();
        // Continuing a process cancels its stop. SIGUSR1 and SIGUSR2 would end the helper.
        for signal in early {
            if [Number::SIGTSTP, Number::SIGCONT].contains(&signal) {
                self.signalled(signal);
            }
        }
        log::info!(
            "got {}, the command is process {}",
            self.name,
            self.child.group()
        );
        Ok(())
    }

    /// Waits until no process of the command is left; returns what is left to be reaped, too.
    pub(crate) fn run(mut self) -> (Ended, Child) {
        let events = self.lock.events().clone();
        let reports = self.child.reports.clone();
        while !self.child.is_gone() {
            let wait = self.look_at_time();
            let wait = self.look_at_lock().min(wait);
            if !self.child.is_kept() {
                self.child.note(None);
                thread::sleep(REST_POLL.min(wait));
                continue;
            }
            select! {
                recv(reports) -> report => self.reported(report.ok().as_ref()),
                recv(self.signals.taken) -> signal => if let Ok(signal) = signal {
                    self.signalled(signal);
                },
                recv(events) -> event => if event == Ok(GuardEvent::RevokeRequested) {
                    self.revoked();
                },
                recv(self.heard()) -> signal => match signal {
                    Ok(signal) => self.tell_foreground(signal),
                    Err(_) => self.listener = None,
                },
                recv(after(wait)) -> _ => {}
            }
        }
        let ending = self.end();
        let ended = Ended {
            ending,
            by_lock: self.by_lock || self.was_stopped(),
            lost: self.is_lost(),
            over_time: self.limit.is_over(),
            by_signal: self.last.is_some() && (self.by_signal || self.has_died_of_hangup()),
            late: self
                .last
                .filter(|last| !self.child.has_sent(last.1))
                .map(|last| last.0),
        };
        (ended, self.child)
    }

    fn was_stopped(&self) -> bool {
        self.term_sent.is_some() || self.killed || self.limit.is_over()
    }

    fn is_lost(&self) -> bool {
        self.term_sent.is_some() || self.killed || self.lock.state() == GuardState::Lost
    }

    /// Handles what the keeper says; nothing if it is gone.
    fn reported(&mut self, report: Option<&Report>) {
        match report {
            Some(Report::Stopped(signal)) => self.stopped(*signal),
            Some(Report::Suspended(failure)) => self.suspended(failure),
            Some(Report::Left(rest)) => {
                let what = match self.killed {
                    true => "the command was killed, what does not end keeps the lock",
                    false => "the command has ended, what it has started keeps the lock",
                };
                say(&format!("{what}: {rest}"));
            }
            Some(Report::Other(..)) => {}
            None => {
                say("lock-keeper, which keeps the command's processes, was killed: so are they")
            }
        }
        self.child.note(report);
    }

    /// Whether SIGHUP has ended the command. A daemon may have taken it for a reload.
    fn has_died_of_hangup(&self) -> bool {
        let hangup = Signal::HUP.as_raw();
        let codes = [Ending::Signal(hangup), Ending::Code(128 + hangup as u8)];
        codes.contains(&self.child.ending()) || self.terminal.is_some_and(Terminal::is_gone)
    }

    fn end(&mut self) -> Ending {
        self.take_terminal_back();
        self.hear_the_rest();
        if self.was_stopped() {
            return Ending::Code(LOST);
        }
        if self.lock.state() == GuardState::Lost {
            say(&format!(
                "the lock {} was lost before the command ended: another may have run meanwhile",
                self.name
            ));
        }
        self.child.ending()
    }

    fn signalled(&mut self, signal: Number) {
        let Some(number) = Signal::from_named_raw(signal as i32) else {
            return;
        };
        match signal {
            Number::SIGCHLD => {
                self.child.reap();
                self.group_stopped();
            }
            Number::SIGUSR1 | Number::SIGUSR2 => self.child.signal_head(number),
            Number::SIGTSTP => {
                self.passed_stop = true;
                self.child.signal_group(number);
            }
            // A command that has stopped continues with this process. One that has not may have
            // started something that has, and wait for it, as vfork(2) does.
            Number::SIGCONT => {
                if mem::take(&mut self.passed_stop) {
                    self.child.signal_group(number);
                }
            }
            _ => {
                self.last = Some((signal, self.child.signal(number)));
                self.by_signal |= signal != Number::SIGHUP;
                // A process that was stopped does not get it before it continues.
                self.child.signal(Signal::CONT);
                log::info!("passed {signal} on to the command");
            }
        }
    }
}

fn start(
    what: &Guarded,
    variables: &Variables<'_>,
    signals: &Signals,
    key: Option<&str>,
) -> Result<Child, Failure> {
    let child = Child::start(&what.command, variables, &signals.unblocked, key);
    child.map_err(|error| Failure::other(format!("cannot start the command: {error}")))
}
