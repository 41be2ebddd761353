//! Runs a command on one machine at a time.

use std::io::{self, IsTerminal};
use std::ops::ControlFlow;
use std::time::Duration;

use zklock::Term;

use crate::args::{Args, Restart, Standby};
use crate::child::Variables;
use crate::ending::Ending;
use crate::failure::Failure;
use crate::plain::plain;
use crate::stage::Stage;
use crate::stderr::say;
use crate::supervisor::Ended;
use crate::table::who;

pub(crate) fn standby(args: &Args, standby: &Standby) -> Result<Ending, Failure> {
    let stage = Stage::set(args, &standby.what, Duration::MAX)?;
    let place = stage.client.standby(&standby.what.path)?;
    if let (true, Ok(Some(leader))) = (io::stderr().is_terminal(), place.leader()) {
        let path = plain(&standby.what.path);
        say(&format!(
            "standing by for {path}, which {} has",
            who(leader.owner())
        ));
    }
    stage.signals.waiting();
    let mut last = None;
    let done = place.run_until(stage.signals.cancel.clone(), |term| {
        stage.settle();
        let ended = run(standby, &stage, term);
        let again = ended
            .as_ref()
            .is_ok_and(|ended| again(standby.restart, *ended));
        last = Some(ended.map(|ended| ended.ending));
        stage.signals.waiting();
        match again {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    });
    let signal = stage.signals.ended_by();
    drop(stage.client.close());
    done?;
    match (signal, last) {
        (Some(signal), _) => Ok(Ending::Signal(signal as i32)),
        (None, Some(last)) => last,
        (None, None) => Ok(Ending::Code(0)),
    }
}

fn run(standby: &Standby, stage: &Stage, term: &Term<'_>) -> Result<Ended, Failure> {
    let more = [("ZKLOCK_TERM", term.number().to_string())];
    let variables = Variables {
        path: &standby.what.path,
        node: term.node(),
        token: Some(term.fencing_token().to_string()),
        more: &more,
    };
    stage.run(&standby.what, term, variables)
}

/// Whether to stand in line again.
fn again(restart: Restart, ended: Ended) -> bool {
    let by_itself = match restart {
        Restart::Always => true,
        Restart::OnFailure => ended.ending != Ending::Code(0),
        Restart::Never => false,
    };
    !ended.by_signal && (ended.by_lock || by_itself)
}
