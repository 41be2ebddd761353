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

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::channel::{Channel, Failed, HUNG_UP, NOT_GREETED};
use super::frame_reader::{Complaint, Inbox, next_frame};
use super::hosts::{Candidate, Target};
#[cfg(feature = "sasl")]
use super::log_in::{log_in, prepare};
use super::receive::ConnectionReader;
use super::resolver::Unresolved;
use super::shared::{Shared, jittered};
use crate::error::{ANSWERS_IN_TLS, Error, OTHER_SERVICE};
use crate::system::clock::since_boot;
use crate::system::contained;
use crate::transport::Failure;
use zklock_core::connection::End;
use zklock_core::connection::backoff::Service;
use zklock_core::connection::link::Stage;
use zklock_core::connection::rotation::{Refusal, Resumption, Rotation, Round};
use zklock_core::connection::session::{Granted, Outage, SessionKey, check};
use zklock_jute::{ConnectReply, Request, Secret};

/// How much longer than a request a reply may be: a listing with its stat, and a header.
const REPLY_SLACK: usize = 64 * 1024;

/// The longest greeting.
const GREETING_LIMIT: usize = 4 * 1024;
/// The two bytes with which a server begins that refuses what is no TLS.
const TLS_ALERT: usize = 0x1503;
/// The end of a session in the log, if a server says that it is over.
const EXPIRED: &str = "expired";

struct Io {
    shared: Arc<Shared>,
    /// The session; its id is 0 if there is none.
    session: SessionKey,
    /// Whether a server has served.
    has_served: bool,
    rotation: Rotation<Target>,
    outage: Outage,
    /// The names that were not resolved in the last round.
    unresolved: Vec<Unresolved>,
}

/// Runs until the transport is closed or its credentials are refused.
pub(super) fn run(shared: Arc<Shared>) {
    let _exit = ExitGuard(Arc::clone(&shared));
    let inherited = shared.config.inherited.clone();
    let least = shared.config.granted_at_least;
    shared.status.continues(inherited.as_ref(), least);
    let timeout = inherited.as_ref().map_or(Duration::ZERO, |it| it.timeout);
    let rotation = Rotation::new(shared.config.session_timeout, since_boot());
    let mut io = Io {
        shared,
        session: inherited.map(|it| it.key).unwrap_or_default(),
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
        for (answer, _) in left.open {
            answer(Err(Failure::Closed));
        }
    }
}

impl Io {
    /// Returns whether a server has ever given a session.
    fn has_past(&self) -> bool {
        self.session.id != 0 || self.shared.state.lock().link.last_zxid != 0
    }

    /// Returns whether the session is to end while no server is being asked for that.
    fn is_away(&self) -> bool {
        self.shared.state.lock().link.is_away()
    }

    /// Returns this time, or what is left for the end of the session if that is less.
    fn at_most(&self, limit: Duration) -> Duration {
        self.shared.state.lock().link.at_most(limit, since_boot())
    }

