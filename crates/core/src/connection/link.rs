//! A client's link to its session: what a connection does with each call, and with each frame that arrives.
//!
//! ```text
//!          serve              close
//!  Away ──────────► Serving ──────────► Closing ──► Over
//!   ▲ │                │                 ▲ ▲ │
//!   │ │                │           close │ └─┘ broke: the next connection asks again
//!   │ └────────────────┼─────────────────┘
//!   └──────────────────┘ broke
//! ```
//!
//! The session survives the connection: the watches are set again, and requests that were open when the connection
//! broke are reported as lost or not sent. No request is repeated here, but for those that the server does not know.

pub mod arrivals;
pub mod request_queue;

use alloc::vec::Vec;
use core::time::Duration;

use self::request_queue::{Pending, RequestQueue};
use super::End;
use super::backoff::LEAST;
use super::promptness::Promptness;
use super::server_features::Features;
use super::session::SessionKey;
use super::watches::{Kind, Watches};
use crate::answer::Failure;
use zklock_jute::{Request, xid};

/// How many pings a client sends in a session timeout.
pub const PINGS: u32 = 6;

/// The path of the ensemble's configuration, which is outside any chroot.
pub const MEMBERS: &str = "/zookeeper/config";

/// How long a client stays with a server whose data may be wrong too, after it has left one for that. It may have no
/// other address, and many waiters that ask, each at its own time; its locks must not be in doubt all the time.
const STAYS: Duration = Duration::from_secs(60);
/// A pause between two attempts is at most this fraction of the time that is left for the end of the session.
const PARTS: u32 = 8;
/// A server that has not confirmed the end of the session after this fraction of the time that was
/// left when it was asked is left for another server.
const PATIENT_PARTS: u32 = 4;
/// The least time that a server gets to answer at the end of the session.
const LEAST_WAIT: Duration = Duration::from_millis(1);

/// The link of a client to its session; see the module's documentation. `W` is where the event of a watch goes, `A`
/// where an answer goes.
#[derive(Debug)]
pub struct Link<W, A> {
    stage: Stage,
    /// The requests of this connection.
    pub queue: RequestQueue<A>,
    /// The watches of the session.
    pub watches: Watches<W>,
    /// What the servers are known to support.
    pub features: Features,
    /// The session, for another process to use.
    key: Option<SessionKey>,
    /// The session that is kept for another process when the client closes.
    kept: Option<i64>,
    /// The newest change that the client knows of; 0 for an inherited session, where only the other process knows it.
    pub last_zxid: i64,
    /// How many pings the client sends in a session timeout while it watches nothing.
    idle_pings: u32,
    timeout: Duration,
    promptness: Promptness,
    /// How many answers to the credentials must arrive before requests are sent.
    auths: usize,
    /// Whether a request was answered on this connection.
    answered: bool,
    /// Whether this connection's server has shown that its data are wrong, and is to be left.
    has_diverged: bool,
    /// When a server was last left for that.
    moved_on: Option<Duration>,
}

/// What a client does with its session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stage {
    /// There is no connection that serves requests.
    Away,
    /// The connection serves requests.
    Serving,
    /// The session is to end.
    ///
    /// A server that goes away closes its connections, perhaps without having read the request. The end of a
    /// connection is therefore no answer: the next server resumes the session and is asked again, or says that there
    /// is no such session. Otherwise the session's nodes would stay for a session timeout, in the way of the
    /// contenders behind them.
    Closing {
        /// The number of the request for the end, if this connection's server is asked.
        reply: Option<i32>,
        /// When to give up at the latest.
        until: Duration,
    },
    /// The client has ended.
    Over,
}

/// What a connection leaves when it ends.
#[derive(Debug)]
pub struct Broken<A> {
    /// Whether it has served requests.
    pub served: bool,
    /// Whether a request was answered on it.
    pub answered: bool,
    /// The open calls, each with its failure, which must be told after the status has changed.
    pub open: Vec<(A, Failure)>,
}

