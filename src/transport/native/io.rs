//! The I/O thread: connects, and connects again, until the transport is closed.
//!
//! ```text
//!            refused                        broken
//!  round ───────────────► rest     ┌──────────────────────┐
//!    ▲                     │       │                      │
//!    └─────────────────────┘       ▼                      │
//!    └── dial ── handshake ── auth, watches ── serve ─────┘
//!                    │                           │
//!                    └── expired: new session ◄──┘
//! ```

use std::io::ErrorKind;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use super::backoff::Backoff;
use super::channel::{Channel, is_timeout};
use super::end::End;
use super::hosts::Target;
use super::identity::Identity;
use super::inbox::{Frame, Inbox};
use super::reading::LeaderFollowers;
use super::receive::{Connection, Reader};
use super::shared::Shared;
use crate::jute::{ConnectReply, ConnectRequest, Request, xid};
use crate::time::clock::Moment;
use crate::transport::Failure;

/// Replies may be somewhat longer than requests: a listing and its stat, a header.
const REPLY_SLACK: usize = 64 * 1024;
/// No server needs as much to greet us.
const GREETING_LIMIT: usize = 4 * 1024;
/// One address gets no more time than this to answer.
const DIAL_LIMIT: Duration = Duration::from_secs(5);
/// Nor less than this, however short the session.
const DIAL_LEAST: Duration = Duration::from_millis(250);

/// What a server is said to have done that gives us no session, and no reason.
const HUNG_UP: &str = "it closed the connection instead of greeting";
/// How much longer than its timeout a session is thought to last: a server counts in ticks.
const MARGIN: Duration = Duration::from_secs(1);

/// What to ask a server for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Wish {
    /// The session that we have, or a first one.
    Resume,
    /// Another session, as if we had never seen anything.
    Anew,
}

/// What came of a round of attempts.
enum Round {
    /// There was a session for a while.
    Served,
    Refused,
    /// The session is over, so there is no reason to wait for a new one.
    Expired,
    Over,
}

struct Io {
    shared: Arc<Shared>,
    reading: Arc<LeaderFollowers<Reader>>,
    session: Identity,
    /// Who served us last: it is asked last when the connection breaks.
    last: Option<Target>,
    /// Until when a server served us, and the session timeout that it had granted.
    served: (Moment, Duration),
    /// In the last round, somebody hung up on our wish to go on with the session.
    hung_up: bool,
    /// The names that could not be resolved in the last round.
    unknown: Vec<String>,
}

/// Runs until the transport is closed or its credentials are refused.
pub(super) fn run(shared: Arc<Shared>, reading: Arc<LeaderFollowers<Reader>>) {
    let _exit = ExitGuard(Arc::clone(&shared));
    let mut io = Io {
        shared,
        reading,
        session: Identity::default(),
        last: None,
        served: (Moment::now(), Duration::ZERO),
        hung_up: false,
        unknown: Vec::new(),
    };
    let mut backoff = Backoff::new(io.shared.config.session_timeout);
    loop {
        let begun = Moment::now();
        let rest = match io.round() {
            Round::Over => break,
            Round::Expired => backoff.after_expiry(),
            Round::Refused => backoff.after_failure(),
            Round::Served => backoff.after_service(Moment::now().saturating_since(begun)),
        };
        if !io.shared.rest(rest) {
            break;
        }
    }
}

