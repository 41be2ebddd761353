//! One lock and its queue.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use crate::contender::Contender;
use crate::path;
use crate::session::Session;
use crate::session::call_error::CallError;
use crate::session::queries::Seen;
use crate::time::limit::Limit;
use crate::token::FencingToken;
use zklock_core::journal::Journal;
use zklock_core::name::{LAST_SEQUENCE, NodeName};
use zklock_core::permits::number;
use zklock_core::predecessor_mark;

/// A lock that a client holds or waits for.
#[derive(Clone)]
pub struct LockQueue {
    pub(super) path: String,
    pub(super) contenders: Vec<Contender>,
    pub(super) kept: Kept,
}

/// What the node of a lock keeps as its data.
#[derive(Clone, Debug, Default)]
pub(super) struct Kept {
    /// How many permits a semaphore of Curator's layout has.
    pub(super) permits: Option<u32>,
    /// Whether the node records the runs of a job.
    pub(super) is_job: bool,
    /// The token of the holder whose release must clear the mark.
    marked: Option<FencingToken>,
}

impl LockQueue {
    /// Returns the path of the lock.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the holders, and then the waiters, in the order of the queue.
    pub fn contenders(&self) -> &[Contender] {
        &self.contenders
    }

    /// Returns the contenders that hold the lock, or a permit of it.
    pub fn holders(&self) -> impl Iterator<Item = &Contender> {
        self.contenders.iter().filter(|contender| contender.holds())
    }

    /// Returns the waiters, first come first.
    pub fn waiters(&self) -> impl Iterator<Item = &Contender> {
        self.contenders
            .iter()
            .filter(|contender| !contender.holds())
    }

    /// Returns when the first waiter joined the queue, by the servers' clock.
    pub fn waited_for_since(&self) -> Option<SystemTime> {
        self.waiters().map(Contender::since).min()
    }

    /// Returns how many permits a semaphore has, if its node tells.
    pub fn permits(&self) -> Option<u32> {
        self.kept.permits
    }

    /// Returns whether a [`Job`](crate::Job)'s runs are recorded here.
    pub fn is_job(&self) -> bool {
        self.kept.is_job
    }

    /// Returns the token of the last holder that left without releasing, until another holder has
    /// cleared its mark; `None` without
    /// [`LockOptions::track_abandonment`](crate::LockOptions::track_abandonment).
    pub fn abandoned(&self) -> Option<FencingToken> {
        self.kept.abandoned_by(&self.contenders)
    }

    /// Returns the share of the directory's sequence numbers that is used up, from 0 to 1.
    ///
    /// Once all are used up, there is no order: see [`Error::Exhausted`](crate::Error::Exhausted).
    pub fn numbers_used(&self) -> f64 {
        let names = self.contenders.iter().map(|one| path::name(one.node()));
        let numbers = names
            .filter_map(NodeName::parse)
            .map(|name| match name.is_exhausted() {
                true => LAST_SEQUENCE,
                false => name.sequence,
            });
        numbers.max().unwrap_or(0) as f64 / LAST_SEQUENCE as f64
    }
}

impl Kept {
    /// Reads what the nodes at these paths keep; returns the default for those that may not be read.
    pub(super) fn read(
        session: &Arc<Session>,
        paths: &[String],
        limit: &impl Fn() -> Limit,
    ) -> Result<Vec<Self>, CallError> {
        let seen = session.describe_within(paths, limit)?;
        let kept = seen.into_iter().map(|seen| seen.map(Self::of));
        Ok(kept.map(Option::unwrap_or_default).collect())
    }

    fn of(seen: Seen) -> Self {
        Self {
            permits: number(&seen.data),
            // A hold leaves an empty record where nobody has run a job.
            is_job: seen.data != Journal::EMPTY
                && Journal::parse(&seen.data, seen.stat.mtime).is_some(),
            marked: predecessor_mark::parse(&seen.data)
                .flatten()
                .map(FencingToken::new),
        }
    }

    /// Returns the token of a holder that left without releasing, unless another holder has cleared the mark.
    pub(super) fn abandoned_by(&self, contenders: &[Contender]) -> Option<FencingToken> {
        let is_here = |token: &FencingToken| contenders.iter().any(|one| one.token() == *token);
        self.marked.filter(|token| !is_here(token))
    }
}

impl fmt::Debug for LockQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockQueue")
            .field("path", &self.path)
            .field("contenders", &self.contenders)
            .finish_non_exhaustive()
    }
}
