//! The requests of the present connection: those to be written, and those without an answer.
//!
//! Servers answer in order, so a queue tells what an answer is for. Nothing outlives its connection: what
//! was under way when it broke fails, and the parts that still need it ask again.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;

use super::ask::{GuardId, Ticket, Time};
use super::commit::Commit;
use super::line::LineId;
use zklock_core::acquisition::CallId;
use zklock_core::answer::Failure;
use zklock_core::connection::promptness::OpenRequest;
use zklock_core::renewals::Check;
use zklock_core::validity::Stamp;
use zklock_jute::Request;

/// The purpose of a request, and so of its answer.
#[derive(Debug)]
pub(super) enum Purpose {
    /// The attempt that has the turn in this line.
    Step(LineId),
    /// The create of that attempt.
    Create(Creation),
    /// The deletion with this number.
    Deletion(u64),
    /// A deletion and a create in one transaction.
    Both(u64, Creation),
    /// A check of the nodes of these guards.
    Check(Check),
    /// A transaction under a guard.
    Commit(Commit, Stamp),
    /// A read of the directory of this node.
    Note(Arc<str>),
    /// A read of the node of this guard, which leaves a watch.
    Watch(u64),
    /// The call with this ticket for a permit, and the number of what it has sent together.
    Permit(Ticket, u64),
    /// A check for a thread that wants to know.
    Verify(Ticket, GuardId, Stamp),
}

/// A node that is being created.
#[derive(Clone, Debug)]
pub(super) struct Creation {
    pub(super) line: LineId,
    pub(super) prefix: String,
    /// Whether an attempt waits for the node; otherwise it is deleted.
    pub(super) is_wanted: bool,
}

/// A request that has no answer yet.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) id: CallId,
    pub(super) purpose: Purpose,
    /// Whether an answer shows that a quorum has committed the request.
    pub(super) commits: bool,
    pub(super) sent: Time,
}

impl Open {
    pub(super) fn as_asked(&self) -> OpenRequest {
        OpenRequest {
            since: self.sent,
            commits: self.commits,
        }
    }
}

/// The requests of the present connection; see the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// The requests that the shell has not taken yet.
    out: VecDeque<Request>,
    open: VecDeque<Open>,
    /// When the pings without an answer were sent.
    pings: VecDeque<Time>,
    last: u64,
    last_sent: Time,
}

impl Calls {
    pub(super) fn push(&mut self, now: Time, request: Request, purpose: Purpose) -> CallId {
        self.last += 1;
        let id = CallId(self.last);
        self.open.push_back(Open {
            id,
            purpose,
            commits: request.commits(),
            sent: now,
        });
        self.out.push_back(request);
        self.last_sent = now;
        id
    }

    pub(super) fn ping(&mut self, now: Time) {
        self.out.push_back(Request::Ping);
        self.pings.push_back(now);
        self.last_sent = now;
    }

    /// Notes that a connection begins, on which nothing was sent yet.
    pub(super) fn begin(&mut self, now: Time) {
        self.last_sent = now;
    }

    /// Takes the next request to write.
    pub(super) fn next(&mut self) -> Option<Request> {
        self.out.pop_front()
    }

    /// Takes the oldest request, whose answer is next.
    pub(super) fn answered(&mut self) -> Option<Open> {
        self.open.pop_front()
    }

    /// Takes the time when the ping was sent that is answered now.
    pub(super) fn pong(&mut self) -> Option<Time> {
        self.pings.pop_front()
    }

    /// Returns when the last request was sent.
    pub(super) fn last_sent(&self) -> Time {
        self.last_sent
    }

    /// Returns the request or ping that has had no answer for the longest.
    pub(super) fn oldest(&self) -> Option<OpenRequest> {
        let request = self.open.front().map(Open::as_asked);
        OpenRequest::oldest(request, self.pings.front().copied())
    }

    /// Notes that nobody waits for this create any more: the node that its answer shows is deleted.
    pub(super) fn abandons(&mut self, id: CallId) {
        let open = self.open.iter_mut().find(|open| open.id == id);
        if let Some(Purpose::Create(creation) | Purpose::Both(_, creation)) =
            open.map(|open| &mut open.purpose)
        {
            creation.is_wanted = false;
        }
    }

    /// Takes all requests without an answer after the connection broke, each with why there is none.
    pub(super) fn fail(&mut self) -> Vec<(Open, Failure)> {
        let is_ping = |request: &&Request| **request == Request::Ping;
        let unsent = self.out.iter().filter(|request| !is_ping(request)).count();
        self.out.clear();
        self.pings.clear();
        let open = mem::take(&mut self.open);
        let sent = open.len() - unsent.min(open.len());
        let failure = |at: usize| match at < sent {
            true => Failure::Lost,
            false => Failure::NotSent,
        };
        let failed = open.into_iter().enumerate();
        failed.map(|(at, open)| (open, failure(at))).collect()
    }
}
