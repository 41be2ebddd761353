//! Tries everything that a lock needs, below a node of its own.

use std::result::Result as StdResult;
use std::time::{Duration, SystemTime};

use zklock::{Client, Error, MutexGuard, Result};

use super::finding::{Finding, Level};
use crate::table::brief;

/// Clocks that differ by more than this make the times in lists hard to read.
const ODD: Duration = Duration::from_secs(60);

/// How long servers may take to grant a lock that nobody else takes.
const PATIENCE: Duration = Duration::from_secs(15);

/// Takes a lock that nobody else takes, asks the quorum, writes, and cleans up. Fails if no server
/// answers any more: nothing else can be asked then.
pub(super) fn go_through(client: &Client, path: Option<&str>) -> StdResult<Vec<Finding>, Finding> {
    let above = path.map_or("", |path| lowest_above(client, path));
    let base = format!("{above}/zklock-doctor-{}", uuid::Uuid::new_v4());
    let about = if above.is_empty() { "/" } else { above };
    let refused = |error: Error| {
        let what = format!("no lock can be taken here: {error}");
        Finding::new(Level::Trouble, about, what)
    };
    let tried = match go(client, &base, path) {
        Err(error @ Error::ConnectTimeout { .. }) => return Err(refused(error)),
        tried => tried,
    };
    // A failed deletion is reported below.
    let tidied = client.nodes().delete_all(&base);
    let mut findings = match tried {
        Ok((clock, closed)) => {
            let good = "a lock can be taken, proven, written under and given back here";
            let found = [Finding::good(about, good), clock_of_the_servers(clock)];
            found.into_iter().chain(closed).collect()
        }
        Err(Error::NoAuth { path: node }) => vec![no_right(client, about, path, &node)],
        Err(error) => vec![refused(error)],
    };
    if let Err(error) = tidied {
        let what = format!("{base} could not be deleted: {error}");
        findings.push(Finding::new(Level::Warning, about, what).advice("delete it"));
    }
    Ok(findings)
}

/// A path that does not exist needs the right that was refused; one that does exist has a list of its own.
fn no_right(client: &Client, about: &str, path: Option<&str>, refused: &str) -> Finding {
    match path.filter(|path| matches!(client.nodes().exists(path), Ok(false))) {
        Some(path) => Finding::new(
            Level::Trouble,
            about,
            format!("no right to create nodes here, and {path} does not exist"),
        )
        .advice(format!(
            "set ZKLOCK_AUTH, or change the access control list of {about}"
        )),
        None => Finding::new(Level::Warning, about, format!("no right to {refused}"))
            .advice("set ZKLOCK_AUTH, or a PATH below which locks are taken"),
    }
}

/// Returns the lowest existing node above a path. A trial of an unused path must leave no nodes of
/// that path behind.
fn lowest_above<'a>(client: &Client, path: &'a str) -> &'a str {
    let mut above = path;
    while let Some((parent, _)) = above.rsplit_once('/') {
        above = parent;
        // A client that is not allowed to look there is not allowed to create there either.
        if above.is_empty() || !matches!(client.nodes().exists(above), Ok(false)) {
            break;
        }
    }
    above
}

/// Returns a warning if no nodes may be created below a path that exists: a mutex there needs that.
fn closed(guard: &MutexGuard, base: &str, path: &str) -> Option<Finding> {
    let (node, missing) = (format!("{path}/zklock-doctor"), format!("{base}/missing"));
    // The second step always fails, so nothing changes.
    let tried = guard.transaction().create(&node, b"").delete(&missing);
    let refused = matches!(tried.commit(), Err(Error::NoAuth { .. }));
    let finding = || Finding::new(Level::Warning, path, "no right to create nodes here");
    let advice = format!("set ZKLOCK_AUTH, or change the access control list of {path}");
    refused.then(|| finding().advice(advice))
}

/// Tries the operations; returns how far the servers' clock is ahead, and whether the path is closed.
fn go(client: &Client, base: &str, path: Option<&str>) -> Result<(i128, Option<Finding>)> {
    let guard = client.mutex(base)?.try_lock_for(PATIENCE)?;
    let guard = guard.ok_or_else(|| Error::GaveUp {
        path: base.to_owned(),
    })?;
    guard.verify()?;
    let (node, before) = (format!("{base}/written"), SystemTime::now());
    guard.transaction().create(&node, b"").commit()?;
    let written = client
        .nodes()
        .get(&node)?
        .map_or(before, |node| node.modified());
    let closed = path.and_then(|path| closed(&guard, base, path));
    guard.unlock()?;
    let millis = |time: SystemTime| {
        let since = time.duration_since(SystemTime::UNIX_EPOCH);
        since.unwrap_or_default().as_millis() as i128
    };
    Ok((millis(written) - millis(before), closed))
}

fn clock_of_the_servers(ahead: i128) -> Finding {
    let by = Duration::from_millis(ahead.unsigned_abs() as u64);
    let side = if ahead < 0 { "behind" } else { "ahead of" };
    if by < Duration::from_secs(1) {
        return Finding::good("all servers", "their clock is this machine's");
    }
    let finding = |level| {
        Finding::new(
            level,
            "all servers",
            format!("their clock is {} {side} this machine's", brief(by)),
        )
    };
    match by < ODD {
        true => finding(Level::Good),
        false => finding(Level::Warning).advice("no lock goes by it, but the times in lists do"),
    }
}
