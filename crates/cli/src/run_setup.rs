//! The setup of a command that runs under a lock: a client, the signals, the terminal.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use nix::sys::signal::Signal;
use zklock::{Client, SessionState};

use crate::args::{Args, Guarded, Run};
use crate::child::{Child, Variables};
use crate::connect::connect;
use crate::exit::Ending;
use crate::failure::{Failure, UNAVAILABLE, advised};
use crate::held::Held;
use crate::helper::wire::Kind;
use crate::sanitize::plain;
use crate::signals::Signals;
use crate::status_line::StatusLine;
use crate::stderr::say;
use crate::stop_policy::StopPolicy;
use crate::supervisor::{Ended, News, Order, Supervisor};
use crate::table::brief;
use crate::terminal::Terminal;

/// How long after the grant the command is held back if others held the lock a moment ago, and have
/// not all noted their release. A holder that was evicted, or whose session the server has ended,
/// learns of that at the same time, or as soon as it has reconnected.
const SETTLE: Duration = Duration::from_millis(250);

/// How often the connection is checked while it is missing, and how long the end of the session may
/// take before that is reported.
const LOOK: Duration = Duration::from_millis(50);
const SOON: Duration = Duration::from_secs(1);

/// How long to wait for servers after a signal, so that an election keeps no lock.
pub(crate) const AFTER_A_SIGNAL: Duration = Duration::from_secs(2);

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) client: Client,
    pub(crate) signals: Signals,
    /// Whether a hook is to run when the command is gone, before the lock can be lost.
    pub(crate) has_hook: bool,
    /// The session timeout that the user asked for, until it is compared with what was granted.
    asked: Cell<Option<Duration>>,
    terminal: Terminal,
    /// Whether a signal has told this program to end, and ended the command: its sender does not
    /// wait for long.
    pub(crate) hurries: Cell<bool>,
    /// The last command, which is gone. If this process is killed before the lock is free, or
    /// before the next command has a keeper of its own, the keeper of this command ends the
    /// session.
    gone: RefCell<Option<Child>>,
    /// Dropped when the session has ended: a line about servers that are silent is needless then.
    ends: RefCell<Option<Sender<Infallible>>>,
}

impl Stage {
    /// Connects; gives up after `limit`, or earlier if the user set a shorter limit.
    pub(crate) fn set(args: &Args, what: &Guarded, limit: Duration) -> Result<Self, Failure> {
        let signals = Signals::take().map_err(|error| {
            Failure::other(format!("cannot listen to signals: {}", advised(&error)))
        })?;
        let terminal = Terminal::open();
        let note = what.note.clone().unwrap_or_else(|| name(what));
        let client = connect(args, Some(&note), limit)?;
        Ok(Self {
            client,
            signals,
            has_hook: false,
            asked: Cell::new(args.session_timeout),
            terminal,
            hurries: Cell::default(),
            gone: RefCell::default(),
            ends: RefCell::default(),
        })
    }

    /// Returns the line that is shown during a wait.
    pub(crate) fn status_line(&self, name: &str) -> StatusLine {
        StatusLine::new(name, self.terminal.is_no_others(), &self.client)
    }

    /// Holds the command back after the lock was `granted`; returns whether no signal came.
    pub(crate) fn settle(&self, granted: Instant) -> bool {
        log::info!(
            "the command begins {SETTLE:?} after the grant: not all ahead of it have recorded their release"
        );
        let cancelled = self.signals.cancel.recv_deadline(granted + SETTLE);
        cancelled == Err(RecvTimeoutError::Timeout)
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.client.state() == SessionState::Connected
    }

    /// Waits for a connection, if there is none, as long as returning servers keep the session: the
    /// lock can be released as soon as they do. Returns whether there is a connection. A signal
    /// shortens the wait, and ends the program if the wait was in vain.
    pub(crate) fn await_servers(&self, path: &str) -> bool {
        let longest = match self.hurries.get() {
            true => AFTER_A_SIGNAL,
            false => self.client.session_timeout(),
        };
        // The network may have failed a moment ago, and the connection does not show it yet.
        self.tell_of_silence(path, longest);
        let is_away = || self.client.state() == SessionState::Connecting;
        if !is_away() {
            return true;
        }
        let (mut signalled, mut until) = (false, Instant::now() + longest);
        self.signals.waiting();
        while is_away() && Instant::now() < until {
            thread::sleep(LOOK);
            if !signalled && !self.signals.cancel.is_empty() {
                (signalled, until) = (true, until.min(Instant::now() + AFTER_A_SIGNAL));
            }
        }
        if is_away() {
            self.signals.end_if_signalled();
        }
        self.signals.running();
        !is_away()
    }

    /// Tells the user what the end waits for, unless the session has ended soon.
    fn tell_of_silence(&self, path: &str, longest: Duration) {
        let (ends, ended) = bounded(0);
        let (client, path, longest) = (self.client.clone(), plain(path), brief(longest));
        let tell = move || {
            if ended.recv_timeout(SOON) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            say(&match client.state() {
                SessionState::Connecting => {
                    format!("no server answers: waiting up to {longest} for one, to release {path}")
                }
                _ => format!("{path} is not released yet: waiting up to {longest} for the servers"),
            });
        };
        let thread = thread::Builder::new().name("zklock-silence".into());
        // Without a thread, nothing is reported.
        if thread.spawn(tell).is_ok() {
            self.ends.replace(Some(ends));
        }
    }

