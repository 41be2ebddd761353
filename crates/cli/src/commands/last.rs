//! Tells when a job was last run.

use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use zklock::diagnostics::Hold;
use zklock::{Client, Contender, Outcome, RunRecord};

use crate::args::Last;
use crate::commands::job_path::failure;
use crate::failure::{Failure, written};
use crate::sanitize::{plain, plain_json};
use crate::stderr::say;
use crate::table::{brief, hold, millis, time_ahead, who};

/// The description of a run without an end.
const LOST: &str = "and nobody wrote down how it ended";

/// The exit status of a job that was never done.
const NEVER: u8 = 1;
/// The exit status of a job that was last done too long ago.
const OLD: u8 = 2;

pub(crate) fn last(client: &Client, last: &Last) -> Result<u8, Failure> {
    let job = client.job(&last.path)?;
    let record = job.records();
    let record = record.map_err(|error| failure(client, &last.path, error))?;
    let runs = last.runs.map(|most| newest(record.history, most));
    let present = client.contenders(&last.path)?;
    let mut holds = present.iter().filter_map(Contender::hold);
    let paused = holds.find(|hold| !hold.seems_over());
    let (done, failed, running) = (&record.done, &record.failed, &record.running);
    let lasts = [done, failed, running];
    let text = match (last.json, &runs) {
        (true, runs) => json_of(&last.path, lasts, (runs.as_deref(), &record.open), paused),
        (false, Some(runs)) => told_all(&last.path, runs, running.as_ref()),
        (false, None) => told(&last.path, done.as_ref(), failed.as_ref(), running.as_ref()),
    };
    let mut lines = vec![text];
    if !last.json {
        let again = |slot: &String| format!("again:   slot {} is to be run", plain(slot));
        lines.extend(record.open.iter().map(again));
        lines.extend(paused.map(|hold| format!("paused:  {}", plain(&hold.to_string()))));
    }
    written(writeln!(io::stdout(), "{}", lines.join("\n")))?;
    let Some(ended) = done.as_ref().and_then(RunRecord::ended) else {
        return Ok(NEVER);
    };
    let Some(why) = last.older_than.and_then(|limit| why_old(ended, limit)) else {
        return Ok(0);
    };
    say(&format!("{} was last done {why}", plain(&last.path)));
    Ok(OLD)
}

/// Returns what is wrong with a job that was last done then, if it must be done this often.
fn why_old(ended: SystemTime, limit: Duration) -> Option<String> {
    let (ago, is_ahead) = match ended.elapsed() {
        Ok(ago) => (ago, false),
        Err(ahead) => (ahead.duration(), true),
    };
    let (ago, at_most) = (brief(ago), (limit < ago).then(|| brief(limit))?);
    Some(match is_ahead {
        true => format!(
            "{ago} from now by this machine's clock, which is further off than {at_most}: look at this clock and at the servers'"
        ),
        false => format!("{ago} ago, which is longer than {at_most}"),
    })
}

/// Returns the last runs that are kept and have ended, at most this many.
fn newest(mut runs: Vec<RunRecord>, most: u32) -> Vec<RunRecord> {
    runs.truncate(usize::try_from(most).unwrap_or(usize::MAX));
    runs
}

fn told_all(path: &str, runs: &[RunRecord], running: Option<&RunRecord>) -> String {
    let mut lines: Vec<_> = running.into_iter().map(under_way).collect();
    lines.extend(runs.iter().map(|run| match run.outcome() {
        Outcome::Done => format!("done:    {}", line(run, "")),
        _ => format!("failed:  {}", line(run, LOST)),
    }));
    match lines.is_empty() {
        true => format!("{} was never run", plain(path)),
        false => lines.join("\n"),
    }
}

fn under_way(run: &RunRecord) -> String {
    format!("running: {}", line(run, "and goes on"))
}

fn told(
    path: &str,
    done: Option<&RunRecord>,
    failed: Option<&RunRecord>,
    running: Option<&RunRecord>,
) -> String {
    let mut lines = vec![match done {
        Some(run) => format!("done:    {}", line(run, "")),
        None => format!("{} was never done", plain(path)),
    }];
    lines.extend(failed.map(|run| format!("failed:  {}", line(run, LOST))));
    lines.extend(running.map(under_way));
    lines.join("\n")
}

/// Describes a run; a run without an end is described with `endless`.
fn line(run: &RunRecord, endless: &str) -> String {
    let ago = |time: SystemTime| match time_ahead(time) {
        Some(ahead) => format!("{} from now by this clock", brief(ahead)),
        None => format!("{} ago", brief(time.elapsed().unwrap_or_default())),
    };
    let mut words = Vec::new();
    if !run.slot().is_empty() {
        words.push(format!("slot {}", plain(run.slot())));
    }
    words.push(match run.ended() {
        Some(ended) => {
            let took = ended.duration_since(run.started()).unwrap_or_default();
            format!("{}, took {}", ago(ended), brief(took))
        }
        None => format!("began {}, {endless}", ago(run.started())),
    });
    words.push(format!("attempt {}", run.attempt()));
    words.push(format!("on {}", who(run.owner())));
    words.push(format!("token {}", run.token()));
    words.extend(run.message().map(plain));
    words.join(", ")
}

fn json_of(
    path: &str,
    lasts: [&Option<RunRecord>; 3],
    (runs, open): (Option<&[RunRecord]>, &[String]),
    paused: Option<&Hold>,
) -> String {
    let [done, failed, running] = lasts.map(|run| run.as_ref().map(one));
    let mut value = json!({
        "path": path,
        "done": done,
        "failed": failed,
        "running": running,
        "again": open,
        "hold": paused.map(hold),
    });
    if let Some(runs) = runs {
        value["runs"] = runs.iter().map(one).collect();
    }
    plain_json(&format!("{value:#}"))
}

fn one(run: &RunRecord) -> Value {
    json!({
        "slot": run.slot(),
        "attempt": run.attempt(),
        "started_ms": millis(run.started()),
        "ended_ms": run.ended().map(millis),
        "token": run.token().get(),
        "outcome": match run.outcome() {
            Outcome::Done => "done",
            Outcome::Failed => "failed",
            _ => "unknown",
        },
        "message": run.message(),
        "host": run.owner().host,
        "pid": run.owner().pid,
        "program": run.owner().program,
        "note": run.owner().note,
    })
}
