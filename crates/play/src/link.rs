//! The session and its connection, as every part of a core sees them: the time, what can be sent, and what
//! a message proves.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::iter;
use core::mem;
use core::time::Duration;

use super::ask::{Answer, Greeting, Loss, Settings, Time};
use super::calls::{Call, Purpose};
use zklock_core::acquisition::CallId;
use zklock_core::answer::{Answered, Failure};
use zklock_core::connection::link as connection;
use zklock_core::connection::link::arrivals::Received;
use zklock_core::connection::session::SessionKey;
use zklock_core::lifetime::Lifetime;
use zklock_core::validity::Stamp;
use zklock_jute::{ErrorCode, ReplyHeader, Request, xid};

/// The longest request.
const FRAME_LIMIT: usize = 0xf_ffff;
/// The bytes of a frame's length.
const LENGTH: usize = 4;

/// The session and its connection; see the module's documentation.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) settings: Settings,
    pub(super) now: Time,
    /// What the connection does with calls and answers.
    connection: connection::Link<(), Call>,
    /// How many connections there were.
    pub(super) connects: u64,
    /// How many sessions expired.
    pub(super) expiries: u64,
    /// Why there will never be a connection again, if so.
    pub(super) over: Option<Loss>,
    /// The session, which may go on with the next connection; 0 if there is none.
    pub(super) session: i64,
    pub(super) lifetime: Lifetime,
    /// When something last arrived.
    heard: Time,
    /// Whether the client has left the last server, as for its silence.
    fell_silent: bool,
    /// Whether the connection is of no use any more.
    pub(super) hangs_up: bool,
    /// The frames that the shell has not taken yet.
    frames: VecDeque<(i32, Request)>,
    /// The numbers of the requests that it has taken. Servers answer in order.
    taken: VecDeque<i32>,
    /// The creates for whose nodes nobody waits any more.
    abandoned: BTreeSet<CallId>,
    calls: u64,
    ids: u128,
}