    /// Connects to one address and serves requests until the connection ends.
    fn attempt(&mut self, to: &Candidate) -> Result<Round, Failed> {
        let (Shared { status, config, .. }, target) = (&*self.shared, &to.target);
        status.asks(target, "it has not accepted a connection");
        let (limit, began) = (self.at_most(to.accept_limit), since_boot());
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
        let (target, limit, wish) = (&to.target, self.at_most(to.limit), to.wish);
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
            return self.finish(target, end);
        }
        let had = (before == self.session.id).then_some(had);
        self.tell_granted(target, granted, had);
        self.tell_connected(target, timeout);
        self.restore(timeout);
        let reader = ConnectionReader::new(inbox, &self.shared, channel);
        let end = self.shared.reading.serve(Box::new(reader));
        // A server that closes the connection when the client authenticates has not served.
        if self.shared.state.lock().link.stage() != Stage::Away {
            self.outage.served_until(since_boot(), timeout);
        }
        self.finish(target, end)
    }

    fn begin_anew(&mut self) {
        // The guards of the old session must fail before there is a new one.
        self.expire(
            "is given up: no server resumes it, perhaps because their data is older than what it has seen",
        );
        self.shared.state.lock().link.last_zxid = 0;
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
        let mut state = self.shared.state.lock();
        let request = match wish {
            Resumption::Anew => SessionKey::default().request(0, asked),
            Resumption::Resume | Resumption::ResumeOnly => {
                self.session.request(state.link.last_zxid, asked)
            }
        };
        state.link.queue.push_aside(|out| request.encode(out));
        self.shared.flush(state);
        greeting(channel, inbox, limit, self.shared.config.wall_clock_expiry)
    }

    /// Takes the session that the server grants, if it grants one.
    fn adopt(&mut self, reply: ConnectReply, wish: Resumption) -> Result<Option<Duration>, Failed> {
        let is_overdue = self.outage.is_overdue(since_boot());
        let granted = self.session.granted(&reply, wish, is_overdue);
        let granted = granted.map_err(|why| Failed(Some(Refusal::Silent), why.to_owned()))?;
        if !matches!(granted, Granted::Resumed(_)) {
            self.expire(EXPIRED);
        }
        let (Granted::Resumed(timeout) | Granted::Begun(timeout)) = granted else {
            return Ok(None);
        };
        self.session = SessionKey {
            id: reply.session,
            password: Secret(reply.password),
        };
        Ok(Some(timeout))
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
        if session != 0 && status.snapshot().session == session && !self.is_away() {
            status.given_up.store(session, Ordering::Release);
            self.expire("is given up: no server lets the client in, and each attempt extends it");
        }
    }

    fn expire(&mut self, how: &str) {
        if self.session.id == 0 {
            return;
        }
        let mut state = self.shared.state.lock();
        state.link.expire();
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
    fn restore(&self, timeout: Duration) {
        let credentials = self.shared.config.auth.iter().map(|one| Request::Auth {
            scheme: one.scheme.clone(),
            credentials: one.secret.clone(),
        });
        let took = self.rotation.trusted_greeting();
        let mut state = self.shared.state.lock();
        let session = self.session.clone();
        state.link.greeted(session, timeout, took, credentials);
        self.shared.arrived(&mut state);
        self.shared.flush(state);
    }

    /// Ends the client, whose credentials were refused.
    fn refused(&self, target: &Target, login: Option<(String, String)>) {
        self.shared.end();
        let server = target.to_string();
        let why = login.map_or(Error::AuthFailed, |(principal, reason)| {
            Error::SaslRefused {
                principal,
                server,
                reason,
            }
        });
        contained(|| log::error!("{target}: {why}"));
        self.shared.status.refused(why);
    }

    /// Reports the end of a connection to the status, and fails the open requests.
    fn finish(&mut self, target: &Target, end: End) -> Result<Round, Failed> {
        let broken = self.shared.detach(end == End::HungUp);
        if end == End::Diverged {
            self.rotation.diverged();
        }
        let status = &self.shared.status;
        let round = match end {
            End::Closed => Ok(Round::Over),
            End::Refused(login) => {
                self.refused(target, login);
                Ok(Round::Over)
            }
            End::Expired => {
                self.expire(EXPIRED);
                Ok(Round::Expired)
            }
            end if broken.served => {
                status.disconnected();
                status.turned_away(&target.to_string(), &end);
                contained(|| log::info!("{target}: the connection broke: {end}"));
                Ok(Round::Served(Service {
                    lived: since_boot().saturating_sub(status.snapshot().since),
                    answered: broken.answered,
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
        for (answer, failure) in broken.open {
            answer(Err(failure));
        }
        round
    }
}

/// Waits for the server's greeting.
fn greeting(
    channel: &Channel,
    inbox: &mut Inbox,
    limit: Duration,
    wall_clock_expiry: bool,
) -> Result<ConnectReply, Failed> {
    let deadline = since_boot().saturating_add(limit);
    let reply = next_frame(channel, inbox, deadline, GREETING_LIMIT, |frame| {
        ConnectReply::decode(frame)
    });
    let silent = |reason| Failed(Some(Refusal::Silent), reason);
    let reply = reply.map_err(|complaint| silent(match complaint {
        Complaint::HungUp => return Failed(Some(Refusal::HungUp), HUNG_UP.to_owned()),
        Complaint::Late => format!("it did not greet within {limit:.1?}"),
        Complaint::TooLong(length) if length >> 16 == TLS_ALERT => ANSWERS_IN_TLS.to_owned(),
        Complaint::TooLong(length) => {
            format!(
                "its answer is not ZooKeeper's, {OTHER_SERVICE}: a frame of {length} bytes was announced"
            )
        }
        Complaint::Unreadable(reason) => {
            format!("its answer is not ZooKeeper's, {OTHER_SERVICE}: {reason}")
        }
        Complaint::Broken(reason) => reason,
    }))?;
    let checked = check(&reply, wall_clock_expiry);
    checked.map(|()| reply).map_err(silent)
}
