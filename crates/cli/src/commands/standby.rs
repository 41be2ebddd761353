//! Runs a command on one machine at a time.

use std::io::{self, IsTerminal};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use zklock::{Term, Waiting};

use crate::announce::{Announcer, hook};
use crate::args::{Args, Guarded, Restart, Standby};
use crate::child::Variables;
use crate::exit::Ending;
use crate::failure::Failure;
use crate::metrics::Metrics;
use crate::run_setup::Stage;
use crate::sanitize::plain;
use crate::status_line::StatusLine;
use crate::stderr::say;
use crate::supervisor::{Ended, News};
use crate::table::who;

pub(crate) fn standby(args: &Args, standby: &Standby) -> Result<Ending, Failure> {
    Metrics::of(&standby.what, &standby.path, |metrics| {
        standby_under(args, standby, metrics)
    })
}

fn standby_under(args: &Args, standby: &Standby, metrics: &Metrics) -> Result<Ending, Failure> {
    let mut stage = Stage::set(args, &standby.what, Duration::MAX)?;
    stage.has_hook = standby.on_passive.is_some();
    let announcer = Arc::new(Announcer::new(standby)?);
    // The command may need the terminal.
    let line = Arc::new(Mutex::new(Some(stage.status_line(&standby.path))));
    let begins = Arc::new(AtomicBool::new(true));
    let teller = place_teller(standby, &line, &begins, &announcer);
    let place = stage.client.standby(&standby.path)?.on_wait(teller);
    stage.signals.waiting();
    metrics.waits();
    let (mut last, mut late, mut leads) = (None, None, false);
    let done = place.run_until(stage.signals.cancel.clone(), |term| {
        drop(line.lock().take());
        leads = true;
        let ended = one_term(standby, &stage, term, (&announcer, metrics));
        let again = again(standby.restart, &ended);
        if again {
            tell(&ended);
        }
        late = ended.as_ref().ok().and_then(|ended| ended.late);
        last = Some(ended.map(|ended| ended.ending));
        stage.signals.waiting();
        // A signal may have come after the command, before a signal ended the wait.
        late = late.or_else(|| stage.signals.ended_by());
        if !again || late.is_some() {
            return ControlFlow::Break(());
        }
        metrics.waits();
        leads = false;
        begins.store(true, Ordering::Relaxed);
        *line.lock() = Some(stage.status_line(&standby.path));
        ControlFlow::Continue(())
    });
    let signal = late.or_else(|| stage.signals.ended_by());
    stage.end(leads);
    done?;
    let by_signal = signal.map(|signal| Ok(Ending::Signal(signal as i32)));
    by_signal.or(last).unwrap_or(Ok(Ending::Code(0)))
}

/// Returns a callback that shows the place in the queue. Without a terminal, it reports only the
/// beginning of a wait: a log then shows that this machine is there.
fn place_teller(
    standby: &Standby,
    line: &Arc<Mutex<Option<StatusLine>>>,
    begins: &Arc<AtomicBool>,
    announcer: &Arc<Announcer>,
) -> impl Fn(&Waiting) + Send + Sync + 'static + use<> {
    let path = plain(&standby.path);
    let (line, begins, announcer) = (line.clone(), begins.clone(), announcer.clone());
    move |waiting| {
        if let Some(line) = &*line.lock() {
            line.tell(waiting);
        }
        let ahead = waiting.ahead().map(|ahead| who(ahead.owner()));
        let ahead = ahead.unwrap_or_else(|| "others".to_owned());
        announcer.waits(&ahead);
        if begins.swap(false, Ordering::Relaxed) && !io::stderr().is_terminal() {
            say(&format!("standing by for {path}, behind {ahead}"));
        }
    }
}

/// Reports why this machine queues again.
fn tell(ended: &Result<Ended, Failure>) {
    match ended {
        Err(failure) => failure.tell(),
        // The state of the lock has been reported already.
        Ok(ended) if ended.by_lock => {}
        Ok(ended) => say(&format!(
            "the command {}: standing in line again",
            ended.ending
        )),
    }
}

/// Runs one term, and counts it.
fn one_term(
    standby: &Standby,
    stage: &Stage,
    term: &Term<'_>,
    (announcer, metrics): (&Announcer, &Metrics),
) -> Result<Ended, Failure> {
    let ended = metrics.term(|| run(standby, stage, term, announcer))?;
    if ended.is_success() {
        metrics.has_succeeded();
    }
    Ok(ended)
}

/// Runs the hooks, and the command between them.
fn run(
    standby: &Standby,
    stage: &Stage,
    term: &Term<'_>,
    announcer: &Announcer,
) -> Result<Ended, Failure> {
    let granted = Instant::now();
    if term.follows_release() != Some(false) || stage.settle(granted) {
        term.leave_note();
    }
    let more = [("ZKLOCK_TERM", term.number().to_string().into())];
    let variables = Variables {
        path: &standby.path,
        node: term.node(),
        token: Some(term.fencing_token().to_string()),
        more: &more,
    };
    announcer.is_active(term);
    let ended = run_active(standby, stage, term, (announcer, &variables));
    announcer.stops();
    if let Some(hook) = &standby.on_passive {
        let limit = stage
            .policy(&standby.what)
            .time_for_the_hook(term.valid_for());
        hook::run_within(limit, hook, &variables, stage);
    }
    announcer.is_passive(term);
    if ended.is_ok() {
        term.unlock_noting();
    }
    stage.dismiss_keeper();
    ended
}

/// Runs the first hook, and the command unless the hook fails.
fn run_active(
    standby: &Standby,
    stage: &Stage,
    term: &Term<'_>,
    (announcer, variables): (&Announcer, &Variables<'_>),
) -> Result<Ended, Failure> {
    let told = |news| match news {
        News::Begins => {}
        News::Is(state) => announcer.is(state, term.lost_reason()),
        News::Stops => announcer.stops(),
    };
    if let Some(hook) = &standby.on_active {
        let what = Guarded {
            command: hook::shell(hook),
            max_time: None,
            ..standby.what.clone()
        };
        announcer.prepares();
        let ended = stage.run(&what, term, variables, &told)?;
        if ended.by_lock || ended.by_signal || ended.ending != Ending::Code(0) {
            say(&format!("--on-active {}: giving the lock up", ended.ending));
            return Ok(ended);
        }
    }
    let told = |news| match news {
        News::Begins => announcer.is_ready(term),
        news => told(news),
    };
    stage.run(&standby.what, term, variables, &told)
}

/// Returns whether to queue again.
fn again(restart: Restart, ended: &Result<Ended, Failure>) -> bool {
    let ended = match ended {
        Ok(ended) => ended,
        // The failure came before the command began.
        Err(failure) => return failure.is_loss(),
    };
    let by_itself = match restart {
        Restart::Always => true,
        Restart::OnFailure => ended.ending != Ending::Code(0),
        Restart::Never => false,
    };
    !ended.by_signal && (ended.by_lock || by_itself)
}
