//! Runs a command while it holds a lock.

use std::convert::Infallible;
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, bounded};
use nix::sys::signal::Signal;
use zklock::{Client, GuardState, LockGuard};

use crate::acquire::{AcquireRequest, Acquired};
use crate::args::{Args, Run};
use crate::child::{PERMIT, Variables};
use crate::exit::Ending;
use crate::failure::Failure;
use crate::held_lock::HeldLock;
use crate::metrics::Metrics;
use crate::run_setup::{Stage, longest_connect, without_right};
use crate::sanitize::plain;
use crate::signals::{Signals, ends};
use crate::stderr::say;
use crate::wait_limit::WaitLimit;
use crate::wanted::Wanted;

/// How long an optional look may take.
const GLANCE: Duration = Duration::from_secs(1);

/// How often to check whether the lock is still held.
const LOOK: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &Args, run: &Run) -> Result<Ending, Failure> {
    let wanted = Wanted::by(run)?;
    Metrics::of(&run.what, &wanted.name(), |metrics| {
        run_under(args, run, &wanted, metrics)
    })
}

fn run_under(
    args: &Args,
    run: &Run,
    wanted: &Wanted,
    metrics: &Metrics,
) -> Result<Ending, Failure> {
    let started = Instant::now();
    let stage = Stage::set(args, &run.what, longest_connect(run.wait))?;
    let is_told = io::stderr().is_terminal() || log::log_enabled!(log::Level::Info);
    let limit = WaitLimit::new(run, started);
    let until = limit.soon(GLANCE);
    let glance = is_told.then(|| Glance::at(wanted, &stage.client, until));
    metrics.waits();
    let acquired = acquire(run, wanted, &stage, limit)?;
    drop(glance);
    let signal = stage.signals.ended_by();
    let (Some(lock), None) = (acquired, signal) else {
        return stage.end_without(&wanted.name(), signal, run);
    };
    let acquired_at = Instant::now();
    let permit = lock.permit.map(|number| number.to_string());
    let permit = permit.map(|number| (PERMIT, number.into()));
    let variables = Variables {
        path: &wanted.lines(),
        node: &lock.node,
        token: lock.token.map(|token| token.to_string()),
        more: permit.as_slice(),
    };
    let mut signal = None;
    let ended = metrics.term(|| {
        let ended = stage.run(&run.what, &lock.guard, &variables, &|_| ())?;
        signal = hold_on(run, &lock, acquired_at, &stage);
        Ok(ended)
    })?;
    let late = release(&stage, lock, &wanted.name());
    if ended.is_success() {
        metrics.has_succeeded();
    }
    Ok(signal.or(late).map_or(ended.ending, by_signal))
}

fn by_signal(signal: Signal) -> Ending {
    Ending::Signal(signal as i32)
}

/// Releases the lock and ends the session; returns the signal that came meanwhile, if one did.
fn release(stage: &Stage, lock: HeldLock, path: &str) -> Option<Signal> {
    let is_served = stage.await_servers(path);
    stage.signals.waiting();
    lock.guard.unlock_noting();
    // The deletion of the node leaves ahead of the end of the session, so the waiters know that nothing was lost.
    drop(lock);
    stage.end(is_served);
    stage.signals.ended_by()
}

/// Tells the user what a lock on a directory of locks means, while the lock is requested. The
/// command does not begin before that is reported, or this time has come.
struct Glance {
    /// The permission to report: the thread reports nothing once this is dropped.
    _asks: Arc<()>,
    told: Receiver<Infallible>,
    until: Instant,
}

impl Glance {
    fn at(wanted: &Wanted, client: &Client, until: Instant) -> Self {
        let (asks, (telling, told)) = (Arc::new(()), bounded::<Infallible>(0));
        let (is_asked, client) = (Arc::downgrade(&asks), client.clone());
        let paths: Vec<_> = wanted.paths().map(str::to_owned).collect();
        let look = move || {
            let _telling = telling;
            for path in paths {
                let below = client.strangers(&path).unwrap_or_default();
                if is_asked.strong_count() == 0 {
                    return;
                }
                if !below.is_empty() {
                    tell_what_lies_below(&path, below.len());
                }
            }
        };
        // Without a thread, nothing is reported.
        let _ = thread::Builder::new()
            .name("zklock-glance".into())
            .spawn(look);
        Self {
            _asks: asks,
            told,
            until,
        }
    }
}

impl Drop for Glance {
    fn drop(&mut self) {
        let _ = self.told.recv_deadline(self.until);
    }
}

fn tell_what_lies_below(path: &str, count: usize) {
    let path = plain(path);
    say(&format!(
        "{path} has {count} nodes below it, which this does not lock: it locks {path} alone"
    ));
}

fn acquire(
    run: &Run,
    wanted: &Wanted,
    stage: &Stage,
    limit: WaitLimit,
) -> Result<Option<HeldLock>, Failure> {
    let request = AcquireRequest::new(stage, run, wanted, limit);
    let acquired = loop {
        match request.acquire()? {
            Some(Acquired { lock, .. }) if !run.tries_once() && is_lost(&lock, &stage.signals) => {
                drop(lock)
            }
            acquired => break acquired,
        }
    };
    let granted = Instant::now();
    drop(request);
    let Some(Acquired { lock, in_order }) = acquired else {
        return Ok(None);
    };
    let in_order = in_order && lock.guard.follows_release() != Some(false);
    if in_order || stage.settle(granted) {
        lock.guard.leave_note();
    }
    if let Some(dir) = stage.client.kept_in() {
        say(&without_right(&dir));
    }
    Ok(Some(lock))
}

/// Returns whether the lock is lost already: steps after a grant, such as finding a permit's
/// number, may have met silent servers. Waits while the lock is in doubt, because nothing has
/// begun.
fn is_lost(lock: &HeldLock, signals: &Signals) -> bool {
    let guard = &lock.guard;
    while guard.state() == GuardState::Suspect && signals.cancel.is_empty() {
        if let Err(error) = guard.verify() {
            log::info!("before the command begins: {error}");
        }
    }
    guard.state() == GuardState::Lost
}

/// Keeps the lock as long as the user asked for, or until a signal comes, and returns the signal.
/// If this process is killed, the lock lasts as long as the session.
fn hold_on(run: &Run, lock: &HeldLock, acquired_at: Instant, stage: &Stage) -> Option<Signal> {
    let until = acquired_at.checked_add(run.hold_at_least?);
    // There is no command any more that Ctrl-Z could stop.
    stage.signals.waiting();
    stage.dismiss_keeper();
    while lock.guard.is_valid() {
        let left = until.map_or(LOOK, |until| {
            until.saturating_duration_since(Instant::now())
        });
        if left.is_zero() {
            break;
        }
        match stage.signals.taken.recv_timeout(left.min(LOOK)) {
            Ok(signal) if ends(signal) => return Some(signal),
            _ => {}
        }
    }
    None
}
