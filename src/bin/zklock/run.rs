//! Runs a command while it holds a lock.

use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use zklock::SessionState;

use crate::acquire::{Lease, Patience, Wish};
use crate::args::{Args, Run};
use crate::connect::connect;
use crate::doubt::Doubt;
use crate::ending::Ending;
use crate::failure::{Failure, UNAVAILABLE};
use crate::signals::{Signals, ends};
use crate::terminal::Terminal;
use crate::waiting::Line;
use crate::watch::Watch;

/// How long a command is held back when somebody else held the lock a moment ago. If he
/// was evicted, or the server has ended his session, he hears of it when we do, or as soon
/// as he has connected again.
const SETTLE: Duration = Duration::from_millis(250);

/// How often a lock is looked at that nothing can be done for.
const LOOK: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &Args, run: &Run) -> Result<Ending, Failure> {
    let started = Instant::now();
    let signals = Signals::take()
        .map_err(|error| Failure::other(format!("cannot listen to signals: {error}")))?;
    let terminal = Terminal::open();
    let note = run.note.clone().unwrap_or_else(|| name(run));
    let client = connect(args, Some(&note), longest_connect(run))?;
    let foreground = terminal.as_ref().is_none_or(Terminal::is_ours);
    let line = Line::new(&run.path, foreground, &client);
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
    let (Some(acquired), None) = (acquired, signal) else {
        let away = client.state() != SessionState::Connected;
        drop(client.close());
        return match signal {
            Some(signal) => Ok(Ending::Signal(signal as i32)),
            None => not_got(run, away).map(Ending::Code),
        };
    };
    signals.running();
    let doubt = Doubt::new(client.session_timeout(), run.grace);
    let got = Instant::now();
    let (ending, lease) = Watch::new(run, acquired.lease, doubt, terminal, &signals)?.watch();
    let signal = hold_on(run, &lease, got, &signals);
    drop(lease);
    // With the session goes the node, if its deletion was lost on the way.
    drop(client.close());
    Ok(signal.map_or(ending, |signal| Ending::Signal(signal as i32)))
}

/// Keeps the lock until it was held for as long as the user wants, or a signal comes, which
/// it returns.
fn hold_on(run: &Run, lease: &Lease, got: Instant, signals: &Signals) -> Option<Signal> {
    let until = got.checked_add(run.hold_at_least?);
    while lease.guard.is_held() {
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
