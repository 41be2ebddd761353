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
//! `sent` is when the last committed check of the node was sent. The check proves that the node existed,
//! but not how long its session lasts: a follower forwards a request, and the leader commits it without
//! touching the session. `touched` is the send time of the last message that the leader had heard of when
//! it committed that check, so the session ends no earlier than T after it.
//! [`Lifetime`](super::lifetime::Lifetime) knows which message that is.
//!
//! T is the shortest timeout negotiated in this session: servers may differ, and a follower
//! that served the session earlier may still report it with the timeout that it granted.
//!
//! `docs/guarantees.md` derives this from ZooKeeper's source. Times are durations since one fixed moment,
//! because nothing in here reads a clock. That moment is longer ago than any session lasts; zero stands for
//! an unknown time.

use core::time::Duration;

/// The least timeout that a server grants under the default limits: two ticks of two seconds.
///
/// What a server grants to a handle is unknown, and believed only up to this, unless the user states more.
pub const LEAST_TIMEOUT: Duration = Duration::from_secs(4);

/// The number of proofs after which a lock is granted on the strength of the last one.
///
/// On a slow link no proof is young enough when it arrives, and a contender that waited for a young one
/// would stand at the head of the queue forever.
pub(super) const ENOUGH_PROOFS: u32 = 3;

/// The part of the session timeout after which the quorum is asked again about a lock that is held.
///
/// A server that answers no check is left a sixth later, and a command is told to stop a thirtieth after that.
pub(super) const PROVEN_EVERY: u32 = 8;

/// What a guard knows about its lock.
///
/// ```text
/// Held ──(T/6 before the deadline, or disconnected)──► Suspect ──(deadline, expiry, node gone)──► Lost
///   ▲                                                        │
///   └──────(same session, own node verified)─────────────────┘
/// ```
///
/// T is the shortest session timeout that was negotiated in this session. The deadline is T/2 after the
/// send time of the last check that a quorum has committed, or earlier after a silence.
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
    /// No quorum confirmed the lock recently, but nobody else can have it before the deadline.
    Suspect,
    /// Someone else may have the lock, or a run took longer than it may. This is final.
    Lost,
}

/// How long a lock may be trusted, whatever proved it: a committed check of a node, or the
/// renewal of a row in a database.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Validity {
    /// The moment from which the holder should begin nothing new.
    pub suspect_from: Duration,
    /// The moment from which somebody else may have the lock.
    pub until: Duration,
}

impl Validity {
    /// Returns the validity of a lock that is kept by a lease, after a renewal that was sent at `sent`.
    ///
    /// The server counts the lease from when it carries out the renewal, which is later. The
    /// last quarter allows for a server's clock that is set forward, and for the holder to stop.
    pub fn of_lease(sent: Duration, lease: Duration) -> Self {
        Self {
            suspect_from: sent + lease / 3,
            until: sent + lease / 4 * 3,
        }
    }

    /// Returns the state of a guard that is not known to be lost.
    #[inline]
    pub fn state(self, now: Duration) -> GuardState {
        if self.until <= now {
            GuardState::Lost
        } else if self.suspect_from <= now {
            GuardState::Suspect
        } else {
            GuardState::Held
        }
    }

    /// Returns when a guard in this state changes, if nothing more arrives.
    pub fn next_change(self, state: GuardState) -> Option<Duration> {
        match state {
            GuardState::Held => Some(self.suspect_from.min(self.until)),
            GuardState::Suspect => Some(self.until),
            GuardState::Lost => None,
        }
    }
}

/// The evidence of one committed check.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Stamp {
    /// When the check was sent.
    pub sent: Duration,
    /// When the last message was sent that the leader had heard of by then.
    pub touched: Duration,
}

impl Stamp {
    /// The stamp that proves nothing: what rests on it is lost.
    pub const NEVER: Self = Self {
        sent: Duration::ZERO,
        touched: Duration::ZERO,
    };

    /// Returns the newer of each of the two times, because each is true by itself.
    #[must_use]
    pub fn or_newer(self, other: Self) -> Self {
        Self {
            sent: self.sent.max(other.sent),
            touched: self.touched.max(other.touched),
        }
    }

