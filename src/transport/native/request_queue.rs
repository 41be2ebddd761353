//! The requests of one connection: those to be written, and those without a reply.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use super::channel::Outbox;
use crate::system::clock::since_boot;
use crate::transport::{Answer, Failure, TooLong, WatchId};
use zklock_core::connection::promptness::OpenRequest;
use zklock_jute::{ErrorCode, OpCode, Reply, Request, WatchLists, failure, xid};

/// The requests of a connection. Replies arrive in the order of the requests, so one queue matches them.
pub(super) struct RequestQueue {
    /// The chroot, which goes before every path.
    root: Arc<str>,
    /// The longest request.
    limit: usize,
    /// Frames that no writer has taken yet.
    out: Vec<u8>,
    /// The writer's buffer; absent while a thread is writing.
    writer: Option<Outbox>,
    /// How many bytes were queued on this connection so far.
    queued: u64,
    /// How many of these bytes the kernel may have.
    handed: u64,
    pending: VecDeque<Pending>,
    /// When the pings without an answer were queued.
    pings: VecDeque<Duration>,
    /// The watches that the server has been asked to set again, and has not answered.
    watches: VecDeque<WatchLists>,
    last_xid: i32,
    /// When a writer last took frames.
    pub(super) sent: Duration,
}

/// A request that waits for its reply.
pub(super) struct Pending {
    pub(super) xid: i32,
    pub(super) request: Request,
    /// The watch that was registered for the request.
    pub(super) watch: Option<WatchId>,
    /// The closure that gets the reply; absent if no caller needs it.
    pub(super) answer: Option<Answer>,
    /// When the request was queued, which is before it was sent.
    pub(super) queued: Duration,
    /// Where the request's frame begins in the stream.
    start: u64,
    /// The failure of the request, if it is known before the connection ends.
    failure: Option<Failure>,
    /// Whether the request is sent again instead of answered.
    pub(super) again: bool,
}

impl Pending {
    pub(super) fn as_open(&self) -> OpenRequest {
        OpenRequest {
            since: self.queued,
            commits: self.request.commits(),
        }
    }
}

impl RequestQueue {
    /// Creates the queue of a connection, whose numbers begin after `last_xid`.
    ///
    /// Servers tell the requests of a session apart by their numbers. That includes requests of an
    /// earlier connection, which may be carried out late.
    pub(super) fn after(last_xid: i32, root: Arc<str>, limit: usize) -> Self {
        Self {
            root,
            limit,
            out: Vec::new(),
            writer: Some(Outbox::default()),
            queued: 0,
            handed: 0,
            pending: VecDeque::new(),
            pings: VecDeque::new(),
            watches: VecDeque::new(),
            last_xid,
            sent: since_boot(),
        }
    }

    pub(super) fn of_the_next_connection(&self) -> Self {
        Self::after(self.last_xid, self.root.clone(), self.limit)
    }

    /// Queues a request that gets a reply; returns its number.
    pub(super) fn push(
        &mut self,
        request: Request,
        watch: Option<WatchId>,
        answer: Option<Answer>,
    ) -> Result<i32, (TooLong, Option<Answer>)> {
        let xid = self.last_xid.checked_add(1).unwrap_or(1);
        let before = self.out.len();
        request.encode_below(&self.root, xid, &mut self.out);
        let length = self.out.len() - before;
        // Like the server, this counts the bytes behind the length.
        let bytes = length.saturating_sub(4);
        if bytes > self.limit {
            self.out.truncate(before);
            let too_long = TooLong {
                reply: false,
                bytes,
                limit: self.limit,
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
            queued: since_boot(),
            start,
            failure: None,
            again: false,
        });
        Ok(xid)
    }

    /// Queues a frame whose reply, if any, is not matched with a request.
    pub(super) fn push_aside(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        let before = self.out.len();
        encode(&mut self.out);
        self.queued += (self.out.len() - before) as u64;
    }

    /// Queues a request to set these watches again.
    pub(super) fn set_watches(&mut self, lists: WatchLists) {
        self.watches.push_back(lists.clone());
        let (request, root) = (Request::SetWatches(lists), self.root.clone());
        self.push_aside(|out| request.encode_below(&root, xid::SET_WATCHES, out));
    }

    /// Takes the oldest watches that the server was asked to set again, which it has answered.
    pub(super) fn watches_answered(&mut self) -> Option<WatchLists> {
        self.watches.pop_front()
    }

    /// Queues a ping if nothing was sent for this long.
    pub(super) fn ping_after(&mut self, pause: Duration, now: Duration) {
        if pause <= now.saturating_sub(self.sent) {
            self.push_aside(|out| Request::Ping.encode(xid::PING, out));
            self.pings.push_back(since_boot());
        }
    }