    /// Ends the session, and with it all nodes of this client, even if a deletion was lost on the
    /// way. Takes two seconds at most if that frees no lock, if the wait for servers was in vain,
    /// or after a signal. Returns whether a server has confirmed the end.
    pub(crate) fn end(&self, patiently: bool) -> bool {
        let limit = match patiently && !self.hurries.get() {
            true => self.client.session_timeout(),
            false => Duration::ZERO,
        };
        // The keeper ends meanwhile.
        let gone = self.gone.take();
        gone.inspect(|gone| gone.ask(Kind::Spare));
        let is_confirmed = self.client.close_within(limit).is_ok();
        self.ends.take();
        is_confirmed
    }

    pub(crate) fn policy(&self, what: &Guarded) -> StopPolicy {
        let timeout = self.client.session_timeout();
        match self.has_hook {
            true => StopPolicy::before_a_hook(timeout, what.grace),
            false => StopPolicy::new(timeout, what.grace),
        }
    }

    /// Ends without the lock that was to be acquired: by the signal, or with the status for a lock
    /// that is taken.
    pub(crate) fn end_without(
        &self,
        path: &str,
        signal: Option<Signal>,
        run: &Run,
    ) -> Result<Ending, Failure> {
        let answered = self.is_connected() & self.end(false);
        if let Some(signal) = signal {
            return Ok(Ending::Signal(signal as i32));
        }
        // A single try has just got its answer.
        if !run.tries_once() {
            check_answered(answered, path)?;
        }
        let taken = self.client.found_taken();
        let (path, hold) = taken.unwrap_or_else(|| (path.to_owned(), None));
        let path = plain(&path);
        match hold {
            Some(hold) => say(&format!("{path} is {}", plain(&hold.to_string()))),
            // A script learns it from the status, as from flock(1).
            None if io::stderr().is_terminal() => {
                say(&format!(
                    "{path} is taken: zklock list {path} tells by whom"
                ));
            }
            None => log::info!("somebody else has the lock {path}"),
        }
        Ok(Ending::Code(run.conflict_exit_code))
    }

    /// Runs the command while the lock is held.
    pub(crate) fn run(
        &self,
        what: &Guarded,
        lock: &dyn Held,
        variables: &Variables<'_>,
        told: &dyn Fn(News),
    ) -> Result<Ended, Failure> {
        self.signals.running();
        let timeout = self.client.session_timeout();
        let policy = self.policy(what);
        if let Some(asked) = self.asked.take().filter(|asked| timeout < *asked) {
            say(&format!(
                "the servers grant a session of {timeout:?}, and {asked:?} were asked for: ask for that, or raise their maxSessionTimeout"
            ));
        }
        if let Some(complaint) = policy.complaint() {
            say(&format!(
                "{complaint}: give a longer --session-timeout or a shorter --grace"
            ));
        }
        let order = Order {
            what,
            lock,
            name: variables.path.replace('\n', ", "),
            policy,
            told,
        };
        let child = self
            .start(&what.command, variables)
            .map_err(|error| Failure::not_started("the command", &error))?;
        let (ended, gone) = Supervisor::new(order, child, &self.terminal, &self.signals).run()?;
        self.keep(gone);
        self.hurries.set(self.hurries.get() || ended.by_signal);
        Ok(ended)
    }

    /// Starts a command, which waits to begin.
    pub(crate) fn start(
        &self,
        command: &[OsString],
        variables: &Variables<'_>,
    ) -> io::Result<Child> {
        let (key, before) = (self.client.session_key(), self.gone.borrow());
        let unblocked = &self.signals.unblocked;
        Child::start(
            command,
            variables,
            unblocked,
            key.as_deref(),
            before.as_ref(),
        )
    }

    /// Keeps a command that is gone, together with its keeper.
    pub(crate) fn keep(&self, gone: Child) {
        self.gone.replace(Some(gone));
    }

    /// Dismisses the keeper; the session goes on without one from now on.
    pub(crate) fn dismiss_keeper(&self) {
        drop(self.gone.take());
    }
}

/// Fails if no server answers at the end of a wait: an earlier answer need not be true any more.
pub(crate) fn check_answered(answered: bool, path: &str) -> Result<(), Failure> {
    if answered {
        return Ok(());
    }
    let path = plain(path);
    let message = format!("no server answers any more: whether {path} is taken is not known");
    Err(Failure::new(UNAVAILABLE, message))
}

/// Returns what to say if this client may not delete its node in a directory.
pub(crate) fn without_right(dir: &str) -> String {
    let dir = plain(dir);
    format!(
        "what this client leaves in {dir} stays until its session ends, and keeps the others waiting until then: the access control list of {dir} does not give it the right DELETE"
    )
}

/// Returns how long to connect: no longer than the wait for the lock may take, but long
/// enough for a server that is up.
pub(crate) fn longest_connect(wait: Option<Duration>) -> Duration {
    let least = Duration::from_secs(1);
    wait.map_or(Duration::MAX, |wait| wait.max(least))
}

/// Returns the default note, without the command's arguments: they may be secret.
fn name(what: &Guarded) -> String {
    let program = what.command.first().map(Path::new);
    let name = program.and_then(Path::file_name);
    name.map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}