/// Nobody is left without an answer when the thread ends, be it in a panic.
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
    /// Tries every address once, or until one has served us.
    fn round(&mut self) -> Round {
        let forgotten = self.may_be_forgotten();
        let targets = self.targets();
        let limit = self.dial_limit(targets.len());
        for target in targets {
            let mut attempted = self.attempt(&target, limit, Wish::Resume);
            let hung_up = attempted.as_ref().is_err_and(|said| said == HUNG_UP);
            self.hung_up |= hung_up;
            if forgotten && hung_up {
                attempted = self.attempt(&target, limit, Wish::Anew);
            }
            match attempted {
                Ok(round) => return round,
                Err(said) => self.turned_away(&target.to_string(), &said),
            }
            if !self.shared.rest(Duration::ZERO) {
                return Round::Over;
            }
        }
        Round::Refused
    }

    /// Whether no server may ever go on with the session, as far as the last round told.
    ///
    /// A server whose data is older than what we have seen hangs up without a word. It may
    /// lag behind, and then another one serves us; or the ensemble was set up anew or
    /// restored, and then none ever does. A server without a quorum hangs up as well, and so
    /// does what stands in front of one that is down: once that is over, the session goes on.
    /// So another one is asked for only where we have been hung up on just before.
    fn may_be_forgotten(&mut self) -> bool {
        let hung_up = mem::take(&mut self.hung_up);
        let (until, timeout) = self.served;
        let away = Moment::now().saturating_since(until);
        let has_past = self.session.id != 0 || self.session.last_zxid != 0;
        has_past && hung_up && away > timeout + MARGIN
    }

    fn turned_away(&self, host: &str, said: &str) {
        log::debug!("{host}: {said}");
        self.shared.status.turned_away(host, said);
    }

    fn targets(&mut self) -> Vec<Target> {
        let mut unknown = Vec::new();
        let hosts = &self.shared.config.hosts;
        let mut targets = hosts.resolve(|server, said| unknown.push((server.to_string(), said)));
        targets.sort_by_key(|target| Some(target) == self.last.as_ref());
        for (server, said) in &unknown {
            self.turned_away(server, said);
            if !targets.is_empty() && !self.unknown.contains(server) {
                log::warn!("{server}: {said}; the other servers are used");
            }
        }
        self.unknown = unknown.into_iter().map(|(server, _)| server).collect();
        targets
    }

    /// A round must leave time for another before the session is over.
    fn dial_limit(&self, targets: usize) -> Duration {
        let snapshot = self.shared.status.snapshot();
        let share = snapshot.timeout * 2 / 3 / targets.max(1) as u32;
        share.clamp(DIAL_LEAST, DIAL_LIMIT)
    }

    /// Connects to one address and serves requests until the connection ends.
    fn attempt(&mut self, target: &Target, limit: Duration, wish: Wish) -> Result<Round, String> {
        let channel = Channel::connect(target, limit, self.shared.config.tls.as_ref())?;
        let channel = Arc::new(channel);
        if !self.shared.attach(&channel) {
            return Ok(Round::Over);
        }
        let attempted = self.greet_and_serve(&channel, target, limit, wish);
        if attempted.is_err() {
            self.shared.detach(false);
        }
        attempted
    }

    fn greet_and_serve(
        &mut self,
        channel: &Arc<Channel>,
        target: &Target,
        limit: Duration,
        wish: Wish,
    ) -> Result<Round, String> {
        let mut inbox = Inbox::new(self.shared.config.frame_limit + REPLY_SLACK);
        channel.secure(limit)?;
        let sent = Moment::now();
        self.shared.status.greets(sent);
        let reply = self.greet(channel, &mut inbox, limit, wish)?;
        if wish == Wish::Anew && reply.timeout_ms > 0 {
            // Before there is another session, the guards of this one fail.
            self.expire();
            self.session.last_zxid = 0;
            log::warn!(
                "no server has gone on with the session, perhaps because their data is older than what it has seen: there is a new one"
            );
        }
        let Some(granted) = self.adopt(reply)? else {
            self.shared.detach(false);
            return Ok(Round::Expired);
        };
        let timeout = self.shared.status.greeted(self.session.id, granted, sent);
        self.last = Some(target.clone());
        log::debug!(
            "{target}: session {:#x}, timeout {timeout:?}",
            self.session.id
        );
        self.restore();
        let connection = Connection::new(&self.shared, channel, &self.session, timeout);
        let reader = Box::new(Reader::new(inbox, connection));
        let (reader, end) = self.reading.serve(reader);
        self.session.last_zxid = reader.connection.last_zxid;
        self.served = (Moment::now(), timeout);
        self.finish(target, end)
    }

    /// Asks for a session, the old one if there is one, and waits for the answer.
    fn greet(
        &self,
        channel: &Channel,
        inbox: &mut Inbox,
        limit: Duration,
        wish: Wish,
    ) -> Result<ConnectReply, String> {
        let resume = wish == Wish::Resume;
        let asked = self.shared.config.session_timeout.as_millis();
        let request = ConnectRequest {
            last_zxid: if resume { self.session.last_zxid } else { 0 },
            timeout_ms: i32::try_from(asked).unwrap_or(i32::MAX),
            session: if resume { self.session.id } else { 0 },
            password: if resume { self.password() } else { vec![0; 16] },
            read_only: false,
        };
        let mut state = self.shared.state.lock();
        state.queue.push_aside(|out| request.encode(out));
        self.shared.flush(state);
        let deadline = Moment::now() + limit;
        loop {
            match inbox.fill(channel) {
                Ok(0) => return Err(HUNG_UP.to_owned()),
                Ok(_) => {}
                Err(error) if is_timeout(&error) => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                    return Err(HUNG_UP.to_owned());
                }
                Err(error) => return Err(error.to_string()),
            }
            match inbox.frame_within(GREETING_LIMIT) {
                Ok(None) => {}
                Ok(Some(Frame::Whole(frame))) => {
                    return ConnectReply::decode(frame).map_err(|error| error.to_string());
                }
                Ok(Some(Frame::TooLong { length, .. })) => {
                    return Err(format!("it greeted with {length} bytes"));
                }
                Err(error) => return Err(error.to_string()),
            }
            if Moment::now() >= deadline {
                return Err(format!("it did not greet within {limit:?}"));
            }
        }
    }

    /// Servers want sixteen bytes even for no password.
    fn password(&self) -> Vec<u8> {
        if self.session.password.is_empty() {
            vec![0; 16]
        } else {
            self.session.password.clone()
        }
    }

    /// Takes the session that the server gives us, if it gives us one.
    fn adopt(&mut self, reply: ConnectReply) -> Result<Option<Duration>, String> {
        if reply.read_only {
            return Err("it is read-only at present".to_owned());
        }
        let had_one = self.session.id != 0;
        let timeout = u64::try_from(reply.timeout_ms).unwrap_or(0);
        if timeout == 0 {
            if !had_one {
                return Err("it refused to open a session".to_owned());
            }
            self.expire();
            return Ok(None);
        }
        // Some servers give a new session to whoever asks for one they do not know.
        if had_one && reply.session != self.session.id {
            self.expire();
        }
        self.session.id = reply.session;
        self.session.password = reply.password;
        Ok(Some(Duration::from_millis(timeout)))
    }

    fn expire(&mut self) {
        if self.session.id == 0 {
            return;
        }
        self.shared.state.lock().watches.clear();
        self.shared.status.expired();
        // Whoever writes the log may take his time: guards know it by now.
        log::warn!("session {:#x} expired", self.session.id);
        self.session.id = 0;
        self.session.password.clear();
    }

    /// Says who we are and sets the watches again, before any request can leave.
    fn restore(&self) {
        let config = &self.shared.config;
        let mut state = self.shared.state.lock();
        for credentials in &config.auth {
            let auth = Request::Auth {
                scheme: credentials.scheme.clone(),
                credentials: credentials.secret.clone(),
            };
            state.queue.push_aside(|out| auth.encode(xid::AUTH, out));
        }
        for list in state.watches.lists(self.session.last_zxid) {
            let request = Request::SetWatches(list);
            let root = config.hosts.chroot();
            let encode = |out: &mut Vec<u8>| request.encode_below(root, xid::SET_WATCHES, out);
            state.queue.push_aside(encode);
        }
        self.shared.flush(state);
    }

    /// Tells everyone what the end of a connection means to them.
    fn finish(&mut self, target: &Target, end: End) -> Result<Round, String> {
        let detached = self.shared.detach(end == End::HungUp);
        let status = &self.shared.status;
        let round = match end {
            End::Closed => Ok(Round::Over),
            End::AuthFailed => {
                self.shared.end();
                status.auth_failed();
                log::error!("{target}: the server refused our credentials");
                Ok(Round::Over)
            }
            End::Expired => {
                self.expire();
                Ok(Round::Expired)
            }
            end if detached.served => {
                status.disconnected();
                status.turned_away(&target.to_string(), &end);
                log::info!("{target}: the connection broke: {end}");
                Ok(Round::Served)
            }
            end => Err(end.to_string()),
        };
        for (pending, failure) in detached.open {
            pending.answer(Err(failure));
        }
        round
    }
}