impl<W, A> Link<W, A> {
    /// Creates the link of a client without a connection, which counts its requests after `last_xid`. It continues
    /// the session with this `key`, if there is one, which may be `kept` for a third process.
    pub fn new(
        (root, limit): (&str, usize),
        idle_pings: u32,
        last_xid: i32,
        (key, kept): (Option<SessionKey>, bool),
    ) -> Self {
        Self {
            stage: Stage::Away,
            queue: RequestQueue::after(last_xid, root.into(), limit, Duration::ZERO),
            watches: Watches::default(),
            features: Features::default(),
            kept: key.as_ref().map(|key| key.id).filter(|_| kept),
            key,
            last_zxid: 0,
            idle_pings,
            timeout: Duration::ZERO,
            promptness: Promptness::new(Duration::ZERO),
            auths: 0,
            answered: false,
            has_diverged: false,
            moved_on: None,
        }
    }

    /// Returns the present stage.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// Returns the session's key, once the session may have nodes.
    pub fn key(&self) -> Option<&SessionKey> {
        self.key.as_ref()
    }

    /// Returns the timeout of the session on this connection.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns whether there is anything to connect for.
    pub fn wants_connection(&self, now: Duration) -> bool {
        match self.stage {
            Stage::Away => true,
            Stage::Closing { until, .. } => self.key.is_some() && now < until,
            Stage::Serving | Stage::Over => false,
        }
    }

    /// Returns whether the session is to end while no server is being asked for that.
    pub fn is_away(&self) -> bool {
        matches!(self.stage, Stage::Closing { reply: None, .. })
    }

    /// Returns this time, or what is left for the end of the session if that is less.
    pub fn at_most(&self, limit: Duration, now: Duration) -> Duration {
        match self.stage {
            Stage::Closing { until, .. } => limit.min(until.saturating_sub(now).max(LEAST_WAIT)),
            _ => limit,
        }
    }

    /// Returns the longest pause from `began` until the next attempt, if the session is to end.
    pub fn longest_pause(&self, began: Duration) -> Option<Duration> {
        match self.stage {
            Stage::Closing { until, .. } => Some((until.saturating_sub(began) / PARTS).max(LEAST)),
            _ => None,
        }
    }

    /// Begins a connection, which does not serve requests yet.
    pub fn begin(&mut self, now: Duration) {
        self.queue = self.queue.of_the_next_connection(now);
        self.features.connects(now);
        self.has_diverged = false;
        self.answered = false;
    }

    /// Sends the credentials and sets the watches again, before any request can be sent. The greeting `took` that
    /// long, if that tells something.
    pub fn greeted(
        &mut self,
        key: SessionKey,
        timeout: Duration,
        took: Option<Duration>,
        credentials: impl Iterator<Item = Request>,
    ) {
        // From now on the session may have nodes.
        self.key = Some(key);
        self.timeout = timeout;
        self.promptness = Promptness::new(timeout);
        if let Some(took) = took {
            self.promptness.greeted(took);
        }
        self.auths = 0;
        for auth in credentials {
            self.auths += 1;
            self.queue.push_aside(|out| auth.encode(xid::AUTH, out));
        }
        let root = self.queue.root.len();
        for list in self.watches.lists(self.last_zxid, root) {
            self.queue.set_watches(list);
        }
    }

    /// Lets requests use the connection, or asks on it for the end of the session, unless the server must first check
    /// the credentials. Returns the session if it is served from now on.
    pub fn serve(&mut self, now: Duration) -> Result<Option<i64>, End> {
        match self.stage {
            _ if self.auths > 0 => return Ok(None),
            Stage::Serving | Stage::Closing { reply: Some(_), .. } => return Ok(None),
            Stage::Away => self.stage = Stage::Serving,
            Stage::Closing { until, .. } if self.wants_connection(now) => {
                self.ask_for_the_end(until, now);
                return Ok(None);
            }
            Stage::Closing { .. } | Stage::Over => {
                self.stage = Stage::Over;
                return Err(End::Closed);
            }
        }
        Ok(Some(self.key.as_ref().map_or(0, |key| key.id)))
    }

    /// Takes in a call, or returns where its answer goes, and why it has failed.
    pub fn push(
        &mut self,
        request: Request,
        watch: Option<(u64, W)>,
        answer: A,
        now: Duration,
    ) -> Result<(), (Option<A>, Failure)> {
        match self.stage {
            Stage::Serving => {}
            Stage::Away => return Err((Some(answer), Failure::NotSent)),
            Stage::Closing { .. } | Stage::Over => return Err((Some(answer), Failure::Closed)),
        }
        let request = self.features.fit(request);
        let number = watch.as_ref().map(|(number, _)| *number);
        let entry =
            watch.and_then(|watch| Some((request.reads()?.into(), Kind::of(&request)?, watch)));
        match self.queue.push(request, number, Some(answer), now) {
            Ok(_) => {
                if let Some((path, kind, (number, watch))) = entry {
                    self.watches.add(path, kind, number, watch);
                }
                Ok(())
            }
            Err((too_long, answer)) => Err((answer, Failure::TooLong(too_long))),
        }
    }

