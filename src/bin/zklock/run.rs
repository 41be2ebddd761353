//! Runs a command while it holds a lock.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::time::{Duration, Instant};

use crossbeam_channel::{after, select};
use nix::sys::signal::Signal as Number;
use rustix::process::{Signal, getpgrp, kill_process_group};
use zklock::{GuardEvent, GuardState, SessionState};

use crate::acquire::{Lease, Patience, Wish};
use crate::args::{Args, OnLost, Run};
use crate::child::Child;
use crate::connect::connect;
use crate::doubt::{Doubt, Verdict};
use crate::failure::{Failure, LOST, UNAVAILABLE, say};
use crate::signals::{Signals, ends};
use crate::terminal::{Terminal, has_job_control};
use crate::waiting::Line;

/// How long a command is held back when somebody else held the lock a moment ago. If he
/// was evicted, or the server has ended his session, he hears of it when we do, or as soon
/// as he has connected again.
const SETTLE: Duration = Duration::from_millis(250);

/// How often the rest of a group is looked for when its head has ended.
const LINGER: Duration = Duration::from_millis(20);

/// How often a lock is looked at that nothing can be done for.
const LOOK: Duration = Duration::from_secs(1);

/// After this long somebody on a terminal wants to know what is going on.
const CURIOUS: Duration = Duration::from_secs(2);

pub(crate) fn run(args: &Args, run: &Run) -> Result<u8, Failure> {
    let started = Instant::now();
    let signals = Signals::take()
        .map_err(|error| Failure::other(format!("cannot listen to signals: {error}")))?;
    let terminal = Terminal::open();
    let note = run.note.clone().unwrap_or_else(|| name(run));
    let client = connect(args, Some(&note), longest_connect(run))?;
    let line = Line::new(&run.path, terminal.as_ref().is_none_or(Terminal::is_ours));
    signals.waiting();
    let wish = Wish {
        client: &client,
        run,
        patience: Patience::new(run, started),
        cancel: &signals.cancel,
        line: &line,
    };
    let acquired = wish.acquire();
    drop(line);
    let acquired = acquired?;
    if acquired.as_ref().is_some_and(|acquired| acquired.waited) {
        let _ = signals.cancel.recv_timeout(SETTLE);
    }
    let signal = signals.ended_by();
    signals.running();
    let (Some(acquired), None) = (acquired, signal) else {
        let away = client.state() != SessionState::Connected;
        drop(client.close());
        return match signal {
            Some(signal) => Ok(128 + signal as u8),
            None => not_got(run, away),
        };
    };
    let doubt = Doubt::new(client.session_timeout(), run.grace);
    let guard = &acquired.lease.guard;
    if !matches!(
        doubt.judge(guard.state(), guard.valid_for(), None),
        Verdict::Wait(_)
    ) {
        return Err(Failure::new(
            LOST,
            format!("the lock {} was lost before the command began", run.path),
        ));
    }
    let got = Instant::now();
    let (code, lease) = Watch::new(run, acquired.lease, doubt, terminal, &signals)?.watch();
    hold_on(run, &lease, got, &signals);
    drop(lease);
    // With the session goes the node, if its deletion was lost on the way.
    drop(client.close());
    Ok(code)
}

/// Keeps the lock until it was held for as long as the user wants, or a signal comes.
fn hold_on(run: &Run, lease: &Lease, got: Instant, signals: &Signals) {
    let Some(until) = run.hold_at_least.and_then(|least| got.checked_add(least)) else {
        return;
    };
    while lease.guard.is_held() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        match signals.taken.recv_timeout(left.min(LOOK)) {
            Ok(signal) if ends(signal) => return,
            _ => {}
        }
    }
}

/// Connecting takes no longer than the user is willing to wait for the lock, but long
/// enough for a server that is there.
fn longest_connect(run: &Run) -> Duration {
    let least = Duration::from_secs(1);
    run.wait.map_or(Duration::MAX, |wait| wait.max(least))
}

