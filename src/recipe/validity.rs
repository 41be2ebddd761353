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
//! that served the session before may still report it with the timeout that it granted.
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

/// After so many proofs a lock is granted on the strength of what there is.
///
/// On a slow link no proof is young enough when it comes, and whoever waited for one would
/// stand at the head of the queue for ever.
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
    /// A quorum confirmed the lock lately, at most T/3 ago.
    Held,
    /// No quorum confirmed it lately; until the deadline nobody else can have it.
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
    /// The server counts the lease from when it carries the renewal out, which is later. The
    /// last quarter is for a clock of the server that is set forward, and for the holder to
    /// come to a stop.
    pub fn of_lease(sent: Duration, lease: Duration) -> Self {
        Self {
            suspect_from: sent + lease / 3,
            until: sent + lease / 4 * 3,
        }
    }

    /// What a guard is, if it is known to be neither lost nor `shaken` by a disconnect.
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
    /// Says nothing: what rests on it is lost.
    pub const NEVER: Self = Self {
        sent: Duration::ZERO,
        touched: Duration::ZERO,
    };

    /// The older of two stamps in either respect.
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
    /// The guard must live to see the proof that follows; after several `proofs` that did not
    /// come to that, it must live at all.
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
    /// The session is over, or another one has taken its place.
    pub over: bool,
}

impl Terms {
    /// How long a lock may be trusted that was proven by `stamp`.
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
    /// What those may have done whose answers never came.
    unheard: Duration,
    /// The messages of this connection that were answered, as far as they matter: when each
    /// answer was in hand, and when its message was sent. Both grow.
    answers: VecDeque<Answer>,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Answer {
    at: Duration,
    sent: Duration,
}

impl Lifetime {
    /// Of a session that a server opened with this timeout, when asked at `sent`.
    ///
    /// Zero stands for a handshake whose time is not known.
    pub fn new(timeout: Duration, sent: Duration) -> Self {
        let mut new = Self {
            timeout,
            asked: Duration::MAX,
            unheard: Duration::MAX,
            answers: VecDeque::new(),
        };
        new.greeted(timeout, sent);
        new
    }

    /// The shortest timeout that was negotiated in this session.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// From this moment on nothing is known of the session unless a server answers.
    pub fn latest(&self) -> Duration {
        self.asked.min(self.unheard)
    }

    /// What guards have to know of it, while it is not over.
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

    /// A connect request for this session is sent. A server that receives it grants what its
    /// own limits allow, `least` at least, and how much that is will be known from the answer only.
    pub fn greets(&mut self, sent: Duration, least: Duration) {
        self.unheard = self.latest();
        // As for any timeout: clocks do not run at the same speed.
        self.asked = sent + least - least / 100;
    }

    /// A server has granted this timeout when asked at `sent`. The leader itself opens
    /// sessions and lets them move, so it has heard of that.
    ///
    /// It may have been deposed meanwhile, without knowing it: then what earlier connect requests
    /// may have done goes on to count with the leader that there is.
    pub fn greeted(&mut self, timeout: Duration, sent: Duration) {
        let at = Duration::ZERO;
        self.timeout = self.timeout.min(timeout);
        self.asked = Duration::MAX;
        self.answers = VecDeque::from([Answer { at, sent }]);
    }

    /// A quorum has committed a request of this connection: the leader that heard of its
    /// handshake led by then, and earlier connect requests came before that.
    pub fn committed(&mut self) {
        self.unheard = Duration::MAX;
    }

    /// The answer to a message that was sent at `sent` was in hand `at` this moment.
    ///
    /// Returns the earliest send time of a message that adds something to this.
    pub fn answered(&mut self, sent: Duration, at: Duration) -> Duration {
        let last = self.answers.back().map_or(Duration::ZERO, |last| last.sent);
        let step = self.timeout / 64;
        if sent < last + step {
            return last + step;
        }
        let reported = at.saturating_sub(reported_after(self.timeout));
        while self.answers.get(1).is_some_and(|next| next.at <= reported) {
            self.answers.pop_front();
        }
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

    /// Whether a lock may be granted now on the strength of `stamp`, after so many proofs.
    pub fn supports_a_grant(&self, stamp: Stamp, proofs: u32, now: Duration) -> bool {
        stamp.supports_a_grant(self.better_at(stamp), proofs, self.timeout, now)
    }
}

#[cfg(test)]
#[allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "whoever tests may ask for more histories, and is told what they show"
)]
mod tests;
