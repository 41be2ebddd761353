//! Members, which work on their parts of some shards.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering;
use std::time::Duration;

use zklock::sim::{self, channel};
use zklock::{Error, Term};

use super::views::Active;
use super::{Actor, ON_PURPOSE, ms, on_purpose, token_and_node};
use crate::history::{Kind, What};
use crate::lives::{Member, SHARDS};
use crate::plan::{Release, Step};

/// The shortest term without a pause after it.
const SHORTEST: Duration = Duration::from_millis(200);

impl Actor {
    pub(super) fn shards(&self, count: u8, step: &Step) {
        let shards = self
            .client
            .shards(SHARDS, u32::from(count))
            .expect("shards");
        let (cancel, cancelled) = channel::bounded(1);
        let place = self.become_a_member(count);
        let (actor, hold) = (self.clone(), ms(step.hold));
        let thread = sim::spawn("cancels", move || {
            sim::sleep(hold);
            actor.leave(place);
            let _ = cancel.try_send(());
        });
        drop(thread);
        let (actor, step) = (self.clone(), step.clone());
        let work = move |shard, term: &Term<'_>| {
            let term = AssertUnwindSafe(|| actor.term(shard, &step, term));
            let ended = catch_unwind(term);
            if !matches!(ended, Ok(ControlFlow::Continue(()))) {
                actor.leave(place);
            }
            ended.unwrap_or_else(|panic| resume_unwind(panic))
        };
        let ended = catch_unwind(AssertUnwindSafe(|| shards.run_until(cancelled, work)));
        self.leave(place);
        match ended {
            Ok(Ok(()) | Err(Error::Closed)) => {}
            Ok(Err(error)) => panic!("{} had shards, and was told: {error}", self.who),
            Err(panic) => on_purpose(panic),
        }
    }

    fn become_a_member(&self, count: u8) -> usize {
        let mut members = self.journal.members();
        members.push(Member {
            who: self.who,
            count,
            from: sim::elapsed(),
            to: None,
        });
        members.len() - 1
    }

    /// Ends the member, and so the terms of its shards.
    fn leave(&self, place: usize) {
        let now = sim::elapsed();
        self.journal.members()[place].to.get_or_insert(now);
    }

    fn term(&self, shard: u32, step: &Step, term: &Term<'_>) -> ControlFlow<()> {
        let op = self.ops.fetch_add(1, Ordering::Relaxed);
        let (kind, paths, limit) = (Kind::Exclusive, vec![format!("{SHARDS}/{shard}")], None);
        self.journal
            .note(self.who, op, What::Request { kind, paths, limit });
        let held = self.granted(op, Some(Ok(Some(Active(term)))), token_and_node);
        let held = held.expect("a term is granted");
        let until = sim::elapsed() + SHORTEST.max(ms(sim::roll(step.hold)));
        while self.is_valid(op, &held) && !term.is_over() && sim::elapsed() < until {
            sim::sleep(self.timeout / 20);
        }
        // Not every member ends its work at once.
        sim::sleep(ms(sim::roll(self.timeout.as_millis() as u64 / 10)));
        self.is_valid(op, &held);
        self.journal.given_up(self.who, op, &held);
        self.journal.note(self.who, op, What::Release);
        // The end of the release cannot be seen from here.
        self.journal
            .note(self.who, op, What::Released { well: true });
        match step.end {
            Release::Panic if shard == 0 => panic!("{ON_PURPOSE}"),
            Release::Sent if shard == 0 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
}
