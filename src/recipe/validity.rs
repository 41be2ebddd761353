//! How long a holder may trust its lock, from what the servers have answered.
//!
//! ```text
//!          until - T/6, or disconnected            until, or the node or session is gone
//!  Held ───────────────────────────────► Suspect ──────────────────────────────────────► Lost
//!   ▲                                       │
//!   └────────────── a newer proof ──────────┘
//!
//!  until = min(sent + T/2, touched + T - T/100)
//! ```
//!
//! `sent` is when the last committed check of the node was sent. It proves that the node
//! existed, and says nothing about how long its session lasts: a follower forwards a request,
//! and the leader commits it without touching the session. `touched` is the send time of the
//! last message that the leader had heard of when it committed that check, so the session
//! ends no earlier than T after it. [`Lifetime`] knows which message that is.
//!
//! T is the shortest timeout negotiated in this session: servers may differ, and a follower
//! that served the session earlier may still report it with the timeout that it granted.
//!
//! `docs/guarantees.md` derives this from ZooKeeper's source. Times are durations since one
//! fixed moment, because nothing in here reads a clock.

use std::collections::VecDeque;
use std::time::Duration;

/// The least that a server grants under the default limits: two ticks of two seconds.
///
/// A timeout that no server has confirmed is believed up to this only, unless the user states more.
pub const LEAST_TIMEOUT: Duration = Duration::from_secs(4);

/// How long the leader may take to hear of a message that a follower has answered.
///
/// A follower reports in its answers to the leader's pings, which come every half tick. That
/// is T/4 at most, as servers grant two ticks or more; the rest is for pings that are late.
fn reported_after(timeout: Duration) -> Duration {
    timeout / 4 + timeout / 10
}

/// How much later a message counts if the session may have been due when the leader heard of it.
///
/// The leader takes out the sessions that are due and ends them one by one. A touch changes
/// nothing in between (`ExpiryQueue.poll` in ZooKeeper 3.5 and later), and requests are still
/// committed.
fn ended_within(timeout: Duration) -> Duration {
    timeout / 4
}

/// After this many proofs, a lock is granted on the strength of the last one.
///
/// On a slow link no proof is young enough when it arrives, and a contender that waited for one
/// would stand at the head of the queue forever.
const ENOUGH_PROOFS: u32 = 3;

/// What a guard knows about its lock.
///
/// ```text
/// Held ──(T/6 before the deadline, or disconnected)──► Suspect ──(deadline, expiry, node gone)──► Lost
///   ▲                                                        │
///   └──────(same session, own node verified)─────────────────┘
/// ```
///
/// T is the shortest session timeout that was negotiated in this session. The deadline is T/2
/// after the last check that a quorum has committed was sent, or earlier after a silence.
///
/// # Example
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zklock::embedded::Server::start()?;
/// # let client = zklock::Client::connect(server.hosts())?;
/// use zklock::GuardState;
///
/// let guard = client.mutex("/locks/nightly-report")?.lock()?;
/// let next = match guard.state() {
///     GuardState::Held => "go on",
///     GuardState::Suspect => "begin nothing new",
///     GuardState::Lost => "stop",
/// };
/// assert_eq!(next, "go on");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum GuardState {
    /// A quorum confirmed the lock recently, at most T/3 ago.
    Held,
    /// No quorum confirmed it recently; until the deadline nobody else can have it.
    Suspect,
    /// Someone else may have it. This is final.
    Lost,
}

/// How long a lock may be trusted, whatever proved it: a committed check of a node, or the
/// renewal of a row in a database.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Validity {
    /// From this moment on the holder should begin nothing new.
    pub suspect_from: Duration,
    /// From this moment on somebody else may have the lock.
    pub until: Duration,
}

impl Validity {
    /// A lock that is kept by a lease, on the strength of a renewal that was sent at `sent`.
    ///
    /// The server counts the lease from when it carries out the renewal, which is later. The
    /// last quarter allows for a server's clock that is set forward, and for the holder to stop.
    pub fn of_lease(sent: Duration, lease: Duration) -> Self {
        Self {
            suspect_from: sent + lease / 3,
            until: sent + lease / 4 * 3,
        }
    }

    /// The state of a guard that is not known to be lost; a disconnect may have `shaken` it.
    pub fn state(self, shaken: bool, now: Duration) -> GuardState {
        if self.until <= now {
            GuardState::Lost
        } else if shaken || self.suspect_from <= now {
            GuardState::Suspect
        } else {
            GuardState::Held
        }
    }

