//! Reads what the server sends during a connection, and passes on what that means.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::channel::Channel;
use super::frame_reader::{Frame, Inbox};
use super::shared::Shared;
use super::who_reads::Read;
use crate::system::{clock, contained, is_timeout};
use crate::transport::{Answer, Failure, Fired, TooLong, Watch, WatchId};
use zklock_core::connection::End;
use zklock_core::connection::link::arrivals::Received;
use zklock_core::connection::link::request_queue::Pending;
use zklock_jute::{ErrorCode, Event, EventKind, ReplyHeader};

/// The least time that a read waits, however short the session timeout.
const SHORTEST: Duration = Duration::from_millis(10);
/// The least time that a read waits at the end of a limit. The kernel rounds it up to a tick.
const LAST_MOMENT: Duration = Duration::from_micros(50);

/// How many bytes at once show that the rest of a frame is on its way. The answers to pings are shorter: a server that has
/// announced more than it sends would go on with them for ever.
const PIECE: usize = 64;

/// Reads from a connection and acts on what arrives; one thread at a time has it.
pub(super) struct ConnectionReader {
    inbox: Inbox,
    connection: Connection,
}

/// A connection that serves requests, or soon will.
struct Connection {
    shared: Arc<Shared>,
    channel: Arc<Channel>,
    /// How long a read waits: a twelfth of the session timeout.
    longest: Duration,
    /// When bytes last arrived.
    heard: Duration,
    /// When a frame was last whole, or a [`PIECE`] of one arrived.
    went_on: Duration,
    /// When to [`tick`](Connection::tick) at the latest, if nothing is sent before.
    due: Duration,
    /// The read timeout of the socket.
    patience: Duration,
}

impl ConnectionReader {
    /// Creates the reader of a connection whose session is granted.
    pub(super) fn new(inbox: Inbox, shared: &Arc<Shared>, channel: &Arc<Channel>) -> Self {
        let timeout = shared.state.lock().link.timeout();
        let now = clock::since_boot();
        let connection = Connection {
            shared: Arc::clone(shared),
            channel: Arc::clone(channel),
            longest: (timeout / 12).max(SHORTEST),
            heard: now,
            went_on: now,
            due: Duration::MAX,
            patience: Duration::ZERO,
        };
        Self { inbox, connection }
    }

    /// Acts on the frames that are whole; returns whether there was one.
    fn act(&mut self) -> Result<bool, End> {
        let (limit, mut acted) = (self.inbox.limit(), false);
        while let Some(frame) = self.inbox.frame().map_err(End::Broken)? {
            match frame {
                Frame::Whole(frame) => self.connection.frame(frame)?,
                Frame::TooLong { head, length } => {
                    self.connection.too_long(head, length, limit)?;
                }
            }
            acted = true;
        }
        Ok(acted)
    }
}

impl Read for ConnectionReader {
    fn begin(&mut self) -> Result<(), End> {
        self.connection.welcome()?;
        // Frames may have arrived along with the greeting.
        self.act().map(drop)
    }

    /// Waits for bytes, at most until `until` and no longer than the connection allows, and
    /// acts on them.
    fn turn(&mut self, until: Option<Instant>) -> Result<(), End> {
        let until = self.connection.shared.next_write(until);
        self.connection.set_patience(until)?;
        let read = match self.inbox.fill(&self.connection.channel) {
            Ok(0) => return Err(End::HungUp),
            Ok(read) => read,
            Err(error) if is_timeout(&error) => 0,
            Err(error) => return Err(End::Broken(error.to_string())),
        };
        if 0 < read {
            self.connection.heard = clock::since_boot();
        }
        if self.act()? || PIECE <= read {
            self.connection.went_on = self.connection.heard;
        }
        self.connection.tick(self.inbox.is_amid_a_frame())
    }
}

