//! The requests of one connection: those to be written, and those without a reply.

use alloc::collections::VecDeque;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;
use core::time::Duration;

use crate::answer::{Answered, Failure, TooLong};
use crate::connection::End;
use crate::connection::promptness::OpenRequest;
use zklock_jute::{ErrorCode, Reply, Request, WatchLists, failure, xid};

/// The requests of a connection. Replies arrive in the order of the requests, so one queue matches them.
#[derive(Debug)]
pub struct RequestQueue<A> {
    /// The chroot, which goes before every path.
    pub(super) root: Arc<str>,
    /// The longest request.
    limit: usize,
    /// Frames that no writer has taken yet.
    out: Vec<u8>,
    /// How many bytes were queued on this connection so far.
    queued: u64,
    /// How many of these bytes the kernel may have.
    handed: u64,
    /// The requests without a reply; that of the first comes next.
    pub(super) pending: VecDeque<Pending<A>>,
    /// When the pings without an answer were queued.
    pub(super) pings: VecDeque<Duration>,
    /// The watches that the server has been asked to set again, and has not answered.
    pub(super) watches: VecDeque<WatchLists>,
    pub(super) thrown_away: ThrownAway,
    last_xid: i32,
    /// When a writer last took frames.
    sent: Duration,
}

/// A request that waits for its reply.
#[derive(Debug)]
pub struct Pending<A> {
    pub(super) xid: i32,
    /// The request, in the form that was sent.
    pub request: Request,
    /// The watch that was registered for the request.
    pub(super) watch: Option<u64>,
    /// Whoever gets the reply; absent if no caller needs it.
    pub answer: Option<A>,
    /// When the request was queued, which is before it was sent.
    pub queued: Duration,
    /// Where the request's frame begins in the stream.
    start: u64,
    /// The failure of the request, if it is known before the connection ends.
    failure: Option<Failure>,
    /// Whether the request is sent again instead of answered.
    pub(super) again: bool,
}

/// Requests of the client itself that a server has thrown away, because it had too many.
///
/// They are sent again on the same connection: another one would cost the server more. No caller waits for them.
#[derive(Debug, Default)]
pub(super) struct ThrownAway {
    pub(super) watches: Vec<WatchLists>,
    pub(super) members: bool,
    /// When to send the requests again.
    pub(super) due: Option<Duration>,
}

impl<A> Pending<A> {
    pub(super) fn as_open(&self) -> OpenRequest {
        OpenRequest {
            since: self.queued,
            commits: self.request.commits(),
        }
    }

    /// Returns the watch that the request sets, and the node that it is on.
    pub fn watched(&self) -> Option<(&str, u64)> {
        Some((self.request.reads()?, self.watch?))
    }

    /// Returns the answer that this reply gives, below the `root` of the client, or how the request fails and the
    /// connection ends.
    pub fn judge(
        &self,
        code: ErrorCode,
        body: &[u8],
        root: &str,
    ) -> Result<Answered, (Failure, End)> {
        match self.request.reply(body) {
            Ok(mut reply) => {
                reply.strip(root);
                self.judge_decoded(code, Some(reply))
            }
            Err(malformed) if code == ErrorCode::OK => Err((Failure::Lost, malformed.into())),
            Err(_) => self.judge_decoded(code, None),
        }
    }

    /// Does what [`judge`](Self::judge) does with what the body contains, if that is a reply to such a request.
    pub fn judge_decoded(
        &self,
        code: ErrorCode,
        reply: Option<Reply>,
    ) -> Result<Answered, (Failure, End)> {
        let failed = match &reply {
            Some(Reply::Multi(results)) => failure(results),
            _ => None,
        };
        // ZooKeeper reports in the body of the reply to a transaction that the session expired, and in the header of
        // other replies.
        let code = match (code, failed) {
            (ErrorCode::OK, Some(ErrorCode::SESSION_EXPIRED)) => ErrorCode::SESSION_EXPIRED,
            _ => code,
        };
        match (code, reply) {
            // Nothing was carried out; the refusal is about the session.
            (ErrorCode::SESSION_EXPIRED, _) => Err((Failure::NotSent, End::Expired)),
            (ErrorCode::SESSION_MOVED | ErrorCode::NOT_READ_ONLY, _) => {
                Err((Failure::NotSent, End::Broken(code.to_string())))
            }
            // The server gave up and does not know whether it carried out the request.
            (ErrorCode::CONNECTION_LOSS | ErrorCode::OPERATION_TIMEOUT, _) => {
                Err((Failure::Lost, End::Broken(code.to_string())))
            }
            // Some servers report in the header that a multi failed, and in the body why.
            (_, Some(reply)) if code == ErrorCode::OK || failed.is_some() => Ok(Ok(reply)),
            _ => Ok(Err(Failure::Refused(code))),
        }
    }
}

