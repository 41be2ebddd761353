//! Runs a command once per slot.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use zklock::{Client, Contender, Error, JobOptions, Once as Ran, Run, RunRecord};

use crate::acquire::look_around;
use crate::args::{Args, Once};
use crate::child::Variables;
use crate::commands::job_path::JobPath;
use crate::exit::Ending;
use crate::failure::{Failure, LOST};
use crate::metrics::Metrics;
use crate::run_setup::{AFTER_A_SIGNAL, Stage, check_answered, longest_connect, without_right};
use crate::sanitize::plain;
use crate::state_files::{STATE_OUT, StateFiles, temporary};
use crate::stderr::say;
use crate::supervisor::Ended;
use crate::table::{brief, time_ahead, who};
use crate::wait_limit::{LEAST, WaitLimit, allowed};

/// The exit status if another machine is still running it, or no attempts are left.
const NOT_RUN: u8 = 1;

/// How long a look for the holder may take after the wait.
const GLANCE: Duration = Duration::from_millis(250);

pub(crate) fn once(args: &Args, once: &Once) -> Result<Ending, Failure> {
    Metrics::of(&once.what, &once.path, |metrics| {
        once_under(args, once, metrics)
    })
}

fn once_under(args: &Args, once: &Once, metrics: &Metrics) -> Result<Ending, Failure> {
    let started = Instant::now();
    let stage = Stage::set(args, &once.what, longest_connect(once.wait))?;
    metrics.waits();
    let has_begun = Cell::new(false);
    let (ran, is_for_others) = run(once, &stage, (started, &has_begun), metrics)?;
    if let Ok(ran) = &ran {
        note(ran, &stage.client, metrics);
    }
    let signal = stage.signals.ended_by();
    let is_connected = stage.is_connected();
    // A client that is ahead in the queue but does not hold the lock is not running the job.
    let contenders = match &ran {
        Err(Error::GaveUp { path }) if is_connected && !is_for_others => {
            stage.client.wait_for_change(path, &[], GLANCE).ok()
        }
        _ => None,
    };
    let holder = contenders.and_then(|all| all.into_iter().find(Contender::holds));
    let has_run = matches!(ran, Ok(Ran::Done(_) | Ran::Failed(_)));
    let answered = is_connected & stage.end(has_run && is_connected);
    let waited_in_vain = matches!(ran, Ok(Ran::Running(_)) | Err(Error::GaveUp { .. }));
    if waited_in_vain && !once.nonblock && signal.is_none() {
        check_answered(answered, &once.path)?;
    }
    if let (Err(error @ Error::Unconfirmed { .. }), Some(_)) = (&ran, signal) {
        say(&error.to_string());
    }
    match (ran, signal) {
        (Ok(Ran::Done(ending)), _) => Ok(ending),
        (Ok(Ran::Failed(failed)), _) => failed,
        (_, Some(signal)) => Ok(Ending::Signal(signal as i32)),
        // That was told before the wait.
        (Err(Error::GaveUp { .. }), _) if is_for_others => Ok(Ending::Code(NOT_RUN)),
        (Err(Error::GaveUp { path }), _) => Err(gave_up(&path, holder)),
        (Err(error), _) if has_begun.get() => Err(failure(error, true)),
        (Err(error), _) => Err(failure(allowed(error, once.wait), false)),
        (Ok(other), _) => Ok(Ending::Code(tell(once, &other))),
    }
}

/// Counts a success, and tells the user if the lock's node stays.
fn note<T, E>(ran: &Ran<T, E>, client: &Client, metrics: &Metrics) {
    if let Ran::Done(_) = ran {
        metrics.has_succeeded();
    }
    if let Some(dir) = client.kept_in() {
        say(&without_right(&dir));
    }
}

/// What a run of a job has come to; on failure, with the ending for this program.
type Came = zklock::Result<Ran<Ending, Result<Ending, Failure>>>;

/// Runs the command as soon as nobody uses the path for another kind of lock. Also returns whether somebody did at the
/// end of the wait.
fn run(
    once: &Once,
    stage: &Stage,
    (started, has_begun): (Instant, &Cell<bool>),
    metrics: &Metrics,
) -> Result<(Came, bool), Failure> {
    let limit = match once.nonblock {
        true => WaitLimit::OneTry,
        false => WaitLimit::after(once.wait, started),
    };
    let mut job_path = JobPath::new(&stage.client, &once.path, limit, &stage.signals.cancel);
    loop {
        let beginning = (started, has_begun, job_path.in_order);
        match run_now(once, stage, beginning, metrics) {
            Err(refusal @ Error::Unmarked { .. }) => {
                // It says so if no server answers meanwhile.
                let _line = stage.status_line(&once.path);
                if !job_path.is_given_up(refusal)? {
                    let path = once.path.clone();
                    return Ok((Err(Error::GaveUp { path }), true));
                }
            }
            ran => return Ok((ran, false)),
        }
    }
}