/// What others are told if the user has nothing to say: the arguments may be secret.
fn name(run: &Run) -> String {
    let program = run.command.first().map(Path::new);
    let name = program.and_then(Path::file_name);
    name.map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

fn not_got(run: &Run, away: bool) -> Result<u8, Failure> {
    if away {
        return Err(Failure::new(
            UNAVAILABLE,
            "no ZooKeeper server answers: check the host names and that the servers run",
        ));
    }
    log::info!("somebody else has the lock {}", run.path);
    Ok(run.conflict_exit_code)
}

/// Looks after a command and its lock.
struct Watch<'a> {
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
}

impl<'a> Watch<'a> {
    fn new(
        run: &'a Run,
        lease: Lease,
        doubt: Doubt,
        terminal: Option<Terminal>,
        signals: &'a Signals,
    ) -> Result<Self, Failure> {
        let mut variables = vec![
            ("ZKLOCK_PATH", run.path.clone()),
            ("ZKLOCK_NODE", lease.node.clone()),
        ];
        if let Some(token) = lease.token {
            variables.push(("ZKLOCK_TOKEN", token.to_string()));
        }
        let terminal_is_ours = terminal.as_ref().is_some_and(Terminal::is_all_ours);
        let child = Child::start(&run.command, &variables)
            .map_err(|error| Failure::other(format!("cannot start the command: {error}")))?;
        log::info!(
            "got {}, the command is process {}",
            lease.node,
            child.group()
        );
        let watch = Self {
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
        };
        if terminal_is_ours {
            watch.give_terminal();
        }
        Ok(watch)
    }

    /// Returns the exit status when nothing is left of the command, and the lock.
    fn watch(mut self) -> (u8, Lease) {
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
                    say(&format!("somebody asks for the lock {}, stopping the command", self.run.path));
                    self.child.signal(Signal::TERM);
                    self.child.signal(Signal::CONT);
                },
                recv(after(wait)) -> _ => {}
            }
        }
    }

    fn end(&self) -> u8 {
        if let Some(terminal) = &self.terminal {
            terminal.take_back(self.child.group());
        }
        if self.told.is_some() || self.killed {
            return LOST;
        }
        if !self.lease.guard.is_held() {
            say(&format!(
                "the lock {} was lost before the command ended: another may have run meanwhile",
                self.run.path
            ));
        }
        self.child.code()
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
        match self.doubt.judge(state, valid_for, told) {
            Verdict::Wait(wait) => return wait,
            _ if self.killed => {}
            Verdict::Tell => {
                say(&format!(
                    "the lock {} is in doubt, stopping the command",
                    self.run.path
                ));
                self.told = Some(Instant::now());
                self.child.signal(Signal::TERM);
                // A process that was stopped by its terminal hears nothing otherwise.
                self.child.signal(Signal::CONT);
                return Duration::ZERO;
            }
            Verdict::Kill => {
                self.child.signal(Signal::KILL);
                self.killed = true;
                let what = match state {
                    GuardState::Lost => "is lost",
                    _ => "is about to be lost",
                };
                say(&format!(
                    "the lock {} {what}, killed the command",
                    self.run.path
                ));
            }
        }
        LOOK
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
        if left.elapsed() < CURIOUS + LINGER && io::stderr().is_terminal() {
            say(&format!(
                "the command has ended, what it left in process group {} keeps the lock",
                self.child.group()
            ));
        }
        LINGER
    }

    fn signalled(&mut self, signal: Number) {
        let Some(number) = Signal::from_named_raw(signal as i32) else {
            return;
        };
        match signal {
            Number::SIGCHLD => {}
            Number::SIGUSR1 | Number::SIGUSR2 => self.child.signal_head(number),
            _ => {
                log::info!("passing {signal} on to the command");
                self.child.signal(number);
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
            self.child.signal(Signal::CONT);
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
        self.child.signal(Signal::CONT);
    }

    fn give_terminal(&self) {
        if let Some(terminal) = &self.terminal {
            terminal.give(self.child.group());
        }
    }
}