impl<A> RequestQueue<A> {
    /// Creates the queue of a connection, whose numbers begin after `last_xid`.
    ///
    /// Servers tell the requests of a session apart by their numbers. That includes requests of an
    /// earlier connection, which may be carried out late.
    pub(super) fn after(last_xid: i32, root: Arc<str>, limit: usize, now: Duration) -> Self {
        Self {
            root,
            limit,
            out: Vec::new(),
            queued: 0,
            handed: 0,
            pending: VecDeque::new(),
            pings: VecDeque::new(),
            watches: VecDeque::new(),
            thrown_away: ThrownAway::default(),
            last_xid,
            sent: now,
        }
    }

    pub(super) fn of_the_next_connection(&self, now: Duration) -> Self {
        Self::after(self.last_xid, self.root.clone(), self.limit, now)
    }

    /// Queues a request that gets a reply; returns its number.
    pub(super) fn push(
        &mut self,
        request: Request,
        watch: Option<u64>,
        answer: Option<A>,
        now: Duration,
    ) -> Result<i32, (TooLong, Option<A>)> {
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
            queued: now,
            start,
            failure: None,
            again: false,
        });
        Ok(xid)
    }

    /// Queues a request again.
    pub(super) fn push_again(&mut self, pending: Pending<A>, now: Duration) {
        // It fits: an older form is not longer.
        let _ = self.push(pending.request, pending.watch, pending.answer, now);
    }

    /// Queues a frame whose reply, if any, is not matched with a request.
    pub fn push_aside(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
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

    /// Queues a ping if nothing was sent for this long.
    pub(super) fn ping_after(&mut self, pause: Duration, now: Duration) {
        if pause <= now.saturating_sub(self.sent) {
            self.push_aside(|out| Request::Ping.encode(xid::PING, out));
            self.pings.push_back(now);
        }
    }

    /// Takes out the write with this number if earlier requests have no answer yet.
    pub(super) fn take_out_of_turn(&mut self, xid: i32) -> Option<Pending<A>> {
        let at = self.pending.iter().position(|open| open.xid == xid)?;
        match 0 < at && !is_read(&self.pending[at].request) {
            true => self.pending.remove(at),
            false => None,
        }
    }

    /// Puts back a request whose reply was useless. It fails with the connection, after the status has changed: its
    /// caller must not ask again too early.
    pub fn unpop(&mut self, mut pending: Pending<A>, failure: Failure) {
        pending.failure = Some(failure);
        self.pending.push_front(pending);
    }

    /// Marks the open reads to be repeated after a request that is sent again: they may depend on its effect.
    pub(super) fn repeat_reads(&mut self) {
        for pending in &mut self.pending {
            pending.again |= is_read(&pending.request);
        }
    }

    /// Takes all requests without a reply, each with its failure if the connection has ended.
    pub(super) fn take_pending(&mut self) -> impl Iterator<Item = (Pending<A>, Failure)> + use<A> {
        let handed = self.handed;
        mem::take(&mut self.pending)
            .into_iter()
            .map(move |pending| {
                let failure = match pending.failure {
                    Some(failure) => failure,
                    None if pending.start < handed => Failure::Lost,
                    None => Failure::NotSent,
                };
                (pending, failure)
            })
    }

    /// Returns the open request with this number.
    pub(super) fn numbered(&self, xid: i32) -> Option<&Request> {
        let pending = self.pending.iter().find(|pending| pending.xid == xid);
        pending.map(|pending| &pending.request)
    }

    /// Returns the request or ping that has been open for the longest.
    pub(super) fn oldest_open(&self) -> Option<OpenRequest> {
        let request = self.pending.front().map(Pending::as_open);
        OpenRequest::oldest(request, self.pings.front().copied())
    }

    /// Returns when a writer last took frames.
    pub(super) fn sent(&self) -> Duration {
        self.sent
    }

    /// Returns whether a writer has frames to take.
    pub fn has_frames(&self) -> bool {
        !self.out.is_empty()
    }

    /// Gives a writer the frames that are queued; returns the position behind them in the stream.
    pub fn take_frames(&mut self, into: &mut Vec<u8>, now: Duration) -> u64 {
        mem::swap(&mut self.out, into);
        // Until the writer returns, the kernel may have all of these bytes.
        self.handed = self.queued;
        self.sent = now;
        self.queued
    }

    /// Notes how much of the stream the kernel may have, now that no writer is writing.
    pub fn written(&mut self, handed: u64) {
        self.handed = handed;
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