    /// Forgets a watch, at the server too where possible. Returns whether the server is to be told.
    pub fn unwatch(&mut self, path: &str, number: u64, now: Duration) -> bool {
        let idle = self.watches.remove(path, number);
        let told = self.stage == Stage::Serving && self.features.removes_watches();
        let Some(kind) = idle.filter(|_| told) else {
            return false;
        };
        let path = path.into();
        let request = Request::RemoveWatches { path, kind };
        self.queue.push(request, None, None, now).is_ok()
    }

    /// Queues a read of the ensemble's members, with a watch.
    pub fn ask_for_members(&mut self) {
        let request = Request::get(MEMBERS).and_watch();
        self.queue
            .push_aside(|out| request.encode(xid::MEMBERS, out));
    }

    /// Begins to leave a server that shows a node which its leader lacks, unless one was left a moment ago. Returns
    /// whether it does.
    pub fn move_on(&mut self, now: Duration) -> bool {
        let stays = self.moved_on.is_some_and(|at| now < at + STAYS);
        if stays || self.stage != Stage::Serving {
            return false;
        }
        self.moved_on = Some(now);
        self.has_diverged = true;
        // The answer wakes the thread that reads.
        self.queue.ping_after(Duration::ZERO, now);
        true
    }

    /// Sets whether the present session is kept for another process instead of ended.
    pub fn keep_session(&mut self, kept: bool) {
        self.kept = self.key.as_ref().map(|key| key.id).filter(|_| kept);
    }

    /// Begins to end the session, at the latest at `until`. Returns the open calls, and whether the connection is of
    /// no use any more; `None` if that has begun before.
    pub fn close(&mut self, until: Duration, now: Duration) -> Option<(Vec<A>, bool)> {
        if let Stage::Closing { .. } | Stage::Over = self.stage {
            return None;
        }
        // From now on the only request is the one to close.
        let open = self.queue.take_pending();
        let open = open.filter_map(|(pending, _)| pending.answer).collect();
        self.watches.clear();
        let is_kept = self
            .key
            .as_ref()
            .is_some_and(|key| self.kept == Some(key.id));
        match self.stage {
            _ if is_kept => {
                self.key = None;
                self.stage = Stage::Over;
            }
            Stage::Serving => self.ask_for_the_end(until, now),
            _ => self.stage = Stage::Closing { reply: None, until },
        }
        let is_asking = matches!(self.stage, Stage::Closing { reply: Some(_), .. });
        Some((open, !is_asking && !self.wants_connection(now)))
    }

    fn ask_for_the_end(&mut self, until: Duration, now: Duration) {
        let reply = self.queue.push(Request::Close, None, None, now).ok();
        self.stage = Stage::Closing { reply, until };
    }

    /// Forgets the session, which has ended.
    pub fn expire(&mut self) {
        self.watches.clear();
        self.key = None;
    }

    /// Ends the client: no request is sent from now on.
    pub fn end(&mut self) {
        self.stage = Stage::Over;
    }

    /// Notes that the connection has ended, perhaps by the server.
    pub fn broke(&mut self, by_peer: bool) -> Broken<A> {
        let served = self.stage == Stage::Serving;
        match &mut self.stage {
            stage @ Stage::Serving => *stage = Stage::Away,
            Stage::Closing { reply, .. } => *reply = None,
            Stage::Away | Stage::Over => {}
        }
        if served && by_peer {
            self.features
                .left_over(self.queue.pending.front().map(|open| &open.request));
        }
        let mut open = Vec::new();
        for (pending, failure) in self.queue.take_pending() {
            self.forget_watch(&pending);
            open.extend(pending.answer.map(|answer| (answer, failure)));
        }
        let answered = self.answered;
        Broken {
            served,
            answered,
            open,
        }
    }

    fn forget_watch(&mut self, pending: &Pending<A>) {
        if let Some((path, number)) = pending.watched() {
            self.watches.remove(path, number);
        }
    }
}

#[cfg(test)]
mod tests;
