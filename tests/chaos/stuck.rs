//! The description of a call that does not return: who waits, behind which node, and as which
//! server sees it.
//!
//! The queue is shown as each server sees it, because a server's data may differ from its leader's.
//! The nodes are shown with their owners, because a node whose session has ended belongs to nobody.

use std::fmt::Write;
use std::time::Duration;

use crate::cluster::{Run, SERVERS};
use crate::history::What;
use crate::ops::{Op, gather};
use crate::support::raw::Raw;
use crate::workload::ROOT;

/// Returns the calls that have not ended, and what each server has below the locks' root.
pub(crate) fn describe(run: &Run) -> String {
    let mut text = String::from("calls that are not over:\n");
    let history = run.history();
    let died: Vec<_> = history
        .iter()
        .filter(|entry| matches!(entry.what, What::Died))
        .map(|entry| entry.who)
        .collect();
    for op in gather(&history) {
        if died.contains(&op.who) {
            continue;
        }
        if op.over_at().is_none() || op.granted.is_some() && op.released.is_none() {
            writeln!(text, "  {}", told(&op)).expect("a string takes it");
        }
    }
    for i in 0..SERVERS {
        let sessions = run.ensemble.server(i).four_letter("dump");
        let sessions = sessions.unwrap_or_else(|error| error.to_string());
        let tree = tree(run, i);
        writeln!(text, "server {i} has:\n{tree}{sessions}").expect("a string takes it");
    }
    text
}

/// Returns what a server has below the locks' root, one line per node.
pub(crate) fn tree(run: &Run, server: usize) -> String {
    let hosts = run.ensemble.server(server).hosts();
    let mut text = String::new();
    // The session ends soon, and does not hold up a test that counts sessions.
    let mut raw = Raw::connect_with(&hosts, Duration::from_secs(2));
    tell_tree(&mut raw, ROOT, &mut text);
    text
}

fn told(op: &Op) -> String {
    let Op {
        kind, paths, limit, ..
    } = op;
    let session = op.queued.map(|(_, session)| format!("{session:#x}"));
    let granted = op.granted.as_ref().map(|grant| &grant.tokens);
    format!(
        "{}: {kind:?} of {paths:?}, limit {limit:?}, queued in session {session:?}, \
         granted {granted:?}",
        op.name()
    )
}

fn tell_tree(raw: &mut Raw, path: &str, text: &mut String) {
    for name in raw.children(path).unwrap_or_default() {
        let node = format!("{path}/{name}");
        let Some(stat) = raw.stat(&node) else {
            continue;
        };
        let (owner, zxid) = (stat.owner, stat.czxid);
        writeln!(text, "  {node} of {owner:#x}, created by {zxid:#x}").expect("a string takes it");
        tell_tree(raw, &node, text);
    }
}
