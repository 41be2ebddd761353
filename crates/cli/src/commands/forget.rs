//! Forgets all runs of a job or one slot, or gives the job a record where its own was replaced.

use zklock::{Client, Error, Job};

use crate::args::Forget;
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
        }) => {
            let what = match forget.repair {
                false if forget.slot.is_some() => "forgotten, because somebody runs it",
                true => "mended, because somebody uses it",
                false => "forgotten, because somebody runs it, waits for it or has it on hold",
            };
            let list = format!("{path} is not {what}: see zklock list {path}");
            return Err(Failure::other(list));
        }
        done => done?,
    };
    Ok(code)
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
