//! The I/O thread: connects, and reconnects until the transport is closed.
//!
//! ```text
//!            refused                        broken
//!  round ───────────────► pause ◄─────────────────────────────┐
//!    ▲ │                    │                                 │
//!    │ └─ dial ── greeting ── SASL ── auth, watches ── serve ─┘
//!    └──────────────────────┘
//! ```

mod round;

use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::channel::{Channel, End, Failed};
use super::frame_reader::Inbox;
use super::greeting::{NOT_GREETED, connect_request, greeting, tell_granted};
use super::hosts::{Candidate, Target};
#[cfg(feature = "sasl")]
use super::log_in::{log_in, prepare};
use super::receive::{Connection, ConnectionReader};
use super::resolver::Unresolved;
use super::shared::{Shared, Stage, jittered};
use super::who_reads::LeaderFollowers;
use crate::system::clock::since_boot;
use crate::system::contained;
use crate::transport::Failure;
use crate::transport::handover::SessionKey;
use zklock_core::connection::backoff::Service;
use zklock_core::connection::outage::Outage;
use zklock_core::connection::rotation::{Refusal, Resumption, Rotation, Round};
use zklock_jute::{ConnectReply, Request, Secret, xid};

/// How much longer than a request a reply may be: a listing with its stat, and a header.
const REPLY_SLACK: usize = 64 * 1024;

/// The end of a session in the log, if a server says that it is over.
const EXPIRED: &str = "expired";

struct Io {
    shared: Arc<Shared>,
    reading: Arc<LeaderFollowers<ConnectionReader>>,
    /// The session; its id is 0 if there is none.
    session: SessionKey,
    /// The newest change that the client has seen; 0 for an inherited session, where only the other process knows it.
    last_zxid: i64,
    /// Whether a server has served.
    has_served: bool,
    rotation: Rotation<Target>,
    outage: Outage,
    /// The names that were not resolved in the last round.
    unresolved: Vec<Unresolved>,
}

/// Runs until the transport is closed or its credentials are refused.
pub(super) fn run(shared: Arc<Shared>, reading: Arc<LeaderFollowers<ConnectionReader>>) {
    let _exit = ExitGuard(Arc::clone(&shared));
    let inherited = shared.config.inherited.clone();
    let least = shared.config.granted_at_least;
    shared.status.continues(inherited.as_ref(), least);
    let timeout = inherited.as_ref().map_or(Duration::ZERO, |it| it.timeout);
    let rotation = Rotation::new(shared.config.session_timeout, since_boot());
    let mut io = Io {
        shared,
        reading,
        session: inherited.map(|it| it.key).unwrap_or_default(),
        last_zxid: 0,
        has_served: false,
        rotation,
        outage: Outage::since(since_boot(), timeout),
        unresolved: Vec::new(),
    };
    loop {
        let round = io.round();
        let pause = io.rotation.pause_after(&round, since_boot());
        if matches!(round, Round::Over) || !io.shared.rest(jittered(pause)) {
            break;
        }
    }
}

/// Answers every open request when the thread ends, even in a panic.
struct ExitGuard(Arc<Shared>);

impl Drop for ExitGuard {
    fn drop(&mut self) {
        let left = self.0.detach(false);
        self.0.end();
        self.0.status.closed();
        for (pending, _) in left.open {
            pending.answer(Err(Failure::Closed));
        }
    }
}

impl Io {
    /// Returns whether a server has ever given a session.
    fn has_past(&self) -> bool {
        self.session.id != 0 || self.last_zxid != 0
    }

    /// Connects to one address and serves requests until the connection ends.
    fn attempt(&mut self, to: &Candidate) -> Result<Round, Failed> {
        let (Shared { status, config, .. }, target) = (&*self.shared, &to.target);
        status.asks(target, "it has not accepted a connection");
        let (limit, began) = (self.shared.at_most(to.accept_limit), since_boot());
        let channel = Arc::new(Channel::connect(target, limit, config.tls.as_ref())?);
        self.rotation.accepted(since_boot().saturating_sub(began));
        status.asks(target, NOT_GREETED);
        if !self.shared.attach(&channel, target) {
            return Ok(Round::Over);
        }
        let attempted = self.greet_and_serve(&channel, to);
        attempted.inspect_err(|_| drop(self.shared.detach(false)))
    }

