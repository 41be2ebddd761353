//! Runs what is to happen when this machine is no longer active, for a limited time.

use std::time::{Duration, Instant};

use crossbeam_channel::RecvTimeoutError;

use crate::child::{Child, Variables};
use crate::exit::Ending;
use crate::signals::Signals;
use crate::stderr::say;

/// How long what was killed may take to be gone.
const KILL_LIMIT: Duration = Duration::from_millis(250);

/// How often to look for what a killed keeper has left.
const POLL: Duration = Duration::from_millis(20);

/// Returns the command that a shell runs for this text.
pub(crate) fn shell(text: &str) -> Vec<std::ffi::OsString> {
    ["sh", "-c", text].map(Into::into).to_vec()
}

/// Runs a hook, and kills it with all that it has started if it takes longer; says so if it fails.
pub(crate) fn run_within(
    limit: Duration,
    text: &str,
    variables: &Variables<'_>,
    (signals, key): (&Signals, Option<&str>),
) {
    let name = "--on-passive";
    let mut child = match Child::start(&shell(text), variables, &signals.unblocked, key) {
        Ok(child) => child,
        Err(error) => return say(&format!("cannot run {name}: {error}")),
    };
    child.begin();
    if await_end(&mut child, Instant::now() + limit) {
        if child.ending() != Ending::Code(0) {
            say(&format!("{name} {}", child.ending()));
        }
        return;
    }
    child.kill();
    let gone = await_end(&mut child, Instant::now() + KILL_LIMIT);
    let left = if gone {
        ""
    } else {
        ", and something of it is left"
    };
    say(&format!(
        "{name} did not end within {:.1} s: killed it{left}",
        limit.as_secs_f64()
    ));
}

/// Returns whether nothing of it is left.
fn await_end(child: &mut Child, until: Instant) -> bool {
    while !child.is_gone() {
        let report = match child.is_kept() {
            true => child.reports.recv_deadline(until),
            // Nobody reports any more.
            false => {
                std::thread::sleep(POLL);
                Err(RecvTimeoutError::Disconnected)
            }
        };
        match report {
            Ok(report) => child.note(Some(&report)),
            Err(RecvTimeoutError::Disconnected) => child.note(None),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if until <= Instant::now() && !child.is_gone() {
            return false;
        }
    }
    true
}
