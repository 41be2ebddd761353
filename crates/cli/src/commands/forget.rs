//! Forgets all runs of a job or one slot, or gives the job a record where its own was replaced.

use zklock::{Client, Error, Job};

use crate::args::Forget;
use crate::commands::job_path::failure;
use crate::failure::Failure;
use crate::sanitize::plain;
use crate::stderr::say;

/// The exit status if there was nothing to forget, or to mend.
const NOTHING: u8 = 1;

/// The server's code for a node that has children.
const NOT_EMPTY: i32 = -111;

pub(crate) fn forget(client: &Client, forget: &Forget) -> Result<u8, Failure> {
    let (job, path) = (client.job(&forget.path)?, plain(&forget.path));
    let done = match &forget.slot {
        Some(slot) => forgotten_slot(&job, &path, slot),
        None if forget.repair => repair(&job, &path),
        None => forgotten(&job, &path),
    };
    let code = match done {
        Err(Error::Refused {
            code: NOT_EMPTY, ..
        }) => return Err(refused(client, forget, &path)),
        done => done.map_err(|error| failure(client, &forget.path, error))?,
    };
    Ok(code)
}

/// Says why the path is left as it is.
fn refused(client: &Client, forget: &Forget, path: &str) -> Failure {
    let what = if forget.repair { "mended" } else { "forgotten" };
    let why = match forget.repair {
        false if forget.slot.is_some() => "somebody runs it",
        _ if has_only_others_below(client, &forget.path) => "there are nodes below it",
        true => "somebody uses it",
        false => "somebody runs it, waits for it or has it on hold",
    };
    Failure::other(format!(
        "{path} is not {what}, because {why}: see zklock list {path}"
    ))
}

/// Returns whether the path is nobody's now, and has other nodes below it.
fn has_only_others_below(client: &Client, path: &str) -> bool {
    let is_free = client.contenders(path).is_ok_and(|all| all.is_empty());
    is_free && client.strangers(path).is_ok_and(|below| !below.is_empty())
}

fn forgotten(job: &Job, path: &str) -> zklock::Result<u8> {
    let Some(last) = job.forget()? else {
        say(&format!("{path} was never run"));
        return Ok(NOTHING);
    };
    let last = plain(&last.to_string());
    say(&format!("{path} is forgotten, the last of it: {last}"));
    Ok(0)
}

fn forgotten_slot(job: &Job, path: &str, slot: &str) -> zklock::Result<u8> {
    let known = job.forget_slot(slot)?;
    let slot = plain(slot);
    say(&match known {
        true => format!("slot {slot} of {path} is forgotten, and to be run again"),
        false => format!("slot {slot} of {path} is not done: there is nothing to forget"),
    });
    Ok(if known { 0 } else { NOTHING })
}

fn repair(job: &Job, path: &str) -> zklock::Result<u8> {
    let Some(data) = job.repair()? else {
        say(&format!("{path} has no broken record"));
        return Ok(NOTHING);
    };
    let data = plain(&String::from_utf8_lossy(&data));
    say(&format!(
        "{path} has an empty record, and no run is known any more; there stood: {data:?}"
    ));
    Ok(0)
}