    /// Returns the older of each of the two times.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            sent: self.sent.min(other.sent),
            touched: self.touched.min(other.touched),
        }
    }

    /// Returns the moment from which somebody else may have the lock.
    #[inline]
    pub fn until(self, timeout: Duration) -> Duration {
        self.session_lasts(timeout).min(self.sent + timeout / 2)
    }

    /// Returns the moment before which the session cannot end.
    #[inline]
    fn session_lasts(self, timeout: Duration) -> Duration {
        // A hundredth is for clocks that do not run at the same speed.
        self.touched + timeout - timeout / 100
    }

    /// Returns the moment from which the holder should begin nothing new.
    #[inline]
    pub fn suspect_from(self, timeout: Duration) -> Duration {
        self.until(timeout).saturating_sub(timeout / 6)
    }

    /// Returns when the next check is due, so that its answer comes before the guard is suspect.
    ///
    /// A check every T/8 is enough where messages have come regularly. After a silence, the
    /// first check that finds a newer message reported, `better_at`, must not wait as long.
    pub fn due(self, better_at: Option<Duration>, timeout: Duration) -> Duration {
        let regular = self.sent + timeout / PROVEN_EVERY;
        match better_at {
            Some(better_at) if self.suspect_from(timeout) < regular + timeout / 12 => {
                regular.min(better_at.max(self.sent))
            }
            _ => regular,
        }
    }

    /// Returns whether a lock may be granted on the strength of this stamp.
    ///
    /// The proofs that are still to come must be able to keep the guard valid. Each of them renews `sent`, so that
    /// need only be young: younger than a sixth of the session timeout, or than a quarter if the quorum was just asked,
    /// since its answer to the next proof, which takes as long, still comes in time. The first one after `better_at`
    /// renews `touched`, and the session must last until that proof is answered, if it takes as long as the last one
    /// `took`. After several `proofs` that did not allow this, it is enough that the guard is alive.
    pub fn supports_a_grant(
        self,
        better_at: Option<Duration>,
        (proofs, took): (u32, Duration),
        timeout: Duration,
        now: Duration,
    ) -> bool {
        let young = if proofs == 0 {
            timeout / 6
        } else {
            timeout / 4
        };
        let is_young = now < self.sent + young;
        let lives = now + timeout / 24 <= self.until(timeout);
        (is_young && self.outlasts(better_at, took, timeout, now))
            || (lives && ENOUGH_PROOFS <= proofs)
    }

    /// Returns whether the session lasts until a proof that rests on a newer message is answered: for as long as the
    /// last one `took`, and for an eighth of the session timeout at least.
    pub(super) fn outlasts(
        self,
        better_at: Option<Duration>,
        took: Duration,
        timeout: Duration,
        now: Duration,
    ) -> bool {
        let next = better_at.map_or(now, |better_at| better_at.max(now));
        next + took.max(timeout / 8) <= self.session_lasts(timeout)
    }
}

/// The state of a lock's session at one moment.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Terms {
    /// The shortest timeout that was negotiated in this session.
    pub timeout: Duration,
    /// The moment from which nothing is known of the session unless a server answers.
    pub latest: Duration,
    /// When the present connection began; [`Duration::MAX`] if there is none.
    pub connected: Duration,
    /// Whether the session has ended, or another one has taken its place.
    pub over: bool,
}

impl Terms {
    /// Returns how long a lock that was proven by `stamp` may be trusted. A proof of before the present
    /// connection says nothing about the time since the last one broke.
    #[inline]
    pub fn validity(self, stamp: Stamp) -> Validity {
        Validity {
            suspect_from: match stamp.sent < self.connected {
                true => Duration::ZERO,
                false => stamp.suspect_from(self.timeout),
            },
            until: match self.over {
                true => Duration::ZERO,
                false => stamp.until(self.timeout).min(self.latest),
            },
        }
    }

    /// Returns the moment from which somebody else may have what was proven by `stamp`.
    #[inline]
    pub fn until(self, stamp: Stamp) -> Duration {
        self.validity(stamp).until
    }
}
