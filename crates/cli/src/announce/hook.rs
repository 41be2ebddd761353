//! Runs the hook for when this machine is no longer active, for a limited time.

use std::time::{Duration, Instant};

use crossbeam_channel::RecvTimeoutError;

use crate::child::{Child, Variables};
use crate::exit::Ending;
use crate::failure::advised;
use crate::helper::ANSWER;
use crate::helper::trust::since_boot;
use crate::helper::wire::Kind;
use crate::run_setup::Stage;
use crate::stderr::say;

/// How long killed processes may take to be gone.
pub(crate) const KILL_LIMIT: Duration = Duration::from_millis(250);

/// Returns the command that a shell runs for this text.
pub(crate) fn shell(text: &str) -> Vec<std::ffi::OsString> {
    ["sh", "-c", text].map(Into::into).to_vec()
}

/// Runs a hook; kills it with all processes that it has started if it takes longer. Reports a failure.
pub(crate) fn run_within(limit: Duration, text: &str, variables: &Variables<'_>, stage: &Stage) {
    let name = "--on-passive";
    let mut child = match stage.start(&shell(text), variables) {
        Ok(child) => child,
        Err(error) => return say(&format!("cannot run {name}: {}", advised(&error))),
    };
    // If this process is stopped, the keeper must kill the hook.
    child.trust(since_boot().saturating_add(limit));
    child.ask(Kind::Begin);
    if !await_end(&mut child, Instant::now() + limit) {
        child.kill();
        let left = match await_end(&mut child, Instant::now() + KILL_LIMIT) {
            true => "",
            false => ", and something of it is left",
        };
        say(&format!(
            "{name} did not end within {:.1} s: killed it{left}",
            limit.as_secs_f64()
        ));
    } else if let Some(ending) = child.ending.filter(|one| *one != Ending::Code(0)) {
        say(&format!("{name} {ending}"));
    }
    stage.keep(child);
}

/// Waits for the end of the hook; returns whether none of its processes is left.
fn await_end(child: &mut Child, until: Instant) -> bool {
    while !child.is_gone {
        let soon = until.min(Instant::now() + ANSWER);
        match child.reports.recv_deadline(soon) {
            Ok(report) => drop(child.note(Some(&report))),
            Err(_) if until <= Instant::now() => return false,
            Err(RecvTimeoutError::Disconnected) => drop(child.note(None)),
            // Somebody may have stopped the keeper, which is then continued.
            Err(RecvTimeoutError::Timeout) => drop(child.reap(None)),
        }
    }
    true
}