    fn greet_and_serve(&mut self, channel: &Arc<Channel>, to: &Candidate) -> Result<Round, Failed> {
        let (target, limit, wish) = (&to.target, self.shared.at_most(to.limit), to.wish);
        let mut inbox = Inbox::new(self.shared.config.frame_limit + REPLY_SLACK);
        channel.secure(limit)?;
        #[cfg(feature = "sasl")]
        let begun = prepare(&self.shared, target, limit)?;
        let (config, sent) = (&self.shared.config, since_boot());
        self.shared.status.greets(sent, config.granted_at_least);
        let greeted = self.greet(channel, &mut inbox, limit, wish);
        self.asked(sent, greeted.as_ref().err().and_then(|failed| failed.0));
        let reply = greeted?;
        if wish == Resumption::Anew && reply.timeout_ms > 0 {
            self.begin_anew();
        }
        let (before, had) = (self.session.id, self.outage.granted);
        let Some(granted) = self.adopt(reply, wish)? else {
            self.shared.detach(false);
            return Ok(Round::Expired);
        };
        self.rotation.greeted(since_boot().saturating_sub(sent));
        let timeout = self.shared.status.greeted(self.session.id, granted, sent);
        #[cfg(feature = "sasl")]
        if let Err(end) = log_in(&self.shared, channel, &mut inbox, target, limit, begun) {
            return self.finish(target, end, false);
        }
        let had = (before == self.session.id).then_some(had);
        tell_granted(target, granted, had, self.shared.config.session_timeout);
        self.tell_connected(target, timeout);
        self.restore();
        let connection = self.connection(channel, timeout);
        self.serve(target, ConnectionReader::new(inbox, connection))
    }

    fn connection(&self, channel: &Arc<Channel>, timeout: Duration) -> Connection {
        let session = (self.session.id, self.last_zxid);
        let mut connection = Connection::new(&self.shared, channel, session, timeout);
        if let Some(took) = self.rotation.trusted_greeting() {
            connection.promptness.greeted(took);
        }
        connection
    }

    /// Serves requests until the connection ends.
    fn serve(&mut self, target: &Target, reader: ConnectionReader) -> Result<Round, Failed> {
        let (reader, end) = self.reading.serve(Box::new(reader));
        let connection = &reader.connection;
        self.last_zxid = connection.last_zxid;
        // A server that closes the connection when the client authenticates has not served.
        if self.shared.state.lock().stage != Stage::Away {
            self.outage.served_until(since_boot(), connection.timeout);
        }
        self.finish(target, end, connection.answered)
    }

    fn begin_anew(&mut self) {
        // The guards of the old session must fail before there is a new one.
        self.expire(
            "is given up: no server resumes it, perhaps because their data is older than what it has seen",
        );
        self.last_zxid = 0;
    }

    fn tell_connected(&mut self, target: &Target, timeout: Duration) {
        let level = match mem::replace(&mut self.has_served, true) {
            true => log::Level::Info,
            false => log::Level::Debug,
        };
        let session = self.session.id;
        contained(|| {
            log::log!(
                level,
                "{target}: connected, session {session:#x}, timeout {timeout:?}"
            );
        });
    }

    /// Asks for a session, and waits for the greeting.
    fn greet(
        &self,
        channel: &Channel,
        inbox: &mut Inbox,
        limit: Duration,
        wish: Resumption,
    ) -> Result<ConnectReply, Failed> {
        let asked = self.shared.config.session_timeout;
        let request = match wish {
            Resumption::Anew => connect_request(&SessionKey::default(), 0, asked),
            Resumption::Resume | Resumption::ResumeOnly => {
                connect_request(&self.session, self.last_zxid, asked)
            }
        };
        let mut state = self.shared.state.lock();
        state.queue.push_aside(|out| request.encode(out));
        self.shared.flush(state);
        greeting(channel, inbox, limit, self.shared.config.wall_clock_expiry)
    }

