//! What arrives on a connection, and what follows when nothing does.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::mem;
use core::time::Duration;

use super::request_queue::{Pending, is_read};
use super::{Link, PATIENT_PARTS, PINGS, Stage};
use crate::answer::{BREATHER, Failure};
use crate::connection::End;
use crate::connection::backoff::LEAST;
use crate::connection::server_features::older;
use zklock_jute::{ErrorCode, Event, ReplyHeader, Request, below, xid};

/// What a frame means to others.
#[derive(Debug)]
pub enum Received<W, A> {
    /// Nothing.
    Nothing,
    /// An event, which fires these watches.
    Event(Event, Vec<W>),
    /// The answer to the ping that was queued at this time.
    Pong(Duration),
    /// This session is served from now on.
    Serves(i64),
    /// The answer with the ensemble's members, in the body.
    Members(ErrorCode),
    /// The reply to the oldest request, which is to be [judged](Pending::judge).
    Reply(Pending<A>),
    /// A refusal, as a reply but before its turn.
    Early(Pending<A>),
    /// A reply to a request that was queued at this time, and is sent again.
    Again(Duration),
}

impl<W, A> Link<W, A> {
    /// Takes in a frame that arrived at `heard`.
    pub fn receive(
        &mut self,
        header: ReplyHeader,
        body: &[u8],
        heard: Duration,
    ) -> Result<Received<W, A>, End> {
        Ok(match (header.xid, header.code) {
            (xid::EVENT, _) => self.event(Event::decode(body)?),
            (xid::PING, ErrorCode::OK) => {
                let sent = self.queue.pings.pop_front();
                sent.map_or(Received::Nothing, Received::Pong)
            }
            (xid::PING, code) => {
                return Err(End::Broken(format!("a ping was refused: {code}")));
            }
            (xid::AUTH, code) => self.credentials_checked(code, heard)?,
            (xid::SET_WATCHES, code) => self.watches_answered(code, heard)?,
            (xid::MEMBERS, ErrorCode::THROTTLED) => {
                self.queue.thrown_away.members = true;
                self.sends_again_after(heard)
            }
            (xid::MEMBERS, code) => Received::Members(code),
            _ => {
                // The events of a change arrive before the replies that reflect it. The answers to
                // pings give no such guarantee.
                self.last_zxid = self.last_zxid.max(header.zxid);
                match self.refused_early(header) {
                    Some(refused) => Received::Early(refused),
                    None => self.reply(header, heard)?,
                }
            }
        })
    }

    fn credentials_checked(
        &mut self,
        code: ErrorCode,
        heard: Duration,
    ) -> Result<Received<W, A>, End> {
        match code {
            ErrorCode::OK => {
                self.auths = self.auths.saturating_sub(1);
                let session = self.serve(heard)?;
                Ok(session.map_or(Received::Nothing, Received::Serves))
            }
            // ClickHouse Keeper says so while it has no leader.
            code if code.is_passing() => Err(End::Broken(format!(
                "the credentials were not checked: {code}"
            ))),
            _ => Err(End::Refused(None)),
        }
    }

    fn event(&mut self, event: Event) -> Received<W, A> {
        let path = below(&self.queue.root, &event.path);
        let fired = path.map(|path| self.watches.fire(path, event.kind));
        Received::Event(event, fired.unwrap_or_default())
    }

    fn watches_answered(
        &mut self,
        code: ErrorCode,
        heard: Duration,
    ) -> Result<Received<W, A>, End> {
        match (code, self.queue.watches.pop_front()) {
            (ErrorCode::OK, _) => Ok(Received::Nothing),
            (ErrorCode::THROTTLED, Some(lists)) => {
                self.queue.thrown_away.watches.push(lists);
                Ok(self.sends_again_after(heard))
            }
            _ => Err(End::Broken(format!("the watches were not set: {code}"))),
        }
    }

    fn sends_again_after(&mut self, heard: Duration) -> Received<W, A> {
        self.queue.thrown_away.due.get_or_insert(heard + BREATHER);
        Received::Nothing
    }

