//! The data that the node of a lock keeps.

use std::sync::Arc;

use crate::contender::Contender;
use crate::session::Session;
use crate::session::call_error::CallError;
use crate::session::queries::Seen;
use crate::time::limit::Limit;
use crate::token::FencingToken;
use zklock_core::journal::Journal;
use zklock_core::permits::number;
use zklock_core::predecessor_mark;

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub(super) struct Kept {
    /// How many permits a semaphore of Curator's layout has.
    pub(super) permits: Option<u32>,
    /// Whether the node records the runs of a job.
    pub(super) is_job: bool,
    /// The token of the holder whose release must clear the mark.
    marked: Option<FencingToken>,
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
