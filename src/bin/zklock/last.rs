//! Tells when a job was last run.

use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use zklock::{Contender, Outcome, RunRecord};

use crate::args::{Args, Last};
use crate::connect::connect;
use crate::failure::{Failure, written};
use crate::sanitize::{plain, plain_json};
use crate::stderr::say;
use crate::table::{brief, hold, millis, who};

/// The exit status of a job that was never done.
const NEVER: u8 = 1;
/// The exit status of a job that was last done too long ago.
const OLD: u8 = 2;

pub(crate) fn last(args: &Args, last: &Last) -> Result<u8, Failure> {
    let client = connect(args, None, Duration::MAX)?;
    let job = client.job(&last.path)?;
    let (done, failed, running) = (job.last()?, job.last_failure()?, job.running()?);
    let present = client.contenders(&last.path)?;
    let paused = present.iter().find_map(Contender::hold);
    drop(client.close());
    let text = match last.json {
        true => {
            let value = json!({
                "path": last.path,
                "done": done.as_ref().map(one),
                "failed": failed.as_ref().map(one),
                "running": running.as_ref().map(one),
                "hold": paused.map(hold),
            });
            plain_json(&format!("{value:#}"))
        }
        false => {
            let paused = paused.map(|hold| format!("\npaused:  {}", plain(&hold.to_string())));
            let runs = told(&last.path, done.as_ref(), failed.as_ref(), running.as_ref());
            runs + &paused.unwrap_or_default()
        }
    };
    written(writeln!(io::stdout(), "{text}"))?;
    let Some(ended) = done.and_then(|run| run.ended()) else {
        return Ok(NEVER);
    };
    let is_old = |limit| limit < SystemTime::now().duration_since(ended).unwrap_or_default();
    if let Some(limit) = last.older_than.filter(|limit| is_old(*limit)) {
        let (path, ago) = (plain(&last.path), SystemTime::now().duration_since(ended));
        let (ago, limit) = (brief(ago.unwrap_or_default()), brief(limit));
        say(&format!(
            "{path} was last done {ago} ago, which is longer than {limit}"
        ));
        return Ok(OLD);
    }
    Ok(0)
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
    let lost = "and nobody wrote down how it ended";
    lines.extend(failed.map(|run| format!("failed:  {}", line(run, lost))));
    lines.extend(running.map(|run| format!("running: {}", line(run, "and goes on"))));
    lines.join("\n")
}

/// Describes a run; a run without an end is described with `endless`.
fn line(run: &RunRecord, endless: &str) -> String {
    let ago = |time: SystemTime| brief(time.elapsed().unwrap_or_default());
    let mut words = Vec::new();
    if !run.slot().is_empty() {
        words.push(format!("slot {}", plain(run.slot())));
    }
    words.push(match run.ended() {
        Some(ended) => {
            let took = ended.duration_since(run.started()).unwrap_or_default();
            format!("{} ago, took {}", ago(ended), brief(took))
        }
        None => format!("began {} ago, {endless}", ago(run.started())),
    });
    words.push(format!("attempt {}", run.attempt()));
    words.push(format!("on {}", who(run.owner())));
    words.push(format!("token {}", run.token()));
    words.extend(run.message().map(plain));
    words.join(", ")
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
