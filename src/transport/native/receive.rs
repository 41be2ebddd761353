//! Acts on what the server sends during a connection.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::channel::{Channel, End};
use super::chroot::{below, strip};
use super::frame_reader::{Frame, Inbox};
use super::request_queue::{Pending, is_read};
use super::shared::{Shared, Stage};
use super::thrown_away::ThrownAway;
use super::who_reads::Read;
use crate::error::Error;
use crate::system::{clock, contained, is_timeout};
use crate::transport::{Failure, Fired, TooLong, Watch};
use zklock_core::connection::promptness::Promptness;
use zklock_core::connection::server_features::older;
use zklock_jute::{ErrorCode, Event, EventKind, OpCode, Reply, ReplyHeader, failure, xid};

/// The least time that a read waits, however short the session timeout.
const SHORTEST: Duration = Duration::from_millis(10);
/// The least time that a read waits at the end of a limit. The kernel rounds it up to a tick.
const LAST_MOMENT: Duration = Duration::from_micros(50);

/// Reads from a connection and acts on what arrives; one thread at a time has it.
pub(super) struct ConnectionReader {
    inbox: Inbox,
    pub(super) connection: Connection,
}

/// A connection that serves requests, or soon will.
pub(super) struct Connection {
    shared: Arc<Shared>,
    channel: Arc<Channel>,
    session: i64,
    /// The newest change that the client knows of.
    pub(super) last_zxid: i64,
    pub(super) timeout: Duration,
    /// How many answers to the credentials must arrive before requests are sent.
    auths: usize,
    /// Whether a request was answered.
    pub(super) answered: bool,
    /// When bytes last arrived.
    heard: Duration,
    pub(super) promptness: Promptness,
    /// When to leave the server, by the requests that were open at the last tick.
    leaves_at: Option<Duration>,
    thrown_away: ThrownAway,
    /// The read timeout of the socket.
    patience: Duration,
}

impl ConnectionReader {
    pub(super) fn new(inbox: Inbox, connection: Connection) -> Self {
        Self { inbox, connection }
    }

    fn act(&mut self) -> Result<(), End> {
        let limit = self.inbox.limit();
        while let Some(frame) = self.inbox.frame().map_err(End::Broken)? {
            match frame {
                Frame::Whole(frame) => self.connection.frame(frame)?,
                Frame::TooLong { head, length } => {
                    self.connection.too_long(head, length, limit)?;
                }
            }
        }
        Ok(())
    }
}

impl Read for ConnectionReader {
    type End = End;

    fn begin(&mut self) -> Result<(), End> {
        self.connection.welcome()?;
        // Frames may have arrived along with the greeting.
        self.act()
    }

    /// Waits for bytes, at most until `until` and no longer than the connection allows, and
    /// acts on them.
    fn turn(&mut self, until: Option<Instant>) -> Result<(), End> {
        let until = self.connection.shared.next_write(until);
        self.connection.set_patience(until)?;
        match self.inbox.fill(&self.connection.channel) {
            Ok(0) => return Err(End::HungUp),
            Ok(_) => self.connection.heard = clock::since_boot(),
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(End::Broken(error.to_string())),
        }
        self.act()?;
        self.connection.tick(self.inbox.is_amid_a_frame())
    }

    fn panicked() -> End {
        End::Broken("the thread that read panicked".to_owned())
    }
}

impl Connection {
    pub(super) fn new(
        shared: &Arc<Shared>,
        channel: &Arc<Channel>,
        (session, last_zxid): (i64, i64),
        timeout: Duration,
    ) -> Self {
        Self {
            shared: Arc::clone(shared),
            channel: Arc::clone(channel),
            session,
            last_zxid,
            timeout,
            auths: shared.config.auth.len(),
            answered: false,
            heard: clock::since_boot(),
            promptness: Promptness::new(timeout),
            leaves_at: None,
            thrown_away: ThrownAway::default(),
            patience: Duration::ZERO,
        }
    }

    /// Sets the read timeout: a twelfth of the session timeout, or less if `until` is sooner.
    fn set_patience(&mut self, until: Option<Instant>) -> Result<(), End> {
        let longest = (self.timeout / 12).max(SHORTEST);
        let left = until.map(|until| until.saturating_duration_since(clock::now()));
        let left_until = |at: Duration| at.saturating_sub(clock::since_boot());
        let (stays, again) = (self.leaves_at, self.thrown_away.due);
        let ours = stays.into_iter().chain(again).map(left_until);
        let soonest = ours.chain(left).min();
        let patience = soonest.map_or(longest, |left| left.clamp(LAST_MOMENT, longest));
        if self.patience != patience {
            let set = self.channel.set_patience(patience);
            set.map_err(|error| End::Broken(error.to_string()))?;
            self.patience = patience;
        }
        Ok(())
    }

