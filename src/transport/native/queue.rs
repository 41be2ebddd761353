//! The requests of one connection: those on their way out, and those without a reply.

use std::collections::VecDeque;
use std::mem;

use super::channel::Lane;
use crate::jute::{Reply, Request, xid};
use crate::time::clock::Moment;
use crate::transport::{Answer, Failure, TooLong, WatchId};

/// Replies come in the order of the requests, so one queue is enough to match them.
#[derive(Debug)]
pub(super) struct Queue {
    /// Frames that no writer has taken yet.
    out: Vec<u8>,
    /// The way to the socket; absent while a thread is writing.
    lane: Option<Lane>,
    /// How many bytes were queued on this connection so far.
    queued: u64,
    /// How many of them the kernel may have been given.
    handed: u64,
    pending: VecDeque<Pending>,
    /// When the pings without an answer were queued.
    pings: VecDeque<Moment>,
    last_xid: i32,
    /// When something was last given to the kernel.
    pub(super) sent: Moment,
}

/// A request that waits for its reply.
pub(super) struct Pending {
    pub(super) xid: i32,
    pub(super) request: Request,
    /// A watch that was entered for it.
    pub(super) watch: Option<WatchId>,
    /// Absent if nobody wants to know.
    pub(super) answer: Option<Answer>,
    /// When it was queued, which is before it was sent.
    pub(super) queued: Moment,
    /// Where its frame begins.
    start: u64,
    /// What is known of its failure already.
    failure: Option<Failure>,
}

impl Queue {
    pub(super) fn new() -> Self {
        Self {
            out: Vec::new(),
            lane: Some(Lane::default()),
            queued: 0,
            handed: 0,
            pending: VecDeque::new(),
            pings: VecDeque::new(),
            last_xid: 0,
            sent: Moment::now(),
        }
    }

    /// Queues a request that gets a reply.
    pub(super) fn push(
        &mut self,
        request: Request,
        root: &str,
        limit: usize,
        watch: Option<WatchId>,
        answer: Option<Answer>,
    ) -> Result<i32, (TooLong, Option<Answer>)> {
        let xid = self.last_xid.checked_add(1).unwrap_or(1);
        let before = self.out.len();
        request.encode_below(root, xid, &mut self.out);
        let length = self.out.len() - before;
        // The server, too, counts what comes after the length.
        let bytes = length.saturating_sub(4);
        if bytes > limit {
            self.out.truncate(before);
            let too_long = TooLong {
                reply: false,
                bytes,
                limit,
            };
            return Err((too_long, answer));
        }
        let start = self.queued;
        self.queued += length as u64;
        self.last_xid = xid;
        self.pending.push_back(Pending {
            xid,
            request,
            watch,
            answer,
            queued: Moment::now(),
            start,
            failure: None,
        });
        Ok(xid)
    }

    /// Queues a frame whose reply, if there is one, is not matched with it.
    pub(super) fn push_aside(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        let before = self.out.len();
        encode(&mut self.out);
        self.queued += (self.out.len() - before) as u64;
    }

    pub(super) fn ping(&mut self) {
        self.push_aside(|out| Request::Ping.encode(xid::PING, out));
        self.pings.push_back(Moment::now());
    }

    /// Returns when the ping was queued whose answer is due.
    pub(super) fn pong(&mut self) -> Option<Moment> {
        self.pings.pop_front()
    }

    /// Takes the request whose reply is due.
    pub(super) fn pop(&mut self) -> Option<Pending> {
        self.pending.pop_front()
    }

    /// Puts a request back whose reply is no good, for its end with the connection.
    pub(super) fn unpop(&mut self, mut pending: Pending, failure: Failure) {
        pending.failure = Some(failure);
        self.pending.push_front(pending);
    }

    /// Gives up waiting for replies.
    pub(super) fn take_pending(&mut self) -> VecDeque<Pending> {
        mem::take(&mut self.pending)
    }

    pub(super) fn oldest(&self) -> Option<&Request> {
        self.pending.front().map(|pending| &pending.request)
    }

    /// What the end of the connection means to a request.
    pub(super) fn failure(&self, pending: &Pending) -> Failure {
        match pending.failure {
            Some(failure) => failure,
            None if pending.start < self.handed => Failure::Lost,
            None => Failure::NotSent,
        }
    }

    /// Becomes the writer, unless another thread is.
    pub(super) fn take_lane(&mut self) -> Option<Lane> {
        self.lane.take()
    }

    /// Is the writer no more.
    pub(super) fn put_lane(&mut self, lane: Lane) {
        self.handed = lane.handed();
        self.lane = Some(lane);
    }

    /// Gives the writer what is queued; `false` if there is nothing to write.
    pub(super) fn load(&mut self, lane: &mut Lane) -> bool {
        if !self.out.is_empty() {
            mem::swap(&mut self.out, &mut lane.plain);
            lane.until = self.queued;
            // Until the writer is back, all of it may be on its way.
            self.handed = self.queued;
            self.sent = Moment::now();
        }
        !lane.is_empty()
    }
}

impl Pending {
    pub(super) fn answer(self, result: Result<Reply, Failure>) {
        if let Some(answer) = self.answer {
            answer(result);
        }
    }
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pending")
            .field("xid", &self.xid)
            .field("request", &self.request)
            .finish_non_exhaustive()
    }
}
