//! Runs a command while it holds a lock.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use zklock::{Client, SessionState};

use crate::acquire::{AcquireRequest, HeldLock, WaitLimit};
use crate::args::{Args, Run};
use crate::child::Variables;
use crate::exit::Ending;
use crate::failure::{Failure, UNAVAILABLE};
use crate::run_setup::{Stage, longest_connect};
use crate::sanitize::plain;
use crate::signals::{Signals, ends};
use crate::stderr::say;

/// How often to check whether the lock is still held.
const LOOK: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &Args, run: &Run) -> Result<Ending, Failure> {
    let started = Instant::now();
    let stage = Stage::set(args, &run.what, longest_connect(run.wait))?;
    let (client, signals) = (&stage.client, &stage.signals);
    if io::stderr().is_terminal() || log::log_enabled!(log::Level::Info) {
        tell_what_lies_below(client, &run.what.path);
    }
    let acquired = acquire(run, &stage, started)?;
    let signal = signals.ended_by();
    let (Some(lock), None) = (acquired, signal) else {
        let connected = client.state() == SessionState::Connected;
        drop(client.close());
        return match signal {
            Some(signal) => Ok(Ending::Signal(signal as i32)),
            None => not_acquired(run, connected).map(Ending::Code),
        };
    };
    let acquired_at = Instant::now();
    let variables = Variables {
        path: &run.what.path,
        node: &lock.node,
        token: lock.token.map(|token| token.to_string()),
        more: &[],
    };
    let ended = stage.run(&run.what, &lock.guard, variables)?;
    let signal = hold_on(run, &lock, acquired_at, signals);
    drop(lock);
    // The end of the session removes the node even if its deletion was lost on the way.
    drop(client.close());
    Ok(signal.map_or(ended.ending, |signal| Ending::Signal(signal as i32)))
}

/// Tells the user what a lock on a directory of locks means.
fn tell_what_lies_below(client: &Client, path: &str) {
    let below = client.strangers(path).unwrap_or_default();
    if !below.is_empty() {
        let (path, count) = (plain(path), below.len());
        say(&format!(
            "{path} has {count} nodes below it, which this does not lock: it locks {path} alone"
        ));
    }
}

fn acquire(run: &Run, stage: &Stage, started: Instant) -> Result<Option<HeldLock>, Failure> {
    let (client, signals) = (&stage.client, &stage.signals);
    let status_line = stage.status_line(&run.what);
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
        stage.settle();
    }
    Ok(Some(acquired.lock))
}

/// Keeps the lock as long as the user asked for, or until a signal comes, which it returns.
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

fn not_acquired(run: &Run, connected: bool) -> Result<u8, Failure> {
    if !connected {
        return Err(Failure::new(
            UNAVAILABLE,
            "no ZooKeeper server answers: check the host names and that the servers run",
        ));
    }
    log::info!("somebody else has the lock {}", run.what.path);
    Ok(run.conflict_exit_code)
}
