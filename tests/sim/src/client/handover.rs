//! Hands a lock over to other processes, several of which try to take it over.

use std::panic::resume_unwind;
use std::sync::atomic::Ordering;
use std::time::Duration;

use zklock::sim;
use zklock::{Error, Handover, MutexGuard, SessionState};

use super::{Actor, connect, ms, token_and_node};
use crate::history::{Kind, What};
use crate::plan::{Release, Step};

/// How many processes try: the new one, and the old one, which believes that the new one has
/// failed.
const TAKERS: u64 = 2;

/// The most milliseconds between two processes that try at nearly the same time.
const CLOSE_TOGETHER: u64 = 4;

/// The shortest session timeout for that: processes that try end each other's connections, and
/// pause before they connect again, and a shorter session may be over by then.
const STEADY: Duration = Duration::from_millis(500);

/// One in this many hand-overs is left for about a session timeout.
const LATE: usize = 4;

impl Actor {
    pub(super) fn hand_over(&self, op: usize, step: &Step, guard: MutexGuard) {
        self.hold(op, step.hold / 2, &guard);
        let Ok(handover) = guard.hand_over() else {
            return self.give_up(op, guard, Release::HandOver);
        };
        assert!(
            guard.check().is_err(),
            "{} holds what it handed over",
            self.who
        );
        self.journal.note(self.who, op, What::Release);
        self.journal
            .note(self.who, op, What::Released { well: true });
        drop(guard);
        // Some come about when the session ends.
        let late = op.is_multiple_of(LATE);
        let timeout = self.timeout.as_millis() as u64;
        let wait = match late {
            true => fastrand::u64(timeout * 9 / 10..timeout * 14 / 10),
            false => 0,
        };
        // Some of the others try at nearly the same time.
        let pause = match fastrand::bool() {
            true => step.hold / 4,
            false => fastrand::u64(..CLOSE_TOGETHER),
        };
        let takers = (0..TAKERS).map(|number| {
            let (actor, step, text) = (self.clone(), step.clone(), handover.text());
            let take = move || {
                sim::sleep(ms(wait + number * pause));
                actor.take_over(op, &step, &text.parse().expect("a hand-over"))
            };
            sim::spawn("takes over", take).expect("a thread")
        });
        let takers: Vec<_> = takers.collect();
        let took = takers.into_iter().map(|taker| {
            let taken = taker.join();
            taken.unwrap_or_else(|panic| resume_unwind(panic))
        });
        let took = took.filter(|took| *took).count();
        assert!(took <= 1, "{took} have taken one lock over");
        assert!(
            took == 1 || late || self.timeout < STEADY || !self.is_sound,
            "nobody has taken the lock over"
        );
    }

    /// Takes the lock over, holds it, and releases it.
    fn take_over(&self, before: usize, step: &Step, handover: &Handover) -> bool {
        let (client, guard) = match self.builder.clone().take_over(handover) {
            Ok(taken) => taken,
            Err(Error::Lost { .. } | Error::ConnectTimeout { .. } | Error::Suspect { .. }) => {
                return false;
            }
            Err(error) => panic!("take over: {error}"),
        };
        assert_eq!(guard.fencing_token(), handover.fencing_token());
        let op = self.ops.fetch_add(1, Ordering::Relaxed);
        let (kind, paths, limit) = (Kind::Exclusive, vec![guard.path().to_owned()], None);
        // The new guard has the place of the guard before it in the queue.
        let asked = self.journal.requested(self.who, before);
        let request = What::Request { kind, paths, limit };
        self.journal.note_at(asked, self.who, op, request);
        self.journal.note_continued(self.who, op);
        let actor = Self {
            client,
            ..self.clone()
        };
        // The token is that of the guard before it.
        let seen = |guard: &MutexGuard| (Vec::new(), token_and_node(guard).1);
        if let Some(guard) = actor.granted(op, Some(Ok(Some(guard))), seen) {
            actor.hold(op, step.hold / 2, &guard);
            actor.give_up(op, guard, Release::Unlock);
        }
        // The nodes that are left on the servers must go while the session is alive.
        sim::sleep(self.timeout + ms(2000));
        true
    }

    /// Goes on with a new client after a hand-over.
    pub(super) fn after(&mut self, step: &Step) {
        let is_over = self.client.state() == SessionState::Closed;
        if matches!(step.end, Release::HandOver) && is_over {
            self.client = connect(&self.builder);
        }
    }
}
