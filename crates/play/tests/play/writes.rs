//! Writes under a guard, and with a release. Each happens at most once, and only while the node of its guard
//! exists or in the transaction that deletes it. Its thread is told what the servers did.

use std::collections::BTreeMap;
use std::rc::Rc;

use zklock_jute::{ErrorCode, Request};
use zklock_play::{Ask, GuardId, Outcome};

use crate::client::Waits;
use crate::servers::Time;
use crate::servers::tree::Node;
use crate::world::World;

/// The node that all writes change.
pub(crate) const WRITTEN: &str = "/w";

/// The lock that a write was under, and whether it went with its release.
type Write = (usize, bool);

/// The results of the writes of a run.
#[derive(Default)]
pub(crate) struct Writes {
    asked: BTreeMap<Write, Asked>,
    /// The writes that the servers have carried out.
    done: BTreeMap<Write, Time>,
    /// The writes of which a thread was told that they are not done, and never will be.
    void: BTreeMap<Write, Outcome>,
}

#[derive(Clone, Copy)]
struct Asked {
    at: Time,
    /// Until when the lock could be trusted.
    until: Time,
}

impl World {
    /// Creates the node that all writes change.
    pub(crate) fn begin_writes(&mut self) {
        let nodes = Rc::new(BTreeMap::from([(WRITTEN.into(), Node::default())]));
        for server in &mut self.servers {
            server.tree.nodes = nodes.clone();
        }
    }

    /// Returns what a thread writes under its lock, or with its release.
    fn writing(&mut self, op: usize, leaves: bool) -> Vec<Request> {
        let until = self.ops[op].trust.until;
        let asked = Asked {
            at: self.now,
            until,
        };
        self.writes.asked.insert((op, leaves), asked);
        let version = match self.ops[op].want.is_refused {
            true => i32::MAX,
            false => -1,
        };
        vec![Request::SetData {
            path: WRITTEN.into(),
            data: format!("{op} {leaves}").into_bytes().into(),
            version,
        }]
    }

    /// Returns what a thread writes with its release, if anything.
    pub(crate) fn farewell(&mut self, op: usize) -> Vec<Request> {
        match self.ops[op].want.leaves {
            true => self.writing(op, true),
            false => Vec::new(),
        }
    }

    pub(crate) fn commits(&mut self, (client, thread): (usize, usize), op: usize, guard: GuardId) {
        let ops = self.writing(op, false);
        let ask = Ask::Commit { guard, ops };
        self.ticket(client, thread, ask, Waits::Commit(op));
    }

    /// Judges a write that the servers have carried out, in a transaction that has deleted this node, if any.
    pub(crate) fn judge_write(&mut self, data: &[u8], deleted: Option<&str>) {
        let text = String::from_utf8_lossy(data).into_owned();
        let Some((op, leaves)) = text.split_once(' ') else {
            return;
        };
        let (Ok(op), Ok(leaves)) = (op.parse::<usize>(), leaves.parse::<bool>()) else {
            return;
        };
        self.seen.written += 1;
        let node = self.ops[op].node.clone().unwrap_or_default();
        let life = self.lives.iter().rev().find(|life| life.path == node);
        let stands = match leaves {
            true => deleted == Some(&*node),
            false => life.is_some_and(|life| life.to.is_none()),
        };
        if !stands {
            return self.fail(format!("op {op} writes, and {node} does not stand"));
        }
        if self.writes.done.insert((op, leaves), self.now).is_some() {
            return self.fail(format!("op {op} writes twice"));
        }
        if let Some(told) = self.writes.void.get(&(op, leaves)) {
            let told = told.clone();
            self.fail(format!("op {op} writes although it was told {told:?}"));
        }
    }

    /// Judges what a thread is told about its write.
    pub(crate) fn judge_writing(&mut self, (op, leaves): Write, outcome: &Outcome) {
        let asked = self.writes.asked[&(op, leaves)];
        let done = self.writes.done.contains_key(&(op, leaves));
        let client = &self.clients[self.ops[op].client];
        let unanswered = asked.at <= client.broke_at || asked.until <= self.now || client.is_closed;
        let refused = self.ops[op].want.is_refused;
        let quiet = self.plan.is_quiet();
        let is_right = match outcome {
            Outcome::Committed => done && !leaves,
            Outcome::Released => done && leaves,
            Outcome::StepRefused(0, ErrorCode::BAD_VERSION) => refused && !done,
            Outcome::Lost(_) => !done && !quiet && (leaves || !self.is_valid(op)),
            Outcome::GaveUp { .. } => !done && !quiet && !leaves,
            Outcome::InDoubt => !quiet && unanswered,
            _ => false,
        };
        self.seen.doubted += u64::from(*outcome == Outcome::InDoubt);
        if !is_right {
            let written = if done { "is written" } else { "is not written" };
            return self.fail(format!("op {op} {written}, and is told {outcome:?}"));
        }
        if !done && *outcome != Outcome::InDoubt {
            self.writes.void.insert((op, leaves), outcome.clone());
        }
        if leaves && *outcome != Outcome::Released {
            self.judge_late(op);
        }
    }
}
