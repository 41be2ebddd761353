//! The state of a call for a permit.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::ask::{Grant, GuardId, Thread, Ticket, Time};
use super::line::LineId;
use zklock_core::acquisition::Acquisition;
use zklock_core::answer::Answered;
use zklock_core::attempt::Patience;
use zklock_core::dialect::Dialect;
use zklock_core::permit_attempt::{Layout, Permit};
use zklock_jute::{ErrorCode, Reply, Request};

/// What a server says to each request of a batch.
pub(super) type Replies = Vec<Result<Reply, ErrorCode>>;

/// A wish for one of a semaphore's permits.
#[derive(Clone, Debug)]
pub(super) struct Asks {
    pub(super) path: Arc<str>,
    pub(super) permits: u32,
    pub(super) patience: Patience,
    pub(super) until: Option<Time>,
}

/// A call for a permit; see the module's documentation.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) thread: Thread,
    pub(super) asks: Asks,
    pub(super) machine: Permit,
    /// When to give up once a server has said that others are ahead, if that is before the limit.
    pub(super) until_if_taken: Option<Time>,
    pub(super) line: LineId,
    pub(super) seats: LineId,
    /// Whether it stands in line, or has the turn there.
    pub(super) stands: bool,
    pub(super) has_turn: bool,
    pub(super) place: Option<Place>,
    /// Whether the acquisition of the permit is under way, and whether there was room for it before.
    pub(super) sits_down: Option<bool>,
    pub(super) permit: Option<Grant>,
    pub(super) batch: Option<Batch>,
    /// The answers to a look that came with the place.
    pub(super) read: Option<Vec<Result<Reply, ErrorCode>>>,
    pub(super) is_taken: bool,
    pub(super) has_looked: bool,
}

/// A place at the head of the line.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) guard: GuardId,
    pub(super) node: Arc<str>,
    pub(super) session: i64,
    /// The connection through which the wait for others ended, if there was one.
    pub(super) waited: Option<u64>,
}

/// The calls for permits, and the numbers of permits on which all clients agreed.
#[derive(Debug, Default)]
pub(super) struct Permits {
    pub(super) calls: BTreeMap<Ticket, Call>,
    pub(super) known: BTreeMap<Arc<str>, u32>,
    /// How many times calls have sent requests together.
    pub(super) batches: u64,
}

impl Call {
    pub(super) fn layout(&self, dialect: Dialect) -> Layout<'_> {
        Layout {
            path: &self.asks.path,
            dialect,
        }
    }
}

impl Permits {
    /// Prepares the acquisition of this call's place, or of its permit.
    pub(super) fn begin(
        &mut self,
        (id, ticket): (&LineId, Ticket),
        acquisition: &mut Acquisition,
        dialect: Dialect,
    ) {
        let Some(call) = self.calls.get_mut(&ticket) else {
            return;
        };
        if *id == call.line {
            call.has_turn = true;
            acquisition.read_behind(call.layout(dialect).looks(false).0);
            return;
        }
        if call.sits_down == Some(true) {
            acquisition.note_room();
        }
        if let Some(place) = &call.place {
            acquisition.note_under(place.node.as_ref().into());
        }
    }
}

/// Requests that leave together, until all are answered.
#[derive(Debug)]
pub(super) struct Batch {
    /// The number of this batch among all, which an answer must name.
    pub(super) number: u64,
    pub(super) requests: Vec<Request>,
    pub(super) answers: Vec<Answered>,
    pub(super) is_sent: bool,
    /// Whether the server catches up first.
    pub(super) catches_up: bool,
    /// Whether a watch was set, which has not fired.
    pub(super) watches: bool,
}

impl Call {
    /// Returns whether this call waits for the last permit of another number to go.
    pub(super) fn awaits(&self) -> bool {
        self.batch.as_ref().is_some_and(|batch| batch.watches)
    }

    /// Returns whether this call waits for an event of this node.
    pub(super) fn awaits_node(&self, path: &str) -> bool {
        let batch = self.batch.as_ref().filter(|batch| batch.watches);
        let mut reads = batch.into_iter().flat_map(|batch| &batch.requests);
        reads.any(|read| read.reads() == Some(path))
    }
}
