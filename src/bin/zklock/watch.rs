//! Looks after a command and its lock.
//!
//! What stops the command comes before anything is said about it, and nothing in here waits
//! for anything but news: what is said goes through `stderr`, which never blocks.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, after, never, select};
use nix::sys::signal::Signal as Number;
use rustix::process::{Signal, getpgrp, kill_process_group};
use zklock::{GuardEvent, GuardState};

use crate::acquire::Lease;
use crate::args::{OnLost, Run};
use crate::child::{Child, Variables};
use crate::doubt::{Doubt, Verdict};
use crate::ending::Ending;
use crate::failure::{Failure, LOST};
use crate::listener::Listener;
use crate::signals::{Signals, ends};
use crate::stderr::say;
use crate::terminal::{Terminal, has_job_control};

/// How often the lock is looked at that nothing can be done for.
const LOOK: Duration = Duration::from_secs(1);

/// How often the rest of a group is looked for when its head has ended.
const LINGER: Duration = Duration::from_millis(20);

/// As above, for what has already stayed for a while.
const LINGER_ON: Duration = Duration::from_millis(200);

/// After this long somebody on a terminal wants to know what is going on.
const CURIOUS: Duration = Duration::from_secs(2);

/// Looks after a command and its lock.
pub(crate) struct Watch<'a> {
    run: &'a Run,
    lease: Lease,
    doubt: Doubt,
    child: Child,
    terminal: Option<Terminal>,
    signals: &'a Signals,
    /// When the command was told to stop because the lock was in doubt.
    told: Option<Instant>,
    killed: bool,
    /// What the user was warned of.
    warned: GuardState,
    /// When the command ended and left something behind.
    left: Option<Instant>,
    /// There since the command has had the terminal.
    listener: Option<Listener>,
    had_terminal: bool,
    said_rest: bool,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(
        run: &'a Run,
        lease: Lease,
        doubt: Doubt,
        terminal: Option<Terminal>,
        signals: &'a Signals,
    ) -> Result<Self, Failure> {
        let variables = Variables {
            path: &run.path,
            node: &lease.node,
            token: lease.token.map(|token| token.to_string()),
        };
        let child = Child::start(&run.command, &variables)
            .map_err(|error| Failure::other(format!("cannot start the command: {error}")))?;
        let mut watch = Self {
            run,
            lease,
            doubt,
            child,
            terminal,
            signals,
            told: None,
            killed: false,
            warned: GuardState::Held,
            left: None,
            listener: None,
            had_terminal: false,
            said_rest: false,
        };
        watch.begin()?;
        Ok(watch)
    }

    /// Lets the command begin, unless the lock was lost meanwhile: starting takes a while
    /// where the program is on a disk that is slow.
    fn begin(&mut self) -> Result<(), Failure> {
        if self.terminal.as_ref().is_some_and(Terminal::is_all_ours) {
            self.give_terminal();
        }
        let guard = &self.lease.guard;
        let verdict = self.doubt.judge(guard.state(), guard.valid_for(), None);
        if !matches!(verdict, Verdict::Wait(_)) {
            self.child.kill();
            self.take_terminal_back();
            let path = &self.run.path;
            let message = format!("the lock {path} was lost before the command began");
            return Err(Failure::new(LOST, message));
        }
        self.child.begin();
        log::info!(
            "got {}, the command is process {}",
            self.lease.node,
            self.child.group()
        );
        Ok(())
    }

    /// Returns how it ended when nothing is left of the command, and the lock.
    pub(crate) fn watch(mut self) -> (Ending, Lease) {
        let events = self.lease.guard.events().clone();
        loop {
            if let Some(signal) = self.child.look() {
                self.stopped(signal);
            }
            if self.child.is_gone() {
                return (self.end(), self.lease);
            }
            let wait = self.look_at_lock().min(self.look_at_rest());
            select! {
                recv(self.signals.taken) -> signal => if let Ok(signal) = signal {
                    self.signalled(signal);
                },
                recv(events) -> event => if event == Ok(GuardEvent::RevokeRequested) {
                    self.child.signal(Signal::TERM);
                    self.child.signal(Signal::CONT);
                    say(&format!(
                        "somebody asks for the lock {}, stopping the command",
                        self.run.path
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

    /// What the terminal told the command is for the others in the foreground, too.
    fn tell_foreground(&self, signal: Number) {
        if let Some(number) = Signal::from_named_raw(signal as i32) {
            self.signals.pass_over(signal);
            let _ = kill_process_group(getpgrp(), number);
        }
    }

    fn end(&mut self) -> Ending {
        self.take_terminal_back();
        self.hear_the_rest();
        if self.told.is_some() || self.killed {
            return Ending::Code(LOST);
        }
        if !self.lease.guard.is_held() {
            say(&format!(
                "the lock {} was lost before the command ended: another may have run meanwhile",
                self.run.path
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
                    // Nobody could listen, so the command's end has to tell.
                    self.tell_foreground(typed);
                }
            }
            return;
        };
        for signal in listener.end() {
            self.tell_foreground(signal);
        }
    }

    /// Stops the command if the lock demands it; returns when to look again.
    fn look_at_lock(&mut self) -> Duration {
        let guard = &self.lease.guard;
        let (state, valid_for) = (guard.state(), guard.valid_for());
        let told = self.told.map(|told| told.elapsed());
        if self.run.on_lost == OnLost::Warn {
            self.warn(state);
            return LOOK;
        }
        if self.killed {
            // Until nothing is left, whatever becomes of the lock.
            self.child.kill();
            return LINGER;
        }
        let path = &self.run.path;
        match self.doubt.judge(state, valid_for, told) {
            Verdict::Wait(wait) => return wait,
            Verdict::Tell => {
                self.child.signal(Signal::TERM);
                // A process that was stopped by its terminal hears nothing otherwise.
                self.child.signal(Signal::CONT);
                self.told = Some(Instant::now());
                say(&format!(
                    "the lock {path} is in doubt, stopping the command"
                ));
                return Duration::ZERO;
            }
            Verdict::Kill => self.child.kill(),
        }
        self.killed = true;
        let what = match state {
            GuardState::Lost => "is lost",
            _ => "is about to be lost",
        };
        say(&format!("the lock {path} {what}, killed the command"));
        LINGER
    }

    fn warn(&mut self, state: GuardState) {
        if self.warned == state {
            return;
        }
        self.warned = state;
        let what = match state {
            GuardState::Held => return,
            GuardState::Suspect => "is in doubt",
            GuardState::Lost => "is lost: another may run now",
        };
        say(&format!("the lock {} {what}", self.run.path));
    }

    /// Looks for what the command left in the background, which keeps the lock.
    fn look_at_rest(&mut self) -> Duration {
        if !self.child.has_ended() {
            return Duration::MAX;
        }
        let left = *self.left.get_or_insert_with(Instant::now);
        if left.elapsed() < CURIOUS {
            return LINGER;
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
        LINGER_ON
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
            self.child.signal(Signal::CONT);
        }
    }

    /// The command was stopped, so we stop, too, and the shell takes over.
    fn stopped(&mut self, signal: i32) {
        let Some(terminal) = &self.terminal else {
            return;
        };
        let wants_terminal = signal == Signal::TTIN.as_raw() || signal == Signal::TTOU.as_raw();
        // It may have been given while the command was about to stop for want of it.
        if wants_terminal && terminal.is_with(&[getpgrp(), self.child.group()]) {
            self.give_terminal();
            self.child.signal_group(Signal::CONT);
            return;
        }
        if signal == Signal::STOP.as_raw() {
            // That was meant for the command alone; its lock is kept for it.
            return;
        }
        if has_job_control() {
            // With us stops whoever waits for us, a script for example.
            let _ = kill_process_group(getpgrp(), Signal::STOP);
        }
        self.continued(wants_terminal);
    }

    /// Somebody continued us. What must not run any more is killed before it can.
    fn continued(&mut self, wants_terminal: bool) {
        self.look_at_lock();
        if let Some(terminal) = &self.terminal
            && (terminal.is_all_ours() || wants_terminal && terminal.is_ours())
        {
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
        if let Some(terminal) = &self.terminal {
            terminal.give(self.child.group());
        }
    }

    fn take_terminal_back(&self) {
        if let Some(terminal) = &self.terminal {
            terminal.take_back(self.child.group());
        }
    }
}
