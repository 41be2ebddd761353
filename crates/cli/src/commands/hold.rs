//! Keeps a lock without a process.

use std::env;
use std::io::{self, Write};
use std::time::{Duration, Instant, SystemTime};

use nix::unistd::{Uid, User};
use zklock::diagnostics::Hold as Held;
use zklock::{Client, Contender};

use crate::acquire::AcquireRequest;
use crate::args::{Args, Guarded, Hold, Run};
use crate::exit::Ending;
use crate::failure::{Failure, written};
use crate::run_setup::{Stage, longest_connect};
use crate::sanitize::plain;
use crate::stderr::say;
use crate::wait_limit::WaitLimit;
use crate::wanted::Wanted;

pub(crate) fn hold(args: &Args, hold: &Hold) -> Result<Ending, Failure> {
    let started = Instant::now();
    let run = waits_as(hold);
    let wait_for = Wanted::by(&run)?;
    let stage = Stage::set(args, &run.what, longest_connect(run.wait))?;
    let limit = WaitLimit::new(&run, started);
    let mut request = AcquireRequest::new(&stage, &run, &wait_for, limit);
    request.for_a_hold = true;
    let acquired = request.acquire();
    drop(request);
    let (acquired, signal) = (acquired?, stage.signals.ended_by());
    let (Some(acquired), None) = (acquired, signal) else {
        return stage.end_without(&hold.path, signal, &run);
    };
    let wanted = wanted(&hold.reason, hold.lasting, hold.until);
    let node = acquired.lock.guard.leave_hold(&wanted)?;
    drop(acquired);
    let told = tell(&stage.client, &hold.path, &node);
    stage.end(true);
    told.map(|()| Ending::Code(0))
}

/// Returns the hold that the arguments describe.
pub(crate) fn wanted(reason: &str, lasting: Option<Duration>, until: Option<SystemTime>) -> Held {
    let wanted = Held::new(reason, user().as_deref());
    match (lasting, until) {
        (Some(time), _) => wanted.lasting(time),
        (None, Some(time)) => wanted.ending_at(time),
        (None, None) => wanted,
    }
}

/// Reports the hold that is there now.
fn tell(client: &Client, path: &str, node: &str) -> Result<(), Failure> {
    let Some(present) = present(client, path) else {
        return Ok(());
    };
    let one = present.iter().find(|one| one.node() == node);
    let hold = one.and_then(Contender::hold).map(ToString::to_string);
    let hold = hold.unwrap_or_else(|| "free again: somebody has released it".to_owned());
    let line = format!("{} is {}", plain(path), plain(&hold));
    written(writeln!(io::stdout(), "{line}"))
}

/// Returns the contenders of a path that is on hold by now. Says so if they cannot be listed, which changes nothing.
pub(crate) fn present(client: &Client, path: &str) -> Option<Vec<Contender>> {
    let present = client.contenders(path);
    let unseen = |error: &_| {
        let path = plain(path);
        say(&format!("{path} is on hold, and cannot be listed: {error}"));
    };
    present.inspect_err(unseen).ok()
}

/// Returns the options of a command that waits like one that would run under the lock.
fn waits_as(hold: &Hold) -> Run {
    Run {
        write: hold.write,
        nonblock: hold.nonblock,
        wait: hold.wait,
        conflict_exit_code: hold.conflict_exit_code,
        path: hold.path.clone(),
        what: Guarded {
            note: Some(hold.reason.clone()),
            ..Guarded::default()
        },
        ..Run::default()
    }
}

/// Returns the user who runs this, as the environment or the system says, or the user's number: for people to read.
fn user() -> Option<String> {
    let names = ["SUDO_USER", "USER", "LOGNAME"].into_iter();
    let mut names = names.filter_map(|name| env::var(name).ok());
    let named = names.find(|name| !name.is_empty()).or_else(|| {
        let user = User::from_uid(Uid::current()).ok()?;
        user.map(|user| user.name)
    });
    Some(named.unwrap_or_else(|| format!("user {}", Uid::current())))
}