    /// Takes out a write that the server refuses before it has answered earlier requests, if this is one.
    ///
    /// With `enableEagerACLCheck`, a server that may not carry a write out passes it on to nobody.
    fn refused_early(&mut self, header: ReplyHeader) -> Option<Pending<A>> {
        matches!(header.code, ErrorCode::NO_AUTH | ErrorCode::INVALID_ACL)
            .then(|| self.queue.take_out_of_turn(header.xid))?
    }

    fn reply(&mut self, header: ReplyHeader, heard: Duration) -> Result<Received<W, A>, End> {
        if let Stage::Closing { reply, .. } = self.stage {
            return match reply {
                Some(xid) if xid == header.xid => Err(self.closed_by(header.code)),
                _ => Ok(Received::Nothing),
            };
        }
        let Some(mut pending) = self.queue.pending.pop_front() else {
            return Err(End::Broken("a reply came without a request".to_string()));
        };
        if pending.xid != header.xid {
            return Err(self.learn_from(pending, header));
        }
        let (sent, answered) = (pending.queued, pending.as_open());
        self.promptness
            .answered(answered.refused_for(Some(header.code)), heard);
        self.answered = true;
        if !pending.again {
            if header.code == ErrorCode::OK {
                self.features.succeeded(&pending.request);
            } else if self.features.refused(&pending.request, header.code) {
                self.queue.repeat_reads();
                pending.request = older(pending.request);
                pending.again = true;
            }
        }
        if pending.again {
            self.queue.push_again(pending, heard);
            return Ok(Received::Again(sent));
        }
        self.settle_watch(&pending, header.code);
        Ok(Received::Reply(pending))
    }

    /// Returns how a connection ends that answered the request to close with this code.
    fn closed_by(&mut self, code: ErrorCode) -> End {
        match code {
            ErrorCode::OK | ErrorCode::SESSION_EXPIRED => {
                self.key = None;
                End::Closed
            }
            // The request may not have been carried out.
            _ => End::Broken(code.to_string()),
        }
    }

    /// Learns from an answer that arrived while an earlier request was open; returns how the
    /// connection ends.
    ///
    /// ZooKeeper 3.4 refuses an unknown request at once and closes the connection. A server that
    /// answers any other request too early has dropped the earlier one, which it does not know. If
    /// the client did not learn from this, every connection would end like this one.
    fn learn_from(&mut self, open: Pending<A>, early: ReplyHeader) -> End {
        match self.queue.numbered(early.xid) {
            Some(request) if early.code == ErrorCode::UNIMPLEMENTED => {
                self.features.refused(request, early.code);
            }
            Some(_) => self.features.skipped(&open.request),
            None => {}
        }
        let number = open.request.op().0;
        self.queue.unpop(open, Failure::Lost);
        End::Broken(format!("a reply came before that of operation {number}"))
    }

    /// Keeps the watch of a request only if the server set it.
    fn settle_watch(&mut self, pending: &Pending<A>, code: ErrorCode) {
        match (&pending.request, pending.watch, code) {
            (_, None, _) | (_, _, ErrorCode::OK) => {}
            (Request::Exists { path, .. }, Some(number), ErrorCode::NO_NODE) => {
                self.watches.awaits_creation(path, number);
            }
            _ => self.forget_watch(pending),
        }
    }

    /// Takes in a reply of so many bytes that they are not kept; returns its request if that is a read.
    pub fn too_long(
        &mut self,
        header: ReplyHeader,
        bytes: usize,
    ) -> Result<Option<Pending<A>>, End> {
        let is_closing = matches!(self.stage, Stage::Closing { .. });
        if is_closing || header.xid == xid::MEMBERS {
            return Ok(None);
        }
        let broken = Err(End::Broken(format!("a frame of {bytes} bytes came")));
        let Some(pending) = self.queue.pending.pop_front() else {
            return broken;
        };
        // A failed reply would not tell whether a write was carried out.
        let read = header.code == ErrorCode::OK && is_read(&pending.request);
        if pending.xid != header.xid || !read {
            self.queue.unpop(pending, Failure::Lost);
            return broken;
        }
        self.last_zxid = self.last_zxid.max(header.zxid);
        Ok(Some(pending))
    }