impl Link {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            ids: settings.first_id,
            settings,
            now: Time::ZERO,
            connection: connection::Link::new(
                ("", FRAME_LIMIT),
                connection::PINGS,
                0,
                (None, false),
            ),
            connects: 0,
            expiries: 0,
            over: None,
            session: 0,
            lifetime: Lifetime::new(Duration::ZERO, Time::ZERO, Time::ZERO),
            heard: Time::ZERO,
            fell_silent: false,
            hangs_up: false,
            frames: VecDeque::new(),
            taken: VecDeque::new(),
            abandoned: BTreeSet::new(),
            calls: 0,
        }
    }

    /// Returns whether requests can be sent.
    pub(super) fn is_connected(&self) -> bool {
        self.connection.stage() == connection::Stage::Serving && !self.hangs_up
    }

    /// Returns whether the servers carry out transactions.
    pub(super) fn transacts(&self) -> bool {
        self.connection.features.transacts()
    }

    /// Returns whether created nodes come with their stat.
    pub(super) fn tells_stats(&self) -> bool {
        self.connection.features.tells_stats()
    }

    /// Returns the newest change that an answer has shown.
    pub(super) fn last_zxid(&self) -> i64 {
        self.connection.last_zxid
    }

    /// Sends a request. There must be a connection.
    pub(super) fn send(&mut self, request: Request, purpose: Purpose) -> CallId {
        self.calls += 1;
        let id = CallId(self.calls);
        let call = Call { id, purpose };
        let pushed = self.connection.push(request, None, call, self.now);
        debug_assert!(pushed.is_ok(), "{pushed:?}");
        id
    }

    /// Notes that nobody waits for this create any more: the node that its answer shows is deleted.
    pub(super) fn abandon(&mut self, create: CallId) {
        self.abandoned.insert(create);
    }

    /// Returns the next request to write.
    pub(super) fn next_request(&mut self) -> Option<Request> {
        let serves = self.connection.stage() == connection::Stage::Serving;
        if serves && self.frames.is_empty() && self.connection.queue.has_frames() {
            let mut bytes = Vec::new();
            self.connection.queue.take_frames(&mut bytes, self.now);
            self.frames.extend(decoded(&bytes));
        }
        let (number, request) = self.frames.pop_front()?;
        self.taken
            .extend(Some(number).filter(|_| number != xid::PING));
        Some(request)
    }

    /// Returns the stamp of a check that is sent now.
    pub(super) fn stamp(&self) -> Stamp {
        self.lifetime.stamp(self.now)
    }

    pub(super) fn timeout(&self) -> Duration {
        self.lifetime.timeout()
    }

    /// Returns an id that was never used.
    pub(super) fn fresh_id(&mut self) -> u128 {
        self.ids = self.ids.wrapping_add(1);
        self.ids
    }

    /// Notes that a connect request is sent.
    pub(super) fn greets(&mut self) {
        self.connection.begin(self.now);
        if self.session != 0 {
            self.lifetime.greets(self.now, None);
        }
    }

    /// Notes that a server serves. Returns whether the session is the one before.
    pub(super) fn greeted(&mut self, greeting: Greeting) -> bool {
        let Greeting {
            session,
            timeout,
            asked,
        } = greeting;
        let resumed = session == self.session;
        self.expiries += u64::from(!resumed && self.session != 0);
        match resumed {
            true => self.lifetime.greeted(timeout, asked, self.now),
            false => self.lifetime = Lifetime::new(timeout, asked, self.now),
        }
        self.session = session;
        self.connects += 1;
        self.heard = self.now;
        let took = (!self.fell_silent).then(|| self.now.saturating_sub(asked));
        let key = SessionKey {
            id: session,
            ..SessionKey::default()
        };
        let timeout = self.timeout();
        self.connection.greeted(key, timeout, took, iter::empty());
        self.hangs_up = self.connection.serve(self.now).is_err();
        resumed
    }

    /// Notes that the connection is gone. Returns the calls without an answer, each with why there is none.
    pub(super) fn broke(&mut self) -> Vec<(Call, Failure)> {
        self.lifetime.broke();
        self.fell_silent = mem::replace(&mut self.hangs_up, false);
        self.frames.clear();
        self.taken.clear();
        let open = self.connection.broke(!self.fell_silent).open;
        let called = |(call, failure)| (self.called(call), failure);
        open.into_iter().map(called).collect()
    }

    /// Notes that a server says that the session has expired.
    pub(super) fn expired(&mut self) {
        self.expiries += u64::from(self.session != 0);
        self.connection.expire();
        self.session = 0;
    }

    /// Notes that there will never be a connection again.
    pub(super) fn ends(&mut self, why: Loss) {
        self.over.get_or_insert(why);
        self.broke();
        self.connection.end();
        self.session = 0;
    }

    /// Takes in the answer to the oldest request that has none. Returns whose call that was.
    pub(super) fn answered(&mut self, answer: Answer) -> Option<(Call, Answered)> {
        let Answer { zxid, result } = answer;
        let (code, reply) = match result {
            Ok(reply) => (ErrorCode::OK, Some(reply)),
            Err(code) => (code, None),
        };
        let xid = self.taken.pop_front().unwrap_or_default();
        let Received::Reply(pending) = self.received(ReplyHeader { xid, zxid, code })? else {
            return None;
        };
        if code == ErrorCode::OK && pending.request.commits() {
            self.lifetime.committed(pending.queued, zxid);
        }
        match pending.judge_decoded(code, reply) {
            Ok(answered) => {
                let call = self.called(pending.answer?);
                let answered = match call.purpose {
                    Purpose::Deletion(_) | Purpose::Both(..) | Purpose::Check(_) => answered,
                    _ => answered.map_err(Failure::sorted),
                };
                Some((call, answered))
            }
            Err((failure, _)) => {
                self.connection.queue.unpop(pending, failure);
                self.hangs_up = true;
                None
            }
        }
    }

    fn called(&mut self, mut call: Call) -> Call {
        if let Purpose::Create(creation) | Purpose::Both(_, creation) = &mut call.purpose {
            creation.is_wanted = !self.abandoned.remove(&call.id);
        }
        call
    }

    /// Takes in the answer to the oldest ping.
    pub(super) fn pong(&mut self) {
        self.received(ReplyHeader {
            xid: xid::PING,
            zxid: 0,
            code: ErrorCode::OK,
        });
    }

    fn received(&mut self, header: ReplyHeader) -> Option<Received<(), Call>> {
        self.heard();
        let received = self.connection.receive(header, &[], self.now);
        self.hangs_up |= received.is_err();
        let received = received.ok()?;
        match &received {
            Received::Again(sent) | Received::Pong(sent) => self.lifetime.answered(*sent, self.now),
            Received::Reply(pending) => self.lifetime.answered(pending.queued, self.now),
            _ => {}
        }
        Some(received)
    }

    /// Notes that something arrived.
    pub(super) fn heard(&mut self) {
        self.heard = self.now;
    }

    /// Leaves a server whose data are wrong.
    pub(super) fn move_on(&mut self) {
        self.connection.move_on(self.now);
    }

    /// Keeps the session alive, or finds the connection dead.
    pub(super) fn tick(&mut self) {
        if self.is_connected() {
            let ticked = self.connection.tick((self.heard, false), false, self.now);
            self.hangs_up = ticked.is_err();
        }
    }

    /// Returns when the next [`tick`](Self::tick) does something.
    pub(super) fn next_tick(&self) -> Option<Time> {
        self.is_connected()
            .then(|| self.connection.next_tick(self.heard, false))
    }
}

/// Returns the requests in these frames, with their numbers.
fn decoded(mut frames: &[u8]) -> impl Iterator<Item = (i32, Request)> {
    iter::from_fn(move || {
        let (length, rest) = frames.split_first_chunk::<LENGTH>()?;
        let (frame, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        frames = rest;
        Request::decode(frame).ok()
    })
}
