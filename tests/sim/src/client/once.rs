//! Jobs, which a client runs once, with a record of what it is told.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use zklock::sim;
use zklock::sim::channel;
use zklock::{Error, JobOptions, Once, Result, Run};

use super::views::Running;
use super::{Actor, ON_PURPOSE, ms, on_purpose, token_and_node};
use crate::history::{Kind, What};
use crate::jobs::{Call, JOB, Ran, Told, count, note, slot};
use crate::ops::TIMEOUT;
use crate::plan::{self, Release, Step};

impl Actor {
    pub(super) fn once(&self, once: plan::Once, step: &Step) {
        let job = self.client.job(JOB).expect("a job");
        let op = self.ops.fetch_add(1, Ordering::Relaxed);
        let limit = step.limit.into_iter().chain(step.cancel).min().map(ms);
        let (kind, paths) = (Kind::Exclusive, vec![JOB.to_owned()]);
        let request = What::Request { kind, paths, limit };
        self.journal.note(self.who, op, request);
        let asked = sim::elapsed();
        let place = self.enter(Call::new(self.who, once, asked));
        let options = self.job_options(op, once, step);
        let run = |run: &Run<'_>| self.work(op, place, step, run);
        let called = AssertUnwindSafe(|| job.once_with(&slot(once.slot), options, run));
        let called = catch_unwind(called);
        let ran = self.journal.calls()[place].ran.clone();
        self.is_not_kept_by_a_close(op, ran.as_ref().map_or(asked, |ran| ran.ended));
        let told = match called {
            Ok(told) => Told::of(told),
            Err(panic) => {
                on_purpose(panic);
                Told::Panicked
            }
        };
        let now = sim::elapsed();
        self.journal.calls()[place].told = Some((now, told.clone()));
        let well = matches!(told, Told::Done | Told::Failed | Told::Panicked);
        self.journal.note(
            self.who,
            op,
            match (ran, told) {
                (Some(_), _) => What::Released { well },
                (None, Told::Error(why)) => What::Refused { why },
                (None, _) => What::Refused {
                    why: TIMEOUT.to_owned(),
                },
            },
        );
    }

    fn enter(&self, call: Call) -> usize {
        let mut calls = self.journal.calls();
        calls.push(call);
        calls.len() - 1
    }

    fn job_options<'a>(&'a self, op: usize, once: plan::Once, step: &Step) -> JobOptions<'a> {
        let session = self.client.session_id();
        let mut options = JobOptions::new().wait(once.waits).on_wait(move |waiting| {
            if waiting.ahead().is_some() && self.client.session_id() == session {
                self.journal.note(self.who, op, What::Queued { session });
            }
        });
        options = options.any_order(once.any_order).again(once.again);
        if once.any_order || once.again {
            options = options.note(&note(once.any_order, once.again));
        }
        if let Some(attempts) = once.attempts {
            options = options.attempts(attempts);
        }
        if let Some(limit) = step.limit {
            options = options.deadline(sim::now() + ms(limit));
        }
        if let Some(after) = step.cancel {
            let (cancel, cancelled) = channel::bounded(1);
            options = options.cancel(cancelled);
            let thread = sim::spawn("cancels", move || {
                sim::sleep(ms(after));
                let _ = cancel.try_send(());
            });
            drop(thread);
        }
        options
    }

    fn work(
        &self,
        op: usize,
        place: usize,
        step: &Step,
        run: &Run<'_>,
    ) -> std::result::Result<(), ()> {
        let began = sim::elapsed();
        let ran = |ended, well| {
            self.journal.calls()[place].ran = Some(Ran {
                began,
                ended,
                token: run.fencing_token().get(),
                slot: run.slot().to_owned(),
                attempt: run.attempt(),
                retry_of: run.retry_of().map(|before| before.token().get()),
                count: count(run.state()),
                well,
            });
        };
        ran(began, None);
        // A run that fails also leaves a state, which nobody gets.
        let next = count(run.state()) + 1;
        run.set_state(next.to_string()).expect("there is room");
        let held = self.granted(op, Some(Ok(Some(Running(run)))), token_and_node);
        if let Some(held) = held {
            self.hold(op, step.hold, &held);
        }
        self.journal.note(self.who, op, What::Release);
        let well = matches!(step.end, Release::Unlock | Release::Sent);
        ran(sim::elapsed(), Some(well));
        match step.end {
            Release::Panic => panic!("{ON_PURPOSE}"),
            _ if well => Ok(()),
            _ => Err(()),
        }
    }
}

impl Told {
    fn of(told: Result<Once<(), ()>>) -> Self {
        match told {
            Ok(Once::Done(())) => Self::Done,
            Ok(Once::Failed(())) => Self::Failed,
            Ok(Once::DoneBefore(record)) => Self::DoneBefore(record.token().get()),
            Ok(Once::NoAttemptsLeft(record)) => Self::NoAttemptsLeft(record.token().get()),
            Ok(Once::Running(_)) | Err(Error::ConnectTimeout { .. } | Error::GaveUp { .. }) => {
                Self::NotNow
            }
            Err(Error::Lost { .. }) => Self::Lost,
            Err(Error::Unconfirmed { .. }) => Self::Unconfirmed,
            Err(error) => Self::Error(error.to_string()),
        }
    }
}
