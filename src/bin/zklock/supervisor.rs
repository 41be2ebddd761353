//! Supervises a command and its lock.
//!
//! The command is stopped before anything is said about it, and messages go through `stderr`,
//! which never blocks: only the loop of [`Supervisor::run`] waits.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, after, never, select};
use nix::sys::signal::Signal as Number;
use rustix::process::{Signal, getpgrp, kill_process_group};
use zklock::{GuardEvent, GuardState};

use crate::args::{Guarded, OnLost};
use crate::child::{Child, Variables};
use crate::exit::Ending;
use crate::failure::{Failure, LOST};
use crate::held::Held;
use crate::signals::{Signals, ends};
use crate::stderr::say;
use crate::stop_policy::{StopAction, StopPolicy};
use crate::terminal::{Terminal, has_job_control};
use crate::terminal_listener::TerminalListener;

/// How often the lock is checked if its loss does not stop the command.
const LOOK: Duration = Duration::from_secs(1);

/// How often to look for processes that the command has left behind.
const REST_POLL: Duration = Duration::from_millis(20);

/// As above, after [`QUIET`].
const SLOW_REST_POLL: Duration = Duration::from_millis(200);

/// How long processes may be left behind before the user is told.
const QUIET: Duration = Duration::from_secs(2);

/// A command to be run while its lock is held.
pub(crate) struct Order<'a> {
    pub(crate) what: &'a Guarded,
    pub(crate) lock: &'a dyn Held,
    pub(crate) variables: Variables<'a>,
    /// What is needed to end the lock's session.
    pub(crate) key: Option<String>,
}

/// How a command ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) ending: Ending,
    /// It was stopped because of its lock, or because another client asked for that.
    pub(crate) by_lock: bool,
    /// A signal that ends programs was passed on to it.
    pub(crate) by_signal: bool,
}