    /// Takes the session that the server grants, if it grants one.
    fn adopt(&mut self, reply: ConnectReply, wish: Resumption) -> Result<Option<Duration>, Failed> {
        let silent = |reason: &str| Failed(Some(Refusal::Silent), reason.to_owned());
        if reply.read_only {
            return Err(silent("it is read-only at present"));
        }
        let had_one = self.session.id != 0;
        let timeout = u64::try_from(reply.timeout_ms).unwrap_or(0);
        // Some servers grant a new session when asked for an unknown one.
        if had_one && (timeout == 0 || reply.session != self.session.id) {
            let is_overdue = self.outage.is_overdue(since_boot());
            if wish == Resumption::ResumeOnly && (timeout > 0 || !is_overdue) {
                return Err(silent("it lacks the session, and has an address of before"));
            }
            self.expire(EXPIRED);
        }
        if timeout == 0 {
            let refused = || silent("it refused to open a session");
            return had_one.then_some(None).ok_or_else(refused);
        }
        self.session = SessionKey {
            id: reply.session,
            password: Secret(reply.password),
        };
        Ok(Some(Duration::from_millis(timeout)))
    }

    /// Notes a connect request, and what the server did instead of greeting, if it did not.
    fn asked(&mut self, sent: Duration, refusal: Option<Refusal>) {
        let most_are_silent = self.rotation.most(Refusal::Silent);
        let now = since_boot();
        if self.outage.asked(sent, refusal, most_are_silent, now) {
            self.give_up();
        }
    }

    /// Gives up a session that should have ended but goes on, because each connect request extends it: its
    /// locks would stay taken for as long as no server lets the client in.
    fn give_up(&mut self) {
        let (session, status) = (self.session.id, &self.shared.status);
        if session != 0 && status.snapshot().session == session && !self.shared.is_away() {
            status.given_up.store(session, Ordering::Release);
            self.expire("is given up: no server lets the client in, and each attempt extends it");
        }
    }

    fn expire(&mut self, how: &str) {
        if self.session.id == 0 {
            return;
        }
        let mut state = self.shared.state.lock();
        state.watches.clear();
        state.key = None;
        state.list.forget_version();
        drop(state);
        self.shared.status.expired();
        // Logged after the guards have failed, because the log may be slow.
        if !self.shared.status.snapshot().is_over() {
            contained(|| log::warn!("session {:#x} {how}", self.session.id));
        }
        self.session = SessionKey::default();
    }

    /// Sends the credentials and sets the watches again, before any request can be sent.
    fn restore(&self) {
        let config = &self.shared.config;
        let mut state = self.shared.state.lock();
        // From now on the session may have nodes.
        state.key = Some(self.session.clone());
        for credentials in &config.auth {
            let auth = Request::Auth {
                scheme: credentials.scheme.clone(),
                credentials: credentials.secret.clone(),
            };
            state.queue.push_aside(|out| auth.encode(xid::AUTH, out));
        }
        for list in state.watches.lists(self.last_zxid) {
            state.queue.set_watches(list);
        }
        self.shared.arrived(&mut state);
        self.shared.flush(state);
    }

    /// Reports the end of a connection to the status, and fails the open requests.
    fn finish(&mut self, target: &Target, end: End, answered: bool) -> Result<Round, Failed> {
        let detached = self.shared.detach(end == End::HungUp);
        if end == End::Diverged {
            self.rotation.diverged();
        }
        let status = &self.shared.status;
        let round = match end {
            End::Closed => Ok(Round::Over),
            End::Refused(why) => {
                self.shared.end();
                contained(|| log::error!("{target}: {why}"));
                status.refused(why);
                Ok(Round::Over)
            }
            End::Expired => {
                self.expire(EXPIRED);
                Ok(Round::Expired)
            }
            end if detached.served => {
                status.disconnected();
                status.turned_away(&target.to_string(), &end);
                contained(|| log::info!("{target}: the connection broke: {end}"));
                Ok(Round::Served(Service {
                    lived: since_boot().saturating_sub(status.snapshot().since),
                    answered,
                    unanswered: end == End::Unanswered,
                }))
            }
            end => {
                if self.outage.was_not_let_in(since_boot()) {
                    self.give_up();
                }
                Err(Failed(Some(Refusal::Silent), end.to_string()))
            }
        };
        for (pending, failure) in detached.open {
            pending.answer(Err(failure));
        }
        round
    }
}