/// Runs the command if the path is a job's or nobody's.
fn run_now(
    once: &Once,
    stage: &Stage,
    (started, has_begun, in_order): (Instant, &Cell<bool>, bool),
    metrics: &Metrics,
) -> Came {
    let job = stage.client.job(&once.path)?;
    // The command may need the terminal.
    let line = RefCell::new(Some(stage.status_line(&once.path)));
    let waited = Cell::new(false);
    let options = options(once, started)
        .cancel(stage.signals.cancel.clone())
        .on_wait(|waiting| {
            if !waited.replace(true) {
                look_around(&once.path);
            }
            if let Some(line) = &*line.borrow() {
                line.tell(waiting);
            }
        });
    stage.signals.waiting();
    let work = |run: &Run<'_>| {
        drop(line.take());
        if !in_order || run.follows_release() == Some(false) {
            // The end of the run will be recorded in any case, and the next run relies on that.
            let granted = Instant::now();
            while !stage.settle(granted) {}
        }
        execute(once, stage, run, (metrics, has_begun))
    };
    match (&once.slot, once.at_most_every) {
        (Some(slot), _) => job.once_with(slot, options, work),
        (None, every) => job.at_most_every_with(every.unwrap_or_default(), options, work),
    }
}

/// Returns the options that the user has set.
fn options<'a>(once: &Once, started: Instant) -> JobOptions<'a> {
    let mut options = JobOptions::new()
        .wait(!once.nonblock)
        .any_order(once.any_order)
        .again(once.again);
    if let Some(keep) = once.keep {
        options = options.keep(keep);
    }
    if let Some(attempts) = once.attempts {
        options = options.attempts(attempts);
    }
    if let Some(deadline) = once.wait.and_then(|wait| started.checked_add(wait)) {
        options = options.deadline(deadline).answered_within(LEAST);
    }
    options
}

fn execute(
    once: &Once,
    stage: &Stage,
    run: &Run<'_>,
    (metrics, has_begun): (&Metrics, &Cell<bool>),
) -> Result<Ending, Result<Ending, Failure>> {
    if let Some(before) = run.retry_of().map(ToString::to_string) {
        say(&format!("runs again what was not done: {}", plain(&before)));
    }
    let files = state_files(run).map_err(|failure| failed(run, failure))?;
    let mut more = vec![
        ("ZKLOCK_SLOT", run.slot().into()),
        ("ZKLOCK_ATTEMPT", run.attempt().to_string().into()),
    ];
    more.extend(files.iter().flat_map(StateFiles::variables));
    let variables = Variables {
        path: &once.path,
        node: run.node(),
        token: Some(run.fencing_token().to_string()),
        more: &more,
    };
    let ended = metrics
        .term(|| stage.run(&once.what, run, &variables, &|_| ()))
        .inspect(|_| has_begun.set(true))
        .map_err(Err)?;
    await_servers(once, stage, run, ended.ending);
    match ended.ending {
        Ending::Code(0) => {
            let left = files.map_or(Ok(()), |files| leave(run, &files));
            left.map_err(|failure| failed(run, failure))?;
            Ok(ended.ending)
        }
        ending => {
            run.set_message(&why_failed(once, &ended));
            Err(Ok(ending))
        }
    }
}

/// Waits for servers that can record how the run ended.
fn await_servers(once: &Once, stage: &Stage, run: &Run<'_>, ending: Ending) {
    if ending == Ending::Code(0) {
        // A run that is not recorded as done is repeated.
        stage.hurries.set(false);
    }
    match stage.await_servers(&once.path) {
        true if stage.hurries.get() => run.record_within(AFTER_A_SIGNAL),
        true => {}
        false => run.record_within(Duration::ZERO),
    }
}

fn why_failed(once: &Once, ended: &Ended) -> String {
    match (once.what.max_time.filter(|_| ended.over_time), ended.ending) {
        (Some(most), _) => format!("it ran longer than {most:?}, and was stopped"),
        // That status is zklock's, not the command's.
        (None, Ending::Code(LOST)) if ended.lost => {
            "its lock was in doubt, and it was stopped".to_owned()
        }
        (None, ending) => ending.to_string(),
    }
}

