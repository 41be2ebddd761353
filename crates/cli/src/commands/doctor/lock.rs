//! Examines one lock: its contenders, and whether they exclude each other.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use zklock::diagnostics::LockQueue;
use zklock::{Client, Contender, Dialect, Error};

use super::finding::{Finding, Level};
use super::neighbours::strangers;
use super::server::View;
use super::words::{Said, ask};
use crate::table::{brief, has_session, who};

/// The share of used numbers at which a directory should be recreated.
const NEARLY_ALL: f64 = 0.9;

/// How long a leader may take to list its sessions.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) fn look(
    client: &Client,
    path: &str,
    (older_than, dialect): (Option<Duration>, Dialect),
    servers: &[View],
) -> Vec<Finding> {
    let queues = match client.locks(path) {
        Ok(queues) => queues,
        Err(error) => return vec![Finding::new(Level::Trouble, path, error.to_string())],
    };
    if queues.unreadable().iter().any(|node| node == path) {
        return vec![unreadable(client, path)];
    }
    let Some(queue) = queues.iter().find(|queue| queue.path() == path) else {
        return unused(client, path);
    };
    let (holders, waiters) = (queue.holders().count(), queue.waiters().count());
    let present = format!("holders: {holders}, waiters: {waiters}");
    let mut findings = vec![Finding::good(path, present)];
    findings.extend(strangers(queue, dialect));
    findings.extend(numbers(queue));
    findings.extend(old_holders(queue, older_than));
    findings.extend(asked_to_leave(queue));
    findings.extend(holds(queue));
    findings.extend(ghosts(client, queue, servers));
    findings.extend(circle(client, path));
    findings
}

/// Says why a path's children cannot be read.
fn unreadable(client: &Client, path: &str) -> Finding {
    let trouble = |what: String| Finding::new(Level::Trouble, path, what);
    match client.contenders(path) {
        Err(error) if !matches!(error, Error::NoAuth { .. }) => trouble(error.to_string()),
        _ => trouble("it may not be read with these credentials".to_owned())
            .advice("set ZKLOCK_AUTH"),
    }
}

/// Examines a lock that no session holds or waits for: a node of no session keeps it from all that come.
fn unused(client: &Client, path: &str) -> Vec<Finding> {
    let contenders = match client.contenders(path) {
        Ok(contenders) => contenders,
        Err(error) => return vec![Finding::new(Level::Trouble, path, error.to_string())],
    };
    let left: Vec<_> = contenders.iter().filter_map(left_behind).collect();
    match left.is_empty() {
        true => vec![Finding::good(path, "nobody holds it or waits for it")],
        false => left.iter().map(|what| ghost(path, what)).collect(),
    }
}

/// Reports a deadlock that keeps the lock from its waiters.
fn circle(client: &Client, path: &str) -> Option<Finding> {
    let blockers = match client.blockers(path, "/") {
        Ok(blockers) => blockers,
        Err(error) => return Some(Finding::new(Level::Warning, path, error.to_string())),
    };
    let circle = blockers.deadlock()?;
    let what = format!("a deadlock: {}", circle.join(", "));
    Some(Finding::new(Level::Trouble, path, what).advice("zklock why tells who is in it"))
}

fn numbers(queue: &LockQueue) -> Option<Finding> {
    let used = queue.numbers_used();
    let what = format!("{:.0}% of its sequence numbers are used up", 100.0 * used);
    let advice = "delete the directory while it is idle";
    match used {
        used if 1.0 <= used => {
            Some(Finding::new(Level::Trouble, queue.path(), what).advice(advice))
        }
        used if NEARLY_ALL <= used => {
            Some(Finding::new(Level::Warning, queue.path(), what).advice(advice))
        }
        _ => None,
    }
}

fn old_holders(queue: &LockQueue, older_than: Option<Duration>) -> Vec<Finding> {
    let Some(limit) = older_than else {
        return Vec::new();
    };
    let age = |one: &Contender| {
        SystemTime::now()
            .duration_since(one.since())
            .unwrap_or_default()
    };
    let old = queue
        .holders()
        .filter(|one| limit < age(one) && one.hold().is_none());
    let finding = |one: &Contender| {
        let what = format!(
            "{} has been there for {}",
            who(one.owner()),
            brief(age(one))
        );
        Finding::new(Level::Warning, queue.path(), what)
            .advice("look whether it is at work; zklock revoke asks for the lock")
    };
    old.map(finding).collect()
}

