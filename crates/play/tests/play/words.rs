//! The notes of orderly releases: a note tells only of holders that released in order, the data that others keep
//! in a directory stay, and a holder that is told that those ahead released in order is told the truth.

use zklock_core::release_note::Note;
use zklock_jute::Request;

use crate::client::Op;
use crate::world::{Life, PATHS, World};

fn name(node: &str) -> &str {
    node.rsplit_once('/').map_or(node, |(_, name)| name)
}

impl World {
    /// Lets another program write this into a node.
    pub(crate) fn writes_elsewhere(&mut self, path: String, data: &[u8]) {
        self.tells_servers(Request::SetData {
            path,
            data: data.to_vec().into(),
            version: -1,
        });
    }

    /// Judges a session's write to the data of a lock's directory, in a transaction that has deleted this node, if
    /// any.
    pub(crate) fn judge_note(
        &mut self,
        (dir, data): (&str, &[u8]),
        session: i64,
        deleted: Option<&str>,
    ) {
        if session == 0 {
            self.foreign.push(dir.to_owned());
            return;
        }
        if self.foreign.iter().any(|foreign| foreign == dir) {
            return self.fail(format!(
                "a note replaces what another program wrote into {dir}"
            ));
        }
        let Some(node) = deleted else {
            return self.fail(format!(
                "a note is written into {dir}, and nobody releases it"
            ));
        };
        self.seen.noted += 1;
        // The deletion with the note was carried out, so an eviction was lost or came later.
        let was_asked_for = self.evicted.iter().any(|evicted| evicted == node);
        let of_node = |op: &&mut Op| op.node.as_deref() == Some(node);
        for op in self.ops.iter_mut().filter(of_node) {
            op.was_orderly |= was_asked_for && op.released.is_some();
        }
        let holders = self
            .ops
            .iter()
            .filter(|op| op.node.as_deref() == Some(node));
        let in_order = holders.clone().count() != 0 && holders.clone().all(|op| op.was_orderly);
        let tells = Note::parse(data).is_some_and(|note| note.tells_of(name(node)));
        if !in_order || !tells {
            self.fail(format!(
                "a note tells of {node}, which was not released in order"
            ));
        }
    }

    /// Returns the holders whose nodes were ahead of this op's.
    fn holders_ahead(&self, op: usize) -> Vec<(&Life, Vec<&Op>)> {
        let one = &self.ops[op];
        let node = one.node.as_deref().unwrap_or_default();
        let mine = self.lives.iter().find(|life| &*life.path == node);
        let ahead = self.lives.iter().filter(|life| {
            let late = mine.is_some_and(|mine| life.to.is_some_and(|to| mine.from <= to));
            late && life.is_ahead_of(PATHS[one.want.path], node)
        });
        let of = |life: &Life| {
            let ops = self.ops.iter();
            let of = ops.filter(|op| op.node.as_ref() == Some(&life.path));
            of.collect()
        };
        ahead.map(|life| (life, of(life))).collect()
    }

    /// Returns whether the last holder before this one released in order, and so did all threads among which it
    /// passed the lock on. A later one's release in order stands for it too, if it is heard of so late.
    fn was_left_in_order(&self, op: usize) -> bool {
        let one = &self.ops[op];
        // An evicted node may be handed on although the next node has its turn already.
        let number = |op: &Op| {
            op.node
                .as_ref()
                .map(|node| node[node.len() - 10..].to_owned())
        };
        let had_it = |other: &&Op| other.want.path == one.want.path && other.granted.is_some();
        let had_it = || self.ops.iter().filter(had_it);
        if had_it().any(|other| number(one) < number(other) && other.was_orderly) {
            return true;
        }
        let earlier = had_it().filter(|other| number(other) < number(one));
        let last = earlier.max_by_key(|other| number(other));
        last.is_some_and(|last| {
            let mut holders = self.ops.iter().filter(|other| other.node == last.node);
            holders.all(|other| other.was_orderly)
        })
    }

    /// Judges what a holder is told about how those ahead left.
    pub(crate) fn judge_follows(&mut self, op: usize, released: bool) {
        self.ops[op].is_told = true;
        self.seen.followed += u64::from(released);
        let ahead = self.holders_ahead(op);
        let wrong = match released {
            // The holder had seen every earlier one go, and was told how they left.
            true => (!self.was_left_in_order(op)).then_some("the last one ahead did not"),
            false => {
                let fast = self.trips(3, 6);
                let left_a_note = |ops: &[&Op]| {
                    ops.last().is_some_and(|op| {
                        let long = op.granted.zip(op.released);
                        long.is_some_and(|(from, to)| from + fast < to) && !op.want.leaves
                    })
                };
                let known = ahead.iter().all(|(_, ops)| left_a_note(ops));
                (self.plan.is_quiet() && known).then_some("all ahead left a note")
            }
        };
        if let Some(why) = wrong {
            self.fail(format!(
                "op {op} is told that those ahead released: {released}, but {why}"
            ));
        }
    }

    /// Judges the release of a lock: its holder was told how those ahead left, if there was time for that.
    pub(crate) fn judge_untold(&mut self, op: usize) {
        let one = &self.ops[op];
        let held = one
            .granted
            .is_some_and(|granted| granted + self.trips(3, 6) < self.now);
        if one.is_told || one.was_handed_on || !held || !self.plan.is_quiet() || !self.plan.notes {
            return;
        }
        let ahead = self.holders_ahead(op);
        let node = one.node.as_deref().unwrap_or_default();
        let mine = self.lives.iter().find(|life| &*life.path == node);
        let settles = self.trips(3, 6);
        let waited = ahead.iter().any(|(life, ops)| {
            let mut others = ops.iter().filter(|other| other.client != one.client);
            let gone = mine.zip(life.to);
            let seen = gone.is_some_and(|(mine, gone)| mine.from + settles < gone);
            seen && others.any(|other| other.granted.is_some())
        });
        if waited {
            self.fail(format!("op {op} is never told how those ahead left"));
        }
    }
}