    /// When a guard in this state changes, if nothing more is heard.
    pub fn next_change(self, state: GuardState) -> Option<Duration> {
        match state {
            GuardState::Held => Some(self.suspect_from),
            GuardState::Suspect => Some(self.until),
            GuardState::Lost => None,
        }
    }
}

/// What one committed check says.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Stamp {
    /// When the check was sent.
    pub sent: Duration,
    /// When the last message was sent that the leader had heard of by then.
    pub touched: Duration,
}

impl Stamp {
    /// Proves nothing: what rests on it is lost.
    pub const NEVER: Self = Self {
        sent: Duration::ZERO,
        touched: Duration::ZERO,
    };

    /// Takes the older of each of the two times.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            sent: self.sent.min(other.sent),
            touched: self.touched.min(other.touched),
        }
    }

    /// From this moment on somebody else may have the lock.
    pub fn until(self, timeout: Duration) -> Duration {
        // A hundredth is for clocks that do not run at the same speed.
        let session = self.touched + timeout - timeout / 100;
        session.min(self.sent + timeout / 2)
    }

    /// From this moment on the holder should begin nothing new.
    pub fn suspect_from(self, timeout: Duration) -> Duration {
        self.until(timeout).saturating_sub(timeout / 6)
    }

    /// When the next check is due, so that its answer comes before the guard is suspect.
    ///
    /// A check every T/6 is enough where messages have come regularly. After a silence, the
    /// first check that finds a newer message reported, `better_at`, must not wait as long.
    pub fn due(self, better_at: Option<Duration>, timeout: Duration) -> Duration {
        let regular = self.sent + timeout / 6;
        match better_at {
            Some(better_at) if self.suspect_from(timeout) < regular + timeout / 12 => {
                regular.min(better_at.max(self.sent))
            }
            _ => regular,
        }
    }

    /// Whether a lock may be granted on the strength of this stamp.
    ///
    /// The guard must live long enough to see the next proof. After several `proofs` that did
    /// not allow this, it is enough that the guard is alive.
    pub fn supports_a_grant(
        self,
        better_at: Option<Duration>,
        proofs: u32,
        timeout: Duration,
        now: Duration,
    ) -> bool {
        let next = better_at.map_or(now, |better_at| better_at.max(now));
        let until = self.until(timeout);
        let lives = now + timeout / 24 <= until;
        let lasts = now < self.sent + timeout / 6 && next + timeout / 8 <= until;
        lasts || (lives && ENOUGH_PROOFS <= proofs)
    }
}

/// What is known of the session of a lock at one moment.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Terms {
    /// The shortest timeout that was negotiated in this session.
    pub timeout: Duration,
    /// From this moment on nothing is known of the session unless a server answers.
    pub latest: Duration,
    /// The session has ended, or another one has taken its place.
    pub over: bool,
}

impl Terms {
    /// How long a lock that was proven by `stamp` may be trusted.
    pub fn validity(self, stamp: Stamp) -> Validity {
        Validity {
            suspect_from: stamp.suspect_from(self.timeout),
            until: match self.over {
                true => Duration::ZERO,
                false => stamp.until(self.timeout).min(self.latest),
            },
        }
    }

    /// From this moment on somebody else may have what was proven by `stamp`.
    pub fn until(self, stamp: Stamp) -> Duration {
        self.validity(stamp).until
    }
}

/// What bounds the life of one session, as far as its client knows.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Lifetime {
    timeout: Duration,
    /// What a connect request whose answer is awaited may shorten the session to.
    asked: Duration,
    /// The same for connect requests whose answers never came.
    unheard: Duration,
    /// When the last message was sent that the leader had heard of in time, as a later commit has
    /// shown; zero if there is none.
    heard_of: Duration,
    /// When this connection's handshake was answered.
    since: Duration,
    /// The messages of this connection that were answered, as far as they matter. Both of their
    /// times grow.
    answers: VecDeque<Answer>,
}

#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
struct Answer {
    /// When the answer was in hand, or later if the session may have been due then.
    at: Duration,
    /// When the message was sent.
    sent: Duration,
}

impl Lifetime {
    /// The lifetime of a session that a server opened with this timeout, when asked at `sent`; the
    /// answer was in hand `at` this moment.
    ///
    /// Zero stands for a handshake whose time is not known, as of a session of another process.
    pub fn new(timeout: Duration, sent: Duration, at: Duration) -> Self {
        let opened = Answer {
            at: Duration::ZERO,
            sent,
        };
        Self {
            timeout,
            asked: Duration::MAX,
            unheard: Duration::MAX,
            heard_of: sent,
            since: at,
            answers: VecDeque::from([opened]),
        }
    }