/// Reports holders and waiters whose nodes contain a request to leave instead of their card.
fn asked_to_leave(queue: &LockQueue) -> Vec<Finding> {
    let asked =
        |one: &&Contender| matches!(one.owner().text.as_deref(), Some("__REVOKE__" | "unlock"));
    let finding = |one: &Contender| {
        let node = one.node().rsplit('/').next().unwrap_or_default();
        let what = format!("{node} was asked to let go, and has not yet");
        Finding::new(Level::Warning, queue.path(), what)
            .advice("zklock revoke --evict-after deletes its node")
    };
    queue
        .contenders()
        .iter()
        .filter(asked)
        .map(finding)
        .collect()
}

/// Reports what keeps the lock without a session, and whether that is over.
fn holds(queue: &LockQueue) -> Vec<Finding> {
    let finding = |one: &Contender| {
        let hold = one.hold()?;
        let finding = |level| Finding::new(level, queue.path(), format!("it is {hold}"));
        Some(match hold.seems_over() {
            false => finding(Level::Good),
            true => finding(Level::Warning)
                .advice("zklock release ends it, and so does who waits with zklock next"),
        })
    };
    queue.contenders().iter().filter_map(finding).collect()
}

/// Reports nodes that will not leave: they have no session, or one that the leader does not know.
fn ghosts(client: &Client, queue: &LockQueue, servers: &[View]) -> Vec<Finding> {
    let id = |one: &Contender| format!("{:#x}", one.session_id());
    let mut known = tracked(servers);
    if let Some(known) = &mut known {
        // The list may miss a session that is touched meanwhile, because that moves it to another row.
        if queue
            .contenders()
            .iter()
            .any(|one| !known.contains(&id(one)))
        {
            known.extend(tracked(servers).unwrap_or_default());
        }
    }
    if let Some(first) = queue.contenders().first() {
        // This makes the server catch up with the leader.
        let _ = client.is_current(queue.path(), first.token());
    }
    let what = |one: &Contender| {
        if !has_session(one) {
            return left_behind(one);
        }
        let known = known.as_ref()?;
        let gone = !known.contains(&id(one));
        // The node may have been deleted before the leader answered.
        let stays = || matches!(client.nodes().exists(one.node()), Ok(true));
        (gone && stays()).then(|| {
            let node = one.node();
            format!("the session of {node} has ended, and its node is there")
        })
    };
    let all = queue.contenders().iter().filter_map(what);
    all.map(|what| ghost(queue.path(), &what)).collect()
}

/// Returns what is wrong with a node without a session, unless that is a hold.
fn left_behind(one: &Contender) -> Option<String> {
    let is_left = !has_session(one) && one.hold().is_none();
    is_left.then(|| format!("{} is of no session, and stays", one.node()))
}

fn ghost(path: &str, what: &str) -> Finding {
    Finding::new(Level::Trouble, path, what)
        .advice("look again; if it stays, zklock revoke --evict-after 0 --node")
}

/// Returns the sessions that the leader lists, if it does.
fn tracked(servers: &[View]) -> Option<HashSet<String>> {
    let leads = |view: &&View| matches!(view.role.as_deref(), Some("leader" | "standalone"));
    let leader = servers.iter().find(leads);
    match leader.map(|view| ask(&view.server, "dump", PATIENCE)) {
        Some(Said::Text(dump)) => sessions(&dump),
        _ => None,
    }
}

/// Returns the sessions in a leader's answer to `dump`. The nodes of all sessions are listed after
/// them, even those of a session that has ended.
fn sessions(dump: &str) -> Option<HashSet<String>> {
    let (_, tracked) = dump.split_once("SessionTracker dump:")?;
    let (tracked, _) = tracked.split_once("ephemeral nodes dump:")?;
    let ids = tracked
        .split_whitespace()
        .filter(|word| word.starts_with("0x"));
    Some(ids.map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_with_nodes_is_none_that_is_alive() {
        // This is the answer as ZooKeeper 3.8 writes it.
        let dump = "SessionTracker dump:\nSession Sets (1)/(1):\n1 expire at Mon Nov 23 12:00:00 UTC 2026:\n\t0x100000b5f0001\n\
            ephemeral nodes dump:\nSessions with Ephemerals (2):\n0x100000b5f000:\n\t/locks/a/lock-0000000000\n\
            Connections dump:\n";
        let known = sessions(dump).expect("a list");
        assert!(known.contains("0x100000b5f0001"));
        assert!(!known.contains("0x100000b5f000"));
        assert!(sessions("This ZooKeeper instance is not currently serving requests").is_none());
    }
}
