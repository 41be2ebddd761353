//! Locks that outlive a process, and work that is divided among processes, as a run has seen them,
//! and their judges.

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

/// A hold whose maker was told that it exists.
#[derive(Clone, Debug)]
pub(crate) struct Planted {
    pub(crate) node: String,
    /// The lock's node whose place the hold has taken.
    pub(crate) instead_of: Option<String>,
    pub(crate) at: Duration,
}

/// The number of a permit, as its holder was told.
#[derive(Clone, Debug)]
pub(crate) struct Numbered {
    pub(crate) who: Process,
    pub(crate) op: usize,
    /// The permit's node.
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

/// The counts of what was judged.
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