    /// Keeps the connection alive, or finds it dead. The last frame, or a good part of one, arrived at `heard`; `amid` a
    /// frame, the server counts as answering. The ensemble goes on without the server if that is `left_out`. Returns the
    /// [next tick](Self::next_tick).
    pub fn tick(
        &mut self,
        (heard, amid): (Duration, bool),
        left_out: bool,
        now: Duration,
    ) -> Result<Duration, End> {
        if matches!(self.stage, Stage::Closing { until, .. } if now >= until) {
            return Err(End::Closed);
        }
        let silence = now.saturating_sub(heard);
        if silence >= self.silence() {
            let told = format!("nothing arrived for {:.1} s", silence.as_secs_f64());
            return Err(End::Broken(told));
        }
        if self.leaves_at(heard, amid).is_some_and(|at| at <= now) {
            self.features
                .left_over(self.queue.pending.front().map(|open| &open.request));
            return Err(End::Unanswered);
        }
        if self.has_diverged && self.stage == Stage::Serving {
            return Err(End::Diverged);
        }
        // An open request would have to be repeated.
        if left_out && self.stage == Stage::Serving && self.queue.pending.front().is_none() {
            return Err(End::LeftOut);
        }
        self.send_again(now);
        self.queue.ping_after(self.pause_between_pings(), now);
        Ok(self.next_tick(heard, amid))
    }

    /// Returns when to [`tick`](Self::tick) at the latest if nothing arrives and nothing is sent before.
    pub fn next_tick(&self, heard: Duration, amid: bool) -> Duration {
        let queue = &self.queue;
        // What is queued restarts the time to the next ping once it is written.
        let pings_at = (!queue.has_frames()).then(|| queue.sent() + self.pause_between_pings());
        let leaves_at = self.leaves_at(heard, amid);
        let soonest = pings_at
            .into_iter()
            .chain(leaves_at)
            .chain(queue.thrown_away.due);
        soonest.fold(heard + self.silence(), Duration::min)
    }

    /// Returns how long a server may be silent.
    fn silence(&self) -> Duration {
        self.timeout * 2 / 3
    }

    fn pause_between_pings(&self) -> Duration {
        // A client that holds or waits for a while watches a node.
        match self.watches.is_empty() {
            true => self.timeout / self.idle_pings,
            false => self.timeout / PINGS,
        }
    }

    /// Returns when to leave the server, if what is open is still unanswered then.
    fn leaves_at(&self, heard: Duration, amid: bool) -> Option<Duration> {
        // A client that only waits sends nothing but pings.
        let mut asked = self.queue.oldest_open();
        if let Some(open) = asked.as_mut().filter(|_| amid) {
            open.since = open.since.max(heard);
        }
        let by_promptness = self.promptness.leaves_at(asked);
        let by_the_end = match (self.stage, self.queue.pending.front()) {
            (Stage::Closing { until, .. }, Some(open)) => {
                let left = until.saturating_sub(open.queued);
                Some(open.queued + (left / PATIENT_PARTS).max(LEAST))
            }
            _ => None,
        };
        by_promptness.into_iter().chain(by_the_end).min()
    }

    /// Queues again what was thrown away if that is due, without the watches that nobody needs any more.
    fn send_again(&mut self, now: Duration) {
        if self.queue.thrown_away.due.is_none_or(|due| now < due) {
            return;
        }
        let again = mem::take(&mut self.queue.thrown_away);
        for lists in again.watches {
            let lists = self.watches.still_set(lists);
            if !lists.is_empty() {
                self.queue.set_watches(lists);
            }
        }
        if again.members {
            self.ask_for_members();
        }
    }
}
