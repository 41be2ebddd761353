//! The session and its connection, as every part of a core sees them: the time, what can be sent, and what
//! a message proves.

use core::mem;
use core::time::Duration;

use super::ask::{Greeting, Loss, Settings, Time};
use super::calls::{Calls, Purpose};
use zklock_core::acquisition::CallId;
use zklock_core::connection::promptness::{OpenRequest, Promptness};
use zklock_core::lifetime::Lifetime;
use zklock_core::validity::Stamp;
use zklock_jute::Request;

/// The part of the session timeout after which a ping is sent if nothing else was.
const PINGS: u32 = 6;

/// The session and its connection; see the module's documentation.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) settings: Settings,
    pub(super) now: Time,
    pub(super) calls: Calls,
    pub(super) has_connection: bool,
    /// How many connections there were.
    pub(super) connects: u64,
    /// How many sessions expired.
    pub(super) expiries: u64,
    /// Why there will never be a connection again, if so.
    pub(super) over: Option<Loss>,
    /// The session, which may go on with the next connection; 0 if there is none.
    pub(super) session: i64,
    pub(super) lifetime: Lifetime,
    pub(super) transacts: bool,
    /// The newest change that an answer has shown.
    pub(super) last_zxid: i64,
    /// When something last arrived.
    received: Time,
    /// After how long a silence to leave the server.
    leaves_after: Duration,
    /// After how long to send a ping if nothing else was sent.
    pings_after: Duration,
    promptness: Promptness,
    /// Whether the client has left the last server, as for its silence.
    fell_silent: bool,
    /// Whether the connection is of no use any more.
    pub(super) hangs_up: bool,
    ids: u128,
}

impl Link {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            ids: settings.first_id,
            settings,
            now: Time::ZERO,
            calls: Calls::default(),
            has_connection: false,
            connects: 0,
            expiries: 0,
            over: None,
            session: 0,
            lifetime: Lifetime::new(Duration::ZERO, Time::ZERO, Time::ZERO),
            transacts: true,
            last_zxid: 0,
            received: Time::ZERO,
            leaves_after: Duration::ZERO,
            pings_after: Duration::ZERO,
            promptness: Promptness::new(Duration::ZERO),
            fell_silent: false,
            hangs_up: false,
        }
    }

    /// Returns whether requests can be sent.
    pub(super) fn is_connected(&self) -> bool {
        self.has_connection && !self.hangs_up
    }

    /// Sends a request. There must be a connection.
    pub(super) fn send(&mut self, request: Request, purpose: Purpose) -> CallId {
        self.calls.push(self.now, request, purpose)
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
            transacts,
        } = greeting;
        let resumed = session == self.session;
        self.expiries += u64::from(!resumed && self.session != 0);
        match resumed {
            true => self.lifetime.greeted(timeout, asked, self.now),
            false => self.lifetime = Lifetime::new(timeout, asked, self.now),
        }
        self.session = session;
        self.transacts = transacts;
        self.has_connection = true;
        self.connects += 1;
        self.received = self.now;
        self.calls.begin(self.now);
        self.leaves_after = self.timeout() * 2 / 3;
        self.pings_after = self.timeout() / PINGS;
        self.promptness = Promptness::new(self.timeout());
        if !self.fell_silent {
            self.promptness.greeted(self.now.saturating_sub(asked));
        }
        resumed
    }

    pub(super) fn broke(&mut self) {
        self.has_connection = false;
        self.lifetime.broke();
        self.fell_silent = mem::replace(&mut self.hangs_up, false);
    }

    /// Notes that a server says that the session has expired.
    pub(super) fn expired(&mut self) {
        self.expiries += u64::from(self.session != 0);
        self.session = 0;
    }

    /// Notes that there will never be a connection again.
    pub(super) fn ends(&mut self, why: Loss) {
        self.over.get_or_insert(why);
        self.calls.fail();
        self.broke();
        self.session = 0;
    }

    /// Takes in the answer to a request.
    pub(super) fn answered(&mut self, request: OpenRequest) {
        self.lifetime.answered(request.since, self.now);
        self.promptness.answered(request, self.now);
    }

    /// Takes in the answer to the oldest ping.
    pub(super) fn pong(&mut self) {
        if let Some(sent) = self.calls.pong() {
            self.lifetime.answered(sent, self.now);
        }
    }

    /// Notes that something arrived.
    pub(super) fn received(&mut self) {
        self.received = self.now;
    }

    /// Keeps the session alive, or finds the connection dead.
    pub(super) fn tick(&mut self) {
        if !self.is_connected() {
            return;
        }
        if self.leaves_at() <= self.now {
            self.hangs_up = true;
        } else if self.pings_at() <= self.now {
            self.calls.ping(self.now);
        }
    }

    /// Returns when the next [`tick`](Self::tick) does something.
    pub(super) fn next_tick(&self) -> Option<Time> {
        self.is_connected()
            .then(|| self.leaves_at().min(self.pings_at()))
    }

    fn pings_at(&self) -> Time {
        self.calls.last_sent() + self.pings_after
    }

    /// Returns when to leave a server from which nothing arrives, or no answer.
    fn leaves_at(&self) -> Time {
        let silent = self.received + self.leaves_after;
        let unanswered = self.promptness.leaves_at(self.calls.oldest());
        unanswered.map_or(silent, |at| at.min(silent))
    }
}
