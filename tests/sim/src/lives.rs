//! What outlives a process, and what is divided among processes, as a run has seen it, and its judges.

mod holds;
mod numbers;
mod shards;

use std::time::Duration;

pub(crate) use self::holds::{busy, release_endless};
use crate::client::Journal;
use crate::history::{Entry, Process};
use crate::ops::gather;
use crate::plan::Plan;
use crate::play::Ends;

/// When a run begins, at the servers, in seconds since the epoch.
pub(crate) const RUN_BEGAN: u64 = 1_700_000_000;

/// The semaphore whose permits have numbers.
pub(crate) const NUMBERED: &str = "/sim/numbered";

/// The shards.
pub(crate) const SHARDS: &str = "/sim/shards";

/// A hold that its maker was told of.
#[derive(Clone, Debug)]
pub(crate) struct Planted {
    pub(crate) node: String,
    /// The lock's node in whose place it stands.
    pub(crate) instead_of: Option<String>,
    pub(crate) at: Duration,
}

/// The number of a permit, as its holder was told.
#[derive(Clone, Debug)]
pub(crate) struct Numbered {
    pub(crate) who: Process,
    pub(crate) op: usize,
    /// The permit's.
    pub(crate) node: String,
    pub(crate) number: u32,
    pub(crate) at: Duration,
}

/// A call that works on shards.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) who: Process,
    pub(crate) count: u8,
    pub(crate) from: Duration,
    pub(crate) to: Option<Duration>,
}

/// What was judged.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Summary {
    pub(crate) holds: usize,
    pub(crate) numbers: usize,
    pub(crate) terms: usize,
}

pub(crate) fn judge(
    plan: &Plan,
    journal: &Journal,
    entries: &[Entry],
    ends: &Ends,
) -> Result<Summary, String> {
    let ops = gather(entries);
    Ok(Summary {
        holds: holds::judge(plan, journal, &ops)?,
        numbers: numbers::judge(plan, journal, &ops, ends)?,
        terms: shards::judge(plan, journal, &ops)?,
    })
}