    /// Lets requests in, unless the server must first check the credentials.
    fn welcome(&self) -> Result<(), End> {
        if self.auths > 0 {
            return Ok(());
        }
        match self.shared.serve() {
            Stage::Serving => self.shared.status.connected(self.session),
            Stage::Closing { .. } => {}
            Stage::Away | Stage::Over => return Err(End::Closed),
        }
        Ok(())
    }

    /// Keeps the connection alive, or finds it dead. `amid` a frame, the server counts as answering.
    fn tick(&mut self, amid: bool) -> Result<(), End> {
        let now = clock::since_boot();
        let mut state = self.shared.state.lock();
        if matches!(state.stage, Stage::Closing { until, .. } if now >= until) {
            return Err(End::Closed);
        }
        let silence = now.saturating_sub(self.heard);
        if silence >= self.timeout * 2 / 3 {
            let told = format!("nothing arrived for {:.1} s", silence.as_secs_f64());
            return Err(End::Broken(told));
        }
        let oldest = state.queue.oldest_since();
        // A client that only waits sends nothing but pings.
        let mut asked = state.queue.oldest_open();
        if let Some(open) = asked.as_mut().filter(|_| amid) {
            open.since = open.since.max(self.heard);
        }
        let by_promptness = self.promptness.leaves_at(asked);
        let by_the_end = state.leaves_unless_closed_at(oldest);
        self.leaves_at = [by_promptness, by_the_end].into_iter().flatten().min();
        if self.leaves_at.is_some_and(|at| at <= now) {
            let state = &mut *state;
            state.features.left_over(state.queue.oldest());
            return Err(End::Unanswered);
        }
        if state.has_diverged && state.stage == Stage::Serving {
            return Err(End::Diverged);
        }
        if state.is_to_move() {
            return Err(End::LeftOut);
        }
        self.thrown_away.send_again(&mut state, now);
        let pings = self.shared.config.pings(state.watches.is_empty());
        state.queue.ping_after(self.timeout / pings, now);
        self.shared.flush(state);
        Ok(())
    }

    fn frame(&mut self, frame: &[u8]) -> Result<(), End> {
        let (header, body) = ReplyHeader::decode(frame)?;
        match header.xid {
            xid::EVENT => self.event(Event::decode(body)?),
            xid::PING if header.code != ErrorCode::OK => {
                let code = header.code;
                return Err(End::Broken(format!("a ping was refused: {code}")));
            }
            xid::PING => self.pong(),
            xid::AUTH if header.code != ErrorCode::OK => {
                return Err(End::Refused(Error::AuthFailed));
            }
            xid::AUTH => {
                self.auths = self.auths.saturating_sub(1);
                self.welcome_once()?;
            }
            xid::SET_WATCHES => {
                let lists = self.shared.state.lock().queue.watches_answered();
                self.thrown_away.watches_answered(header.code, lists)?;
            }
            xid::MEMBERS if header.code == ErrorCode::THROTTLED => self.thrown_away.members_were(),
            xid::MEMBERS => self.shared.members_came(header.code, body),
            _ => {
                // The events of a change arrive before the replies that reflect it. The answers to
                // pings give no such guarantee.
                self.last_zxid = self.last_zxid.max(header.zxid);
                if !self.answers_early_refusal(header) {
                    return self.reply(header, body);
                }
            }
        }
        Ok(())
    }

    fn pong(&self) {
        let sent = self.shared.state.lock().queue.pong();
        if let Some(sent) = sent {
            self.shared.status.answered(sent, self.heard);
        }
    }

    fn welcome_once(&self) -> Result<(), End> {
        let stage = self.shared.state.lock().stage;
        match stage {
            Stage::Away | Stage::Closing { reply: None, .. } => self.welcome(),
            _ => Ok(()),
        }
    }

    fn event(&self, event: Event) {
        if event.kind == EventKind::None {
            contained(|| log::debug!("the server reports state {}", event.state));
            return;
        }
        self.shared.hear_of_members(&event);
        if let Some(path) = below(self.root(), &event.path) {
            let fired = self.shared.state.lock().watches.fire(path, event.kind);
            for Watch { id, to, .. } in fired {
                to.put(Fired {
                    id,
                    kind: event.kind,
                });
            }
        }
    }

    /// Answers a write that the server refuses before it has answered earlier requests; returns whether this is one.
    ///
    /// With `enableEagerACLCheck`, a server that may not carry a write out passes it on to nobody.
    fn answers_early_refusal(&self, header: ReplyHeader) -> bool {
        if !matches!(header.code, ErrorCode::NO_AUTH | ErrorCode::INVALID_ACL) {
            return false;
        }
        let refused = self.shared.state.lock().queue.take_out_of_turn(header.xid);
        let is_one = refused.is_some();
        if let Some(refused) = refused {
            refused.answer(Err(Failure::Refused(header.code)));
        }
        is_one
    }

