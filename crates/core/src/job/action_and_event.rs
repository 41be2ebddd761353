//! The actions and events between a run of a job and its driver.

use alloc::{string::String, vec::Vec};

use crate::journal::{End, PastRun};

/// The next step for the driver.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Action {
    /// Read the directory's data.
    Read,
    /// Release the lock, if it is held, and go through the queue.
    Line,
    /// Write these bytes into the directory if it has this version and our node is there, in one transaction.
    Write(Vec<u8>, i32),
    /// Do the work.
    Run,
    /// Delete our node and write these bytes into the directory if it has this version, in one transaction.
    End(Vec<u8>, i32),
    /// Stop: there is nothing more to do.
    Finish(Outcome),
}

/// A report from the driver.
#[derive(Clone, Debug)]
pub enum Event {
    /// The directory has this data and this version, written at this time.
    Data(Vec<u8>, i32, i64),
    /// The directory is not there.
    NoNode,
    /// The lock is ours, with this token.
    Granted(i64),
    /// Somebody else has the lock.
    Taken,
    /// The bytes are written. The directory has this version since this time, if the answer tells.
    Written(Option<(i32, i64)>),
    /// The directory has another version.
    BadVersion,
    /// The lock was lost.
    Lost,
    /// The work has ended.
    Ran(End),
    /// Our node is deleted, and the end is recorded.
    Recorded,
    /// Our node is gone, and the end may be recorded.
    Gone,
    /// The caller gives up, or waits no longer for the end to be recorded.
    Cancel,
}

/// How the machine ended.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Outcome {
    /// The run is recorded as it ended.
    Recorded,
    /// The lock was lost before the run ended, and nothing is recorded.
    Lost,
    /// Either `Recorded` or `Lost`, but the answer was lost or late.
    Unconfirmed,
    /// There is nothing to run, because of this run.
    DoneBefore(PastRun),
    /// The first slot may be done or not, as every slot up to the second: it is no longer known.
    Forgotten(String, String),
    /// The slot was begun as often as it may be; this was its last failure.
    NoAttemptsLeft(PastRun),
    /// Somebody else has the lock.
    Taken,
    /// The directory's data is not a journal.
    Unmarked,
    /// We gave up.
    Gone,
}
