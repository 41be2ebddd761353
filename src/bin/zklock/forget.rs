//! Forgets what a job has done.

use std::time::Duration;

use zklock::Error;

use crate::args::{Args, Forget};
use crate::connect::connect;
use crate::failure::Failure;
use crate::sanitize::plain;
use crate::stderr::say;

/// The exit status if there was nothing to forget.
const NOTHING: u8 = 1;

/// What a server answers for a node that has children.
const NOT_EMPTY: i32 = -111;

/// Deletes the job's node, which is refused while there is a contender below it.
pub(crate) fn forget(args: &Args, forget: &Forget) -> Result<u8, Failure> {
    let client = connect(args, None, Duration::MAX)?;
    let (job, path) = (client.job(&forget.path)?, plain(&forget.path));
    let known = [job.last()?, job.last_failure()?, job.running()?];
    let Some(run) = known.into_iter().flatten().next() else {
        say(&format!("{path} was never run"));
        return Ok(NOTHING);
    };
    match client.nodes().delete(&forget.path) {
        Ok(_) => say(&format!(
            "{path} is forgotten, the last of it: {}",
            plain(&run.to_string())
        )),
        Err(Error::Refused {
            code: NOT_EMPTY, ..
        }) => {
            let what = format!(
                "{path} is not forgotten, because somebody runs it or waits for it: see zklock list {path}"
            );
            return Err(Failure::other(what));
        }
        Err(error) => return Err(error.into()),
    }
    drop(client.close());
    Ok(0)
}
