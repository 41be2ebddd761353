//! Keeps all clients that come from now on from beginning.

use std::io::{self, Write};

use zklock::{Client, Contender, Error};

use crate::args::Pause;
use crate::commands::hold::{present, wanted};
use crate::failure::{Failure, written};
use crate::sanitize::plain;
use crate::stderr::say;
use crate::table::named;

pub(crate) fn pause(client: &Client, pause: &Pause) -> Result<u8, Failure> {
    let path = plain(&pause.path);
    let hold = wanted(&pause.reason, pause.lasting, pause.until);
    let node = client.pause(&pause.path, &hold);
    let node = node.map_err(|error| refused(&path, error))?;
    let Some(present) = present(client, &pause.path) else {
        return Ok(0);
    };
    let below = client.strangers(&pause.path).unwrap_or_default();
    let Some(place) = present.iter().position(|one| one.node() == node) else {
        say(&format!("{path} is free again: somebody has resumed it"));
        return Ok(0);
    };
    let hold = named(&present[place]);
    written(writeln!(io::stdout(), "{path} is {hold}"))?;
    tell_who_goes_on(&path, &present[..place]);
    if !below.is_empty() {
        let count = below.len();
        say(&format!(
            "{path} has {count} nodes below it, which this does not pause: it pauses {path} alone"
        ));
    }
    Ok(0)
}

/// Reports the contenders ahead, which do not wait for the pause.
fn tell_who_goes_on(path: &str, ahead: &[Contender]) {
    let (holders, line): (Vec<_>, Vec<_>) = ahead.iter().partition(|one| one.holds());
    for holder in holders {
        match holder.hold() {
            Some(hold) => say(&format!(
                "{path} was before that {}",
                plain(&hold.to_string())
            )),
            None => say(&format!("{} has {path}, and goes on", named(holder))),
        }
    }
    if !line.is_empty() {
        let count = line.len();
        say(&format!(
            "in line before the pause, and before it in turn: {count}"
        ));
    }
}

fn refused(path: &str, error: Error) -> Failure {
    match error {
        Error::ForeignContender { node, .. } if node.ends_with("/leases") => {
            Failure::of_a_semaphore(path, "pause")
        }
        error => error.into(),
    }
}