impl Connection {
    /// Sets the read timeout: `longest`, or less if `until` is sooner.
    fn set_patience(&mut self, until: Option<Instant>) -> Result<(), End> {
        let left = until.map(|until| until.saturating_duration_since(clock::now()));
        let due = self.due.saturating_sub(clock::since_boot());
        let soonest = left.map_or(due, |left| left.min(due));
        let patience = soonest.clamp(LAST_MOMENT, self.longest);
        if self.patience != patience {
            let set = self.channel.set_patience(patience);
            set.map_err(|error| End::Broken(error.to_string()))?;
            self.patience = patience;
        }
        Ok(())
    }

    /// Lets requests in, unless the server must first check the credentials.
    fn welcome(&self) -> Result<(), End> {
        let mut state = self.shared.state.lock();
        let served = state.link.serve(clock::since_boot());
        self.shared.flush(state);
        if let Some(session) = served? {
            self.shared.status.connected(session);
        }
        Ok(())
    }

    /// Keeps the connection alive, or finds it dead. `amid` a frame, the server counts as answering.
    fn tick(&mut self, amid: bool) -> Result<(), End> {
        let mut state = self.shared.state.lock();
        let left_out = state.list.is_left_out();
        let now = clock::since_boot();
        self.due = state.link.tick((self.went_on, amid), left_out, now)?;
        self.shared.flush(state);
        Ok(())
    }

    fn frame(&self, frame: &[u8]) -> Result<(), End> {
        let (header, body) = ReplyHeader::decode(frame)?;
        let status = &self.shared.status;
        let mut state = self.shared.state.lock();
        match state.link.receive(header, body, self.heard)? {
            // Whatever is queued leaves with the tick behind the last frame.
            Received::Nothing => {}
            Received::Again(sent) | Received::Pong(sent) => status.answered(sent, self.heard),
            Received::Serves(session) => {
                drop(state);
                status.connected(session);
            }
            Received::Members(code) => {
                drop(state);
                self.shared.members_came(code, body);
            }
            Received::Event(event, fired) => {
                drop(state);
                self.event(&event, fired);
            }
            Received::Early(pending) => {
                drop(state);
                return self.answer(pending, header.code, body);
            }
            Received::Reply(pending) => {
                self.shared.status.answered(pending.queued, self.heard);
                if header.code == ErrorCode::OK && pending.request.commits() {
                    status.committed(pending.queued, header.zxid);
                }
                drop(state);
                return self.answer(pending, header.code, body);
            }
        }
        Ok(())
    }

    fn event(&self, event: &Event, fired: Vec<Watch>) {
        let kind = event.kind;
        if kind == EventKind::None {
            contained(|| log::debug!("the server reports state {}", event.state));
            return;
        }
        self.shared.hear_of_members(event);
        for Watch { id, to } in fired {
            to.put(Fired { id, kind });
        }
    }

    fn answer(&self, pending: Pending<Answer>, code: ErrorCode, body: &[u8]) -> Result<(), End> {
        let root = self.shared.config.hosts.chroot();
        match pending.judge(code, body, root) {
            Ok(answered) => {
                if let Some(answer) = pending.answer {
                    answer(answered);
                }
                Ok(())
            }
            Err((failure, end)) => {
                self.shared.state.lock().link.queue.unpop(pending, failure);
                Err(end)
            }
        }
    }

    /// Handles a reply that is too long to keep: fails its request if that is a read, else the connection.
    fn too_long(&self, head: &[u8], bytes: usize, limit: usize) -> Result<(), End> {
        let (header, _) = ReplyHeader::decode(head)?;
        let pending = self.shared.state.lock().link.too_long(header, bytes)?;
        let Some(pending) = pending else {
            return Ok(());
        };
        if let Some((path, number)) = pending.watched() {
            self.shared.unwatch(path, WatchId(number));
        }
        if let Some(answer) = pending.answer {
            answer(Err(Failure::TooLong(TooLong {
                reply: true,
                bytes,
                limit,
            })));
        }
        Ok(())
    }
}