    /// Takes the oldest ping, which was answered; returns when it was queued.
    pub(super) fn pong(&mut self) -> Option<Duration> {
        self.pings.pop_front()
    }

    /// Takes the oldest request, whose reply is next.
    pub(super) fn pop(&mut self) -> Option<Pending> {
        self.pending.pop_front()
    }

    /// Takes out the write with this number if earlier requests have no answer yet.
    pub(super) fn take_out_of_turn(&mut self, xid: i32) -> Option<Pending> {
        let at = self.pending.iter().position(|open| open.xid == xid)?;
        match 0 < at && !is_read(&self.pending[at].request) {
            true => self.pending.remove(at),
            false => None,
        }
    }

    /// Puts back a request whose reply was useless; it fails with the connection.
    pub(super) fn unpop(&mut self, mut pending: Pending, failure: Failure) {
        pending.failure = Some(failure);
        self.pending.push_front(pending);
    }

    /// Marks the open reads to be repeated after a request that is sent again: they may depend on its effect.
    pub(super) fn repeat_reads(&mut self) {
        for pending in &mut self.pending {
            pending.again |= is_read(&pending.request);
        }
    }

    /// Takes all requests without a reply.
    pub(super) fn take_pending(&mut self) -> VecDeque<Pending> {
        mem::take(&mut self.pending)
    }

    /// Returns the open request with this number.
    pub(super) fn numbered(&self, xid: i32) -> Option<&Request> {
        let pending = self.pending.iter().find(|pending| pending.xid == xid);
        pending.map(|pending| &pending.request)
    }

    pub(super) fn oldest(&self) -> Option<&Request> {
        self.pending.front().map(|pending| &pending.request)
    }

    /// Returns when the oldest open request was queued.
    pub(super) fn oldest_since(&self) -> Option<Duration> {
        self.pending.front().map(|pending| pending.queued)
    }

    /// Returns the request or ping that has been open for the longest.
    pub(super) fn oldest_open(&self) -> Option<OpenRequest> {
        let request = self.pending.front().map(Pending::as_open);
        OpenRequest::oldest(request, self.pings.front().copied())
    }

    /// Returns the failure of a request that is open when the connection ends.
    pub(super) fn failure(&self, pending: &Pending) -> Failure {
        match pending.failure {
            Some(failure) => failure,
            None if pending.start < self.handed => Failure::Lost,
            None => Failure::NotSent,
        }
    }

    /// Makes the calling thread the writer, unless another thread is the writer.
    pub(super) fn take_writer(&mut self) -> Option<Outbox> {
        self.writer.take()
    }

    /// Notes that the calling thread is no longer the writer.
    pub(super) fn put_writer(&mut self, outbox: Outbox) {
        self.handed = outbox.handed();
        self.writer = Some(outbox);
    }

    /// Gives the writer what is queued; returns whether there is something to write.
    pub(super) fn load(&mut self, outbox: &mut Outbox) -> bool {
        if !self.out.is_empty() {
            mem::swap(&mut self.out, &mut outbox.plain);
            outbox.until = self.queued;
            // Until the writer returns, the kernel may have all of these bytes.
            self.handed = self.queued;
            self.sent = since_boot();
        }
        !outbox.is_empty()
    }
}

/// Returns whether a request changes nothing, so that its reply can be skipped or the request repeated.
pub(super) fn is_read(request: &Request) -> bool {
    matches!(
        request,
        Request::Exists { .. }
            | Request::GetData { .. }
            | Request::GetAcl { .. }
            | Request::GetChildren { .. }
            | Request::GetEphemerals { .. }
    )
}

impl Pending {
    /// Returns the watch that the request sets, and the node that it is on.
    pub(super) fn watched(&self) -> Option<(&str, WatchId)> {
        Some((self.request.reads()?, self.watch?))
    }

    /// Returns whether this reply says that the session expired. ZooKeeper reports that in the body
    /// of the reply to a transaction, and in the header of other replies.
    pub(super) fn is_expired_by(&self, body: &[u8]) -> bool {
        // The results of a failed transaction always begin like this.
        let failed = body.starts_with(&(-1_i32).to_be_bytes());
        failed
            && self.request.op() == OpCode::MULTI
            && matches!(
                Reply::decode(OpCode::MULTI, body),
                Ok(Reply::Multi(results)) if failure(&results) == Some(ErrorCode::SESSION_EXPIRED)
            )
    }

    pub(super) fn answer(self, result: Result<Reply, Failure>) {
        if let Some(answer) = self.answer {
            answer(result);
        }
    }
}
