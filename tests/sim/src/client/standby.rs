//! Standbys, which are active for some terms.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use zklock::sim::{self, channel};
use zklock::{Error, Result, Term};

use super::views::Active;
use super::{Actor, ON_PURPOSE, ms, on_purpose, token_and_node};
use crate::history::{Kind, What};
use crate::ops::TIMEOUT;
use crate::plan::{Release, Step};

/// The path of the standby, whose lock other clients take, too.
const PATH: &str = "/sim/m0";

/// A call of `run_until`.
struct Call<'a> {
    actor: &'a Actor,
    step: &'a Step,
    /// The wait for a term, and the term, are one operation.
    op: Arc<AtomicUsize>,
    terms: u64,
    is_limited: bool,
    /// When the last term ended.
    over: Option<Duration>,
}

impl Actor {
    pub(super) fn standby(&self, terms: u8, step: &Step) {
        let limit = step.limit.into_iter().chain(step.cancel).min().map(ms);
        let (cancel, cancelled) = channel::bounded(1);
        // Without a sender the call would be cancelled at once.
        let kept = cancel.clone();
        if let Some(after) = limit {
            let thread = sim::spawn("cancels", move || {
                sim::sleep(after);
                let _ = cancel.try_send(());
            });
            drop(thread);
        }
        let mut call = Call {
            actor: self,
            step,
            op: Arc::default(),
            terms: 0,
            is_limited: limit.is_some(),
            over: None,
        };
        call.ask(limit);
        let (journal, client, who) = (self.journal.clone(), self.client.clone(), self.who);
        let (op, session) = (call.op.clone(), client.session_id());
        let standby = self.client.standby(PATH).expect("a standby");
        let standby = standby.on_wait(move |waiting| {
            if waiting.ahead().is_some() && client.session_id() == session {
                journal.note(who, op.load(Ordering::Relaxed), What::Queued { session });
            }
        });
        let run = AssertUnwindSafe(|| {
            standby.run_until(cancelled, |term| call.term(u64::from(terms), term))
        });
        let ended = catch_unwind(run);
        let op = call.op.load(Ordering::Relaxed);
        let since = call
            .over
            .unwrap_or_else(|| self.journal.requested(self.who, op));
        self.is_not_kept_by_a_close(op, since);
        let ended = ended.map_err(on_purpose).ok();
        call.end(ended);
        drop(kept);
    }
}

impl Call<'_> {
    /// Begins a wait for a term. After a term, it waits for the release, whatever the limit.
    fn ask(&self, limit: Option<Duration>) {
        let (actor, op) = (self.actor, self.actor.ops.fetch_add(1, Ordering::Relaxed));
        self.op.store(op, Ordering::Relaxed);
        let (kind, paths) = (Kind::Exclusive, vec![PATH.to_owned()]);
        let request = What::Request { kind, paths, limit };
        actor.journal.note(actor.who, op, request);
    }

    fn term(&mut self, terms: u64, term: &Term<'_>) -> ControlFlow<()> {
        self.terms += 1;
        assert_eq!(term.number(), self.terms, "{}", self.actor.who);
        let (actor, op) = (self.actor, self.op.load(Ordering::Relaxed));
        let seen = Some(Ok(Some(Active(term))));
        if let Some(held) = actor.granted(op, seen, token_and_node) {
            actor.hold(op, self.step.hold, &held);
            actor.journal.given_up(actor.who, op, &held);
        }
        let is_over = terms <= self.terms || term.is_cancelled();
        self.over = is_over.then(sim::elapsed);
        if let Release::Sent = self.step.end {
            term.resign();
            assert!(term.is_over());
        }
        actor.journal.note(actor.who, op, What::Release);
        if !is_over {
            // The end of the release cannot be seen from here.
            actor
                .journal
                .note(actor.who, op, What::Released { well: true });
            self.ask(None);
            let op = self.op.load(Ordering::Relaxed);
            actor.journal.note_continued(actor.who, op);
            return ControlFlow::Continue(());
        }
        if let Release::Panic = self.step.end {
            panic!("{ON_PURPOSE}");
        }
        ControlFlow::Break(())
    }

    fn end(self, ended: Option<Result<()>>) {
        let (actor, op) = (self.actor, self.op.load(Ordering::Relaxed));
        let what = match ended {
            _ if self.over.is_some() => What::Released { well: true },
            // After any other error, the standby queues again.
            Some(Err(Error::Closed)) => What::Refused {
                why: Error::Closed.to_string(),
            },
            Some(Err(error)) => panic!("{} stood by, and was told: {error}", actor.who),
            Some(Ok(())) if !self.is_limited => panic!("{} was to go on", actor.who),
            Some(Ok(())) | None => What::Refused {
                why: TIMEOUT.to_owned(),
            },
        };
        actor.journal.note(actor.who, op, what);
    }
}
