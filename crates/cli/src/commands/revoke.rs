//! Asks the holders of a lock to release it, and finally evicts them.

use std::time::Instant;

use crossbeam_channel::never;
use zklock::{Client, Contender, Error};

use crate::args::Revoke;
use crate::failure::Failure;
use crate::sanitize::plain;
use crate::stderr::say;
use crate::table::{has_session, named, who};

/// The exit status if there is no contender to ask.
const NOBODY: u8 = 1;

pub(crate) fn revoke(client: &Client, revoke: &Revoke) -> Result<u8, Failure> {
    let present = client.contenders(&revoke.path)?;
    let (held, asked): (Vec<_>, Vec<_>) = chosen(revoke, &present)
        .into_iter()
        .partition(|one| one.hold().is_some());
    for hold in &held {
        let path = plain(&revoke.path);
        say(&format!(
            "{path} is {}: zklock release ends it",
            named(hold)
        ));
    }
    if asked.is_empty() && !held.is_empty() {
        return Ok(NOBODY);
    }
    if asked.is_empty() {
        say(&match &revoke.node {
            Some(node) => format!("{node} is not at {}: see zklock list", revoke.path),
            None => format!("nobody holds {}", revoke.path),
        });
        return Ok(NOBODY);
    }
    for contender in &asked {
        ask(contender, revoke.evict_after.is_some())?;
    }
    if let Some(limit) = revoke.evict_after {
        let deadline = Instant::now().checked_add(limit);
        for contender in asked {
            evict(client, &revoke.path, contender, deadline)?;
        }
    }
    Ok(0)
}

/// Returns the holders, or the contender that the user named.
fn chosen<'a>(revoke: &Revoke, present: &'a [Contender]) -> Vec<&'a Contender> {
    let chosen = present.iter().filter(|one| match &revoke.node {
        Some(node) => one.node() == node || one.node().rsplit('/').next() == Some(node),
        None => one.holds(),
    });
    chosen.collect()
}

/// Asks the contender to release, unless no client would get the request and it `is_evicted` next.
fn ask(contender: &Contender, is_evicted: bool) -> Result<(), Failure> {
    if is_evicted && !has_session(contender) {
        return Ok(());
    }
    match contender.revoke() {
        Err(error @ Error::Unsupported { .. }) if is_evicted => say(&error.to_string()),
        asked => {
            asked?;
            tell("asked", contender);
        }
    }
    Ok(())
}

/// Waits until the contender has gone, and evicts it at the deadline.
fn evict(
    client: &Client,
    path: &str,
    contender: &Contender,
    deadline: Option<Instant>,
) -> Result<(), Failure> {
    let mut present = client.contenders(path)?;
    while present.iter().any(|other| is_same(contender, other)) {
        let changed = client.wait_for_change_until(path, &present, deadline, &never())?;
        let Some(changed) = changed else {
            contender.evict()?;
            tell("evicted", contender);
            return Ok(());
        };
        present = changed;
    }
    tell("let go:", contender);
    Ok(())
}

fn is_same(one: &Contender, other: &Contender) -> bool {
    one.node() == other.node() && one.token() == other.token()
}

fn tell(what: &str, contender: &Contender) {
    use std::io::Write;

    let line = format!(
        "{what} {} {}",
        who(contender.owner()),
        plain(contender.node())
    );
    drop(writeln!(std::io::stdout(), "{line}"));
}