/// See the module's documentation.
pub(crate) struct Supervisor<'a> {
    what: &'a Guarded,
    lock: &'a dyn Held,
    policy: StopPolicy,
    child: Child,
    terminal: Option<&'a Terminal>,
    signals: &'a Signals,
    /// When SIGTERM was sent because the lock was suspect.
    term_sent: Option<Instant>,
    killed: bool,
    by_lock: bool,
    by_signal: bool,
    /// The last state that the user was warned of.
    warned: GuardState,
    /// When the command ended and left processes behind.
    left: Option<Instant>,
    /// Present once the command has the terminal.
    listener: Option<TerminalListener>,
    had_terminal: bool,
    said_rest: bool,
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
        } = order;
        let child = Child::start(&what.command, &variables, key.as_deref())
            .map_err(|error| Failure::other(format!("cannot start the command: {error}")))?;
        let mut supervisor = Self {
            what,
            lock,
            policy,
            child,
            terminal,
            signals,
            term_sent: None,
            killed: false,
            by_lock: false,
            by_signal: false,
            warned: GuardState::Held,
            left: None,
            listener: None,
            had_terminal: false,
            said_rest: false,
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
            let path = &self.what.path;
            let message = format!("the lock {path} was lost before the command began");
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
        if early.contains(&Number::SIGTSTP) {
            self.signalled(Number::SIGTSTP);
        }
        log::info!(
            "got {}, the command is process {}",
            self.what.path,
            self.child.group()
        );
        Ok(())
    }

    /// Waits until no process of the command is left.
    pub(crate) fn run(mut self) -> Ended {
        let events = self.lock.events().clone();
        loop {
            if let Some(signal) = self.child.look() {
                self.stopped(signal);
            }
            if self.child.is_gone() {
                return Ended {
                    ending: self.end(),
                    by_lock: self.by_lock || self.term_sent.is_some() || self.killed,
                    by_signal: self.by_signal,
                };
            }
            let wait = self.look_at_lock().min(self.look_at_rest());
            select! {
                recv(self.signals.taken) -> signal => if let Ok(signal) = signal {
                    self.signalled(signal);
                },
                recv(events) -> event => if event == Ok(GuardEvent::RevokeRequested) {
                    self.by_lock = true;
                    self.child.signal(Signal::TERM);
                    self.child.signal(Signal::CONT);
                    say(&format!(
                        "somebody asks for the lock {}, stopping the command",
                        self.what.path
                    ));
                },
                recv(self.heard()) -> signal => match signal {
                    Ok(signal) => self.tell_foreground(signal),
                    Err(_) => self.listener = None,
                },
                recv(after(wait)) -> _ => {}
            }
        }
    }

    fn heard(&self) -> Receiver<Number> {
        let heard = self
            .listener
            .as_ref()
            .map(|listener| listener.heard.clone());
        heard.unwrap_or_else(never)
    }

    /// Also sends a signal of the terminal to this process's own group.
    fn tell_foreground(&self, signal: Number) {
        if let Some(number) = Signal::from_named_raw(signal as i32) {
            self.signals.pass_over(signal);
            let _ = kill_process_group(getpgrp(), number);
        }
    }

    fn end(&mut self) -> Ending {
        self.take_terminal_back();
        self.hear_the_rest();
        if self.term_sent.is_some() || self.killed {
            return Ending::Code(LOST);
        }
        if self.lock.state() == GuardState::Lost {
            say(&format!(
                "the lock {} was lost before the command ended: another may have run meanwhile",
                self.what.path
            ));
        }
        self.child.ending()
    }

    fn hear_the_rest(&mut self) {
        let Some(mut listener) = self.listener.take() else {
            let Ending::Signal(signal) = self.child.ending() else {
                return;
            };
            for typed in [Number::SIGINT, Number::SIGQUIT] {
                if self.had_terminal && signal == typed as i32 {
                    // Without a listener, the signal can be seen in how the command ended.
                    self.tell_foreground(typed);
                }
            }
            return;
        };
        for signal in listener.end() {
            self.tell_foreground(signal);
        }
    }

    /// Stops the command if the lock is about to be lost; returns when to look again.
    fn look_at_lock(&mut self) -> Duration {
        let (state, valid_for) = (self.lock.state(), self.lock.valid_for());
        let term_sent = self.term_sent.map(|term_sent| term_sent.elapsed());
        if self.what.on_lost == OnLost::Warn {
            self.warn(state);
            return LOOK;
        }
        if self.killed {
            // Repeated until no process is left, whatever happens to the lock.
            self.child.kill();
            return REST_POLL;
        }
        let path = &self.what.path;
        match self.policy.decide(state, valid_for, term_sent) {
            StopAction::Wait(wait) => return wait,
            StopAction::Terminate => {
                self.child.signal(Signal::TERM);
                // A process that was stopped does not get SIGTERM before it continues.
                self.child.signal(Signal::CONT);
                self.term_sent = Some(Instant::now());
                say(&format!(
                    "the lock {path} is in doubt, no server confirms it: stopping the command"
                ));
                return Duration::ZERO;
            }
            StopAction::Kill => self.child.kill(),
        }
        self.killed = true;
        let what = match state {
            GuardState::Lost => "is lost",
            _ => "is about to be lost",
        };
        let why = self.lock.lost_reason().map(|why| format!(" because {why}"));
        let why = why.unwrap_or_default();
        say(&format!("the lock {path} {what}{why}: killed the command"));
        REST_POLL
    }

    fn warn(&mut self, state: GuardState) {
        if self.warned == state {
            return;
        }
        self.warned = state;
        let what = match state {
            GuardState::Held => return,
            GuardState::Suspect => "is in doubt: no server confirms it",
            GuardState::Lost => "is lost: another may run now",
        };
        say(&format!("the lock {} {what}", self.what.path));
    }

    /// Looks for processes that the command has left behind, which keep the lock.
    fn look_at_rest(&mut self) -> Duration {
        if !self.child.has_ended() {
            return Duration::MAX;
        }
        let left = *self.left.get_or_insert_with(Instant::now);
        if left.elapsed() < QUIET {
            return REST_POLL;
        }
        if !self.said_rest {
            self.said_rest = true;
            let message = format!(
                "the command has ended, what it has started keeps the lock: {}",
                self.child.rest()
            );
            match io::stderr().is_terminal() {
                true => say(&message),
                false => log::info!("{message}"),
            }
        }
        SLOW_REST_POLL
    }

    fn signalled(&mut self, signal: Number) {
        let Some(number) = Signal::from_named_raw(signal as i32) else {
            return;
        };
        match signal {
            Number::SIGCHLD => {}
            Number::SIGUSR1 | Number::SIGUSR2 => self.child.signal_head(number),
            Number::SIGTSTP => self.child.signal_group(number),
            _ => {
                self.child.signal(number);
                log::info!("passed {signal} on to the command");
            }
        }
        if ends(signal) {
            self.by_signal = true;
            self.child.signal(Signal::CONT);
        }
    }

    /// Handles a stopped command: stops this process too, so that the shell takes over.
    fn stopped(&mut self, signal: i32) {
        let Some(terminal) = self.terminal else {
            return;
        };
        let wants_terminal = signal == Signal::TTIN.as_raw() || signal == Signal::TTOU.as_raw();
        // The command may have got the terminal while it was being stopped for it.
        if wants_terminal && terminal.is_with(&[getpgrp(), self.child.group()]) {
            self.give_terminal();
            self.child.signal_group(Signal::CONT);
            return;
        }
        if signal == Signal::STOP.as_raw() {
            // SIGSTOP was sent only to the command; its lock is kept.
            return;
        }
        if has_job_control() {
            // The group includes a script that waits for this process.
            let _ = kill_process_group(getpgrp(), Signal::STOP);
        }
        self.continued(wants_terminal);
    }

    /// Handles the continuation of this process: continues the command, unless its lock is lost.
    fn continued(&mut self, wants_terminal: bool) {
        self.look_at_lock();
        let gives =
            |terminal: &Terminal| terminal.is_all_ours() || wants_terminal && terminal.is_ours();
        if self.terminal.is_some_and(gives) {
            self.give_terminal();
        }
        self.child.signal_group(Signal::CONT);
    }

    fn give_terminal(&mut self) {
        if self.listener.is_none() {
            self.listener = self
                .child
                .listen()
                .inspect_err(|error| log::info!("cannot listen to the terminal: {error}"))
                .ok();
        }
        self.had_terminal = true;
        if let Some(terminal) = self.terminal {
            terminal.give(self.child.group());
        }
    }

    fn take_terminal_back(&self) {
        if let Some(terminal) = self.terminal {
            terminal.take_back(self.child.group());
        }
    }
}
