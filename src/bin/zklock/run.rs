//! Runs a command while it holds a lock.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use zklock::{Client, SessionState};

use crate::acquire::{AcquireRequest, HeldLock, WaitLimit};
use crate::args::{Args, Run};
use crate::connect::connect;
use crate::ending::Ending;
use crate::failure::{Failure, UNAVAILABLE};
use crate::plain::plain;
use crate::signals::{Signals, ends};
use crate::status_line::StatusLine;
use crate::stderr::say;
use crate::stop_policy::StopPolicy;
use crate::supervisor::Supervisor;
use crate::terminal::Terminal;

/// How long the command is held back if another client held the lock a moment ago. A holder
/// that was evicted, or whose session the server has ended, hears of it at the same time, or
/// as soon as it has connected again.
const SETTLE: Duration = Duration::from_millis(250);

/// How often to look whether the lock is still held.
const LOOK: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &Args, run: &Run) -> Result<Ending, Failure> {
    let started = Instant::now();
    let signals = Signals::take()
        .map_err(|error| Failure::other(format!("cannot listen to signals: {error}")))?;
    let terminal = Terminal::open();
    let note = run.note.clone().unwrap_or_else(|| name(run));
    let client = connect(args, Some(&note), longest_connect(run))?;
    if io::stderr().is_terminal() || log::log_enabled!(log::Level::Info) {
        tell_what_lies_below(&client, &run.path);
    }
    let foreground = terminal.as_ref().is_none_or(Terminal::is_ours);
    let acquired = acquire(run, &client, &signals, foreground, started)?;
    let signal = signals.ended_by();
    let (Some(lock), None) = (acquired, signal) else {
        let connected = client.state() == SessionState::Connected;
        drop(client.close());
        return match signal {
            Some(signal) => Ok(Ending::Signal(signal as i32)),
            None => not_acquired(run, connected).map(Ending::Code),
        };
    };
    signals.running();
    let policy = StopPolicy::new(client.session_timeout(), run.grace);
    let acquired_at = Instant::now();
    let (ending, lock) = Supervisor::new(run, lock, policy, terminal, &signals)?.run();
    let signal = hold_on(run, &lock, acquired_at, &signals);
    drop(lock);
    // The end of the session removes the node even if its deletion was lost on the way.
    drop(client.close());
    Ok(signal.map_or(ending, |signal| Ending::Signal(signal as i32)))
}

/// Says what a lock on a directory of locks means, to who looks on.
fn tell_what_lies_below(client: &Client, path: &str) {
    let below = client.strangers(path).unwrap_or_default();
    if !below.is_empty() {
        let (path, count) = (plain(path), below.len());
        say(&format!(
            "{path} has {count} nodes below it, which this does not lock: it locks {path} alone"
        ));
    }
}

fn acquire(
    run: &Run,
    client: &Client,
    signals: &Signals,
    foreground: bool,
    started: Instant,
) -> Result<Option<HeldLock>, Failure> {
    let status_line = StatusLine::new(&run.path, foreground, client);
    signals.waiting();
    let request = AcquireRequest {
        client,
        run,
        limit: WaitLimit::new(run, started),
        cancel: &signals.cancel,
        status_line: &status_line,
    };
    let acquired = request.acquire();
    drop(status_line);
    let Some(acquired) = acquired? else {
        return Ok(None);
    };
    if acquired.waited {
        let _ = signals.cancel.recv_timeout(SETTLE);
    }
    Ok(Some(acquired.lock))
}

/// Keeps the lock for as long as the user wants, or until a signal comes, which it returns.
fn hold_on(run: &Run, lock: &HeldLock, acquired_at: Instant, signals: &Signals) -> Option<Signal> {
    let until = acquired_at.checked_add(run.hold_at_least?);
    while lock.guard.is_held() {
        let left = until.map_or(LOOK, |until| {
            until.saturating_duration_since(Instant::now())
        });
        if left.is_zero() {
            break;
        }
        match signals.taken.recv_timeout(left.min(LOOK)) {
            Ok(signal) if ends(signal) => return Some(signal),
            _ => {}
        }
    }
    None
}

/// Returns how long to connect: no longer than the wait for the lock may take, but long
/// enough for a server that is there.
fn longest_connect(run: &Run) -> Duration {
    let least = Duration::from_secs(1);
    run.wait.map_or(Duration::MAX, |wait| wait.max(least))
}

/// Returns the default note, without the arguments of the command: they may be secret.
fn name(run: &Run) -> String {
    let program = run.command.first().map(Path::new);
    let name = program.and_then(Path::file_name);
    name.map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

fn not_acquired(run: &Run, connected: bool) -> Result<u8, Failure> {
    if !connected {
        return Err(Failure::new(
            UNAVAILABLE,
            "no ZooKeeper server answers: check the host names and that the servers run",
        ));
    }
    log::info!("somebody else has the lock {}", run.path);
    Ok(run.conflict_exit_code)
}