    fn reply(&mut self, header: ReplyHeader, body: &[u8]) -> Result<(), End> {
        let mut state = self.shared.state.lock();
        if let Stage::Closing { reply, .. } = state.stage {
            return match reply {
                Some(xid) if xid == header.xid => Err(state.closed_by(header.code)),
                _ => Ok(()),
            };
        }
        let Some(mut pending) = state.queue.pop() else {
            return Err(End::Broken("a reply came without a request".to_owned()));
        };
        if pending.xid != header.xid {
            let end = state.learn_from(&pending, header);
            drop(state);
            pending.answer(Err(Failure::Lost));
            return Err(end);
        }
        self.shared.status.answered(pending.queued, self.heard);
        let answered = pending.as_open().refused_for(Some(header.code));
        self.promptness.answered(answered, self.heard);
        self.answered = true;
        if pending.again {
            self.shared.push_again(state, pending);
            return Ok(());
        }
        if header.code == ErrorCode::OK {
            state.features.succeeded(&pending.request);
            if pending.request.commits() {
                self.shared.status.committed(pending.queued, header.zxid);
            }
        } else if state.features.refused(&pending.request, header.code) {
            state.queue.repeat_reads();
            pending.request = older(pending.request);
            self.shared.push_again(state, pending);
            return Ok(());
        }
        state.settle_watch(&pending, header.code);
        drop(state);
        self.answer(pending, header.code, body)
    }

    /// Handles a reply that is too long to keep: fails its request if that is a read, else the connection.
    fn too_long(&mut self, head: &[u8], bytes: usize, limit: usize) -> Result<(), End> {
        let broken = || Err(End::Broken(format!("a frame of {bytes} bytes came")));
        let (header, _) = ReplyHeader::decode(head)?;
        let mut state = self.shared.state.lock();
        if matches!(state.stage, Stage::Closing { .. }) || header.xid == xid::MEMBERS {
            return Ok(());
        }
        let Some(pending) = state.queue.pop() else {
            return broken();
        };
        // A failed reply would not tell whether a write was carried out.
        let read = header.code == ErrorCode::OK && is_read(&pending.request);
        if pending.xid != header.xid || !read {
            state.forget_watch(&pending);
            state.queue.unpop(pending, Failure::Lost);
            return broken();
        }
        self.last_zxid = self.last_zxid.max(header.zxid);
        drop(state);
        if let Some((path, id)) = pending.watched() {
            self.shared.unwatch(path, id);
        }
        pending.answer(Err(Failure::TooLong(TooLong {
            reply: true,
            bytes,
            limit,
        })));
        Ok(())
    }

    fn answer(&self, pending: Pending, code: ErrorCode, body: &[u8]) -> Result<(), End> {
        let (failure, end) = match code {
            ErrorCode::OK if pending.is_expired_by(body) => (Failure::NotSent, End::Expired),
            ErrorCode::OK => return self.deliver(pending, body),
            // Nothing was carried out; the refusal is about the session.
            ErrorCode::SESSION_EXPIRED => (Failure::NotSent, End::Expired),
            ErrorCode::SESSION_MOVED | ErrorCode::NOT_READ_ONLY => {
                (Failure::NotSent, End::Broken(code.to_string()))
            }
            // The server gave up and does not know whether it carried out the request.
            ErrorCode::CONNECTION_LOSS | ErrorCode::OPERATION_TIMEOUT => {
                (Failure::Lost, End::Broken(code.to_string()))
            }
            // Some servers report in the header that a multi failed, and in the body why.
            code if pending.request.op() == OpCode::MULTI && !body.is_empty() => {
                let reply = pending.request.reply(body).ok();
                let why = reply.filter(
                    |reply| matches!(reply, Reply::Multi(results) if failure(results).is_some()),
                );
                pending.answer(why.ok_or(Failure::Refused(code)));
                return Ok(());
            }
            code => {
                pending.answer(Err(Failure::Refused(code)));
                return Ok(());
            }
        };
        // The request fails with the connection, after the status has changed: its caller must not
        // ask again too early.
        self.shared.state.lock().queue.unpop(pending, failure);
        Err(end)
    }

    fn deliver(&self, pending: Pending, body: &[u8]) -> Result<(), End> {
        match pending.request.reply(body) {
            Ok(mut reply) => {
                strip(self.root(), &mut reply);
                pending.answer(Ok(reply));
                Ok(())
            }
            Err(malformed) => {
                let mut state = self.shared.state.lock();
                state.forget_watch(&pending);
                state.queue.unpop(pending, Failure::Lost);
                Err(malformed.into())
            }
        }
    }

    fn root(&self) -> &str {
        self.shared.config.hosts.chroot()
    }
}