    /// The shortest timeout that was negotiated in this session.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// From this moment on nothing is known of the session unless a server answers.
    pub fn latest(&self) -> Duration {
        self.asked.min(self.unheard)
    }

    /// What guards have to know of the session, while it has not ended.
    pub fn terms(&self) -> Terms {
        Terms {
            timeout: self.timeout,
            latest: self.latest(),
            over: false,
        }
    }

    /// From this moment on somebody else may have what was proven by `stamp`.
    pub fn until(&self, stamp: Stamp) -> Duration {
        self.terms().until(stamp)
    }

    /// A connect request for this session is sent. A server that receives it grants what its own
    /// limits allow, and no less than `least`; only the answer tells how much.
    pub fn greets(&mut self, sent: Duration, least: Duration) {
        self.unheard = self.latest();
        // As for any timeout: clocks do not run at the same speed.
        self.asked = sent + least - least / 100;
    }

    /// A server has granted this timeout when asked at `sent`; the answer was in hand `at` this
    /// moment. The leader itself opens and moves sessions, so it has heard of the request. That
    /// counts at once if the session was not due yet.
    ///
    /// That leader may have been deposed without knowing it. Then what earlier connect requests
    /// may have done still counts, with the present leader.
    pub fn greeted(&mut self, timeout: Duration, sent: Duration, at: Duration) {
        self.since = at;
        let due = self.heard_of + self.timeout - self.timeout / 100;
        let at = match !self.heard_of.is_zero() && at < due.min(self.unheard) {
            true => Duration::ZERO,
            false => at,
        };
        self.timeout = self.timeout.min(timeout);
        self.asked = Duration::MAX;
        self.answers = VecDeque::from([Answer { at, sent }]);
    }

    /// A quorum has committed a request of this connection, which was sent at `sent`: the leader
    /// that heard of its handshake was the leader, and earlier connect requests came before the
    /// handshake.
    ///
    /// Returns the earliest send time of a request whose commit adds something to this.
    pub fn committed(&mut self, sent: Duration) -> Duration {
        self.unheard = Duration::MAX;
        self.heard_of = self.heard_of.max(self.stamp(sent).touched);
        sent + self.timeout / 64
    }

    /// The answer to a message that was sent at `sent` was in hand `at` this moment.
    ///
    /// Returns the earliest send time of a message that adds something to this.
    pub fn answered(&mut self, sent: Duration, at: Duration) -> Duration {
        let last = self.answers.back().copied().unwrap_or_default();
        let step = self.timeout / 64;
        if sent < last.sent + step {
            return last.sent + step;
        }
        let reported = at.saturating_sub(reported_after(self.timeout));
        while self.answers.get(1).is_some_and(|next| next.at <= reported) {
            self.answers.pop_front();
        }
        // The leader may hear of this one up to `reported_after` later than `at`.
        let may_be_due = !last.sent.is_zero() && last.sent + self.timeout * 3 / 5 <= at;
        let at = match may_be_due {
            true => at + ended_within(self.timeout),
            false => last.at.max(at),
        };
        self.answers.push_back(Answer { at, sent });
        sent + step
    }

    /// The stamp of a check that is sent now.
    pub fn stamp(&self, now: Duration) -> Stamp {
        let reported = now.saturating_sub(reported_after(self.timeout));
        let heard_of = self.answers.iter().filter(|answer| answer.at <= reported);
        Stamp {
            sent: now,
            touched: heard_of.map(|answer| answer.sent).max().unwrap_or_default(),
        }
    }

    /// When a check will have a newer message to rest on than `stamp` has, if there is one.
    pub fn better_at(&self, stamp: Stamp) -> Option<Duration> {
        let newer = self
            .answers
            .iter()
            .filter(|answer| stamp.touched < answer.sent);
        newer
            .map(|answer| answer.at + reported_after(self.timeout))
            .min()
    }

    /// Whether a lock may be granted now on the strength of `stamp`, after this many proofs.
    ///
    /// What an earlier connection was answered says nothing of the server that committed the
    /// proof: the earlier one may have reported none of it.
    pub fn supports_a_grant(&self, stamp: Stamp, proofs: u32, now: Duration) -> bool {
        self.since <= stamp.sent
            && stamp.supports_a_grant(self.better_at(stamp), proofs, self.timeout, now)
    }
}

#[cfg(test)]
mod tests;
