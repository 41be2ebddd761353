//! Tells which client keeps a lock from its first waiter.

use std::io::{self, Write};
use std::time::SystemTime;

use console::style;
use serde_json::json;
use zklock::Client;
use zklock::diagnostics::{Blocker, Blockers};

use crate::args::Why;
use crate::commands::overview::tell_what_was_not_read;
use crate::failure::{Failure, written};
use crate::sanitize::{plain, plain_json};
use crate::table::{brief, millis, one, who};

/// The exit statuses if no client holds the lock, and if there is a deadlock.
const FREE: u8 = 1;
const DEADLOCK: u8 = 2;

pub(crate) fn why(client: &Client, why: &Why) -> Result<u8, Failure> {
    let blockers = client.blockers(&why.path, &why.root)?;
    written(match why.json {
        true => show_json(why, &blockers),
        false => show(why, &blockers),
    })?;
    if blockers.iter().any(may_wait_unseen) {
        tell_what_was_not_read(blockers.unreadable());
    }
    Ok(match (blockers.deadlock(), blockers.iter().next()) {
        (Some(_), _) => DEADLOCK,
        (None, None) => FREE,
        (None, Some(_)) => 0,
    })
}

/// Returns whether the holder may wait for a lock that could not be read.
fn may_wait_unseen(blocker: &Blocker) -> bool {
    blocker.waits_for().is_none() && blocker.holder().hold().is_none()
}

fn show(why: &Why, blockers: &Blockers) -> io::Result<()> {
    let mut to = io::stdout().lock();
    if blockers.iter().next().is_none() {
        return writeln!(to, "nobody holds {}", plain(&why.path));
    }
    for blocker in blockers.iter() {
        writeln!(to, "{}", line(why, blocker))?;
    }
    if let Some([path]) = blockers.deadlock() {
        writeln!(
            to,
            "{}: the holder of {} waits for it once more",
            style("deadlock").red(),
            plain(path)
        )?;
    } else if let Some(circle) = blockers.deadlock() {
        let circle: Vec<_> = circle
            .iter()
            .chain(circle.first())
            .map(|path| plain(path))
            .collect();
        writeln!(
            to,
            "{}: {}: have one of them let go, with zklock revoke",
            style("deadlock").red(),
            circle.join(" waits for ")
        )?;
    }
    to.flush()
}

fn line(why: &Why, blocker: &Blocker) -> String {
    let (path, holder) = (plain(blocker.path()), blocker.holder());
    let age = SystemTime::now()
        .duration_since(holder.since())
        .unwrap_or_default();
    let does = match blocker.waits_for() {
        Some(other) => format!("waits for {}", plain(other)),
        None if why.root == "/" => "waits for no lock".to_owned(),
        None => format!("waits for no lock below {}", plain(&why.root)),
    };
    if let Some(hold) = holder.hold() {
        let hold = plain(&hold.to_string());
        return format!("{path} is {hold}: zklock release ends it");
    }
    format!(
        "{path} is held by {}, which came {} ago and {does}",
        who(holder.owner()),
        brief(age)
    )
}

fn show_json(why: &Why, blockers: &Blockers) -> io::Result<()> {
    let all = blockers.iter().map(|blocker| {
        json!({
            "path": blocker.path(),
            "holder": one(1, blocker.holder()),
            "waits_for": blocker.waits_for(),
        })
    });
    let value = json!({
        "path": why.path,
        "asked_ms": millis(SystemTime::now()),
        "blockers": all.collect::<Vec<_>>(),
        "deadlock": blockers.deadlock(),
        "unreadable": blockers.unreadable(),
    });
    writeln!(io::stdout().lock(), "{}", plain_json(&format!("{value:#}")))
}