/// Creates the files for the state of the runs. If there is no room for them, the command of a job
/// without a state runs all the same.
fn state_files(run: &Run<'_>) -> Result<Option<StateFiles>, Failure> {
    let folder = temporary();
    let made = StateFiles::make(run.state().unwrap_or_default());
    let told = |error| {
        let folder = folder.display();
        format!("{folder}: {error}; TMPDIR may name another folder")
    };
    match (made.map_err(told), run.state()) {
        (Ok(files), _) => Ok(Some(files)),
        (Err(why), None) => {
            say(&format!(
                "the command can leave nothing for the next run, and has no {STATE_OUT}: cannot write to {why}"
            ));
            Ok(None)
        }
        (Err(why), Some(_)) => Err(Failure::other(format!(
            "the command was not run: cannot write what the last run left for it to {why}"
        ))),
    }
}

/// Leaves the state that the command has written for the next run.
fn leave(run: &Run<'_>, files: &StateFiles) -> Result<(), Failure> {
    let failure = |why: String| {
        let what =
            "the command has ended, and is not done, because what it left for the next run in";
        Failure::other(format!("{what} {STATE_OUT} cannot be kept: {why}"))
    };
    let left = files.left().map_err(|error| failure(error.to_string()))?;
    let left = left.map_or(Ok(()), |left| run.set_state(left));
    left.map_err(|error| failure(error.to_string()))
}

/// Makes the record say why the run failed.
fn failed(run: &Run<'_>, failure: Failure) -> Result<Ending, Failure> {
    run.set_message(failure.message());
    Err(failure)
}

/// Reports why the command was not run; returns the exit status.
fn tell<T, E>(once: &Once, ran: &Ran<T, E>) -> u8 {
    let path = plain(&once.path);
    let written = |record: &RunRecord| plain(&record.to_string());
    match ran {
        Ran::DoneBefore(record) => {
            let skipped = skipped(once, record).unwrap_or_default();
            if !once.quiet || !skipped.is_empty() {
                say(&format!("{path} is done: {}{skipped}", written(record)));
            }
            once.done_exit_code
        }
        Ran::Running(contender) => {
            say(&format!("{path} is {}", run_by(contender)));
            NOT_RUN
        }
        Ran::NoAttemptsLeft(record) => {
            say(&format!(
                "no attempts are left for {path}, the last one: {}; the next slot has its own, and --attempts {} gives this one another",
                written(record),
                record.attempt().saturating_add(1)
            ));
            NOT_RUN
        }
        Ran::Done(_) | Ran::Failed(_) => 0,
    }
}

/// Returns what to say of a run that is left out although nothing has done it.
fn skipped(once: &Once, record: &RunRecord) -> Option<String> {
    let forget = format!(
        "zklock forget {} begins anew, if the clock was wrong that did it",
        plain(&once.path)
    );
    let Some(slot) = &once.slot else {
        let ahead = time_ahead(record.started())?;
        return Some(format!(
            ", which is {} from now by this machine's clock, and nothing is run until then and as long again as --at-most-every says: look at this clock and at the servers'; {forget}",
            brief(ahead)
        ));
    };
    (&**slot < record.slot()).then(|| {
        let slot = plain(slot);
        format!(
            ", and {slot}, which is below it byte by byte, is not run: write numbers with leading zeros, and look at the date of this machine and of that one; {forget}; --any-order runs it by itself"
        )
    })
}

/// Returns the failure of a wait, with the client that runs the job, if that is known.
fn gave_up(path: &str, holder: Option<Contender>) -> Failure {
    let holder = holder.map(|holder| format!(" is {}", run_by(&holder)));
    let holder = holder.unwrap_or_else(|| " was not to be had in time".to_owned());
    Failure::new(NOT_RUN, format!("{}{holder}", plain(path)))
}

fn run_by(holder: &Contender) -> String {
    match holder.hold() {
        Some(hold) => plain(&hold.to_string()),
        None => format!("run by {}", who(holder.owner())),
    }
}

fn failure(error: Error, has_begun: bool) -> Failure {
    let what = match has_begun {
        true => "the command has ended, and is not known as done",
        false => "the command did not begin, which counts as an attempt",
    };
    match error {
        Error::Lost { .. } | Error::Unconfirmed { .. } => {
            Failure::new(LOST, format!("{what}: {error}"))
        }
        error if has_begun => {
            let failure = Failure::from(error);
            Failure::new(failure.code(), format!("{what}: {}", failure.message()))
        }
        Error::SlotForgotten { .. } | Error::Evicted { .. } => {
            Failure::new(NOT_RUN, error.to_string())
        }
        error => error.into(),
    }
}
