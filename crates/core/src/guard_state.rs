//! The belief of a guard about its lock.
//!
//! ```text
//!          the proof ages, or the connection breaks         the proof expires, or
//!                                                           the session is gone
//!  Held ───────────────────────────────────────► Suspect ─────────────────────────► Lost
//!   ▲                                               │
//!   └────────────────── a newer proof ──────────────┘
//! ```
//!
//! [`Validity`](super::validity::Validity) says how long a proof is valid. [`Belief`] remembers the last
//! proof, and what happened since. The time is an argument. The functions of a check are inlined, because a
//! guard is asked in nanoseconds and is in another crate.

use core::time::Duration;

use super::validity::{GuardState, Stamp, Terms};

/// The belief of a guard about its lock: a state machine.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Belief {
    /// The last proof; `None` once the lock is lost, which is final.
    pub stamp: Option<Stamp>,
    /// Whether the connection broke since that proof.
    pub shaken: bool,
}

/// The state of the connection.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct News {
    /// When the present connection began, if there is one.
    pub connected: Option<Duration>,
    /// Whether the connection is not that of the previous news, or there is none.
    pub broke: bool,
    /// The session that is served, or was served last; `None` when that has expired.
    pub session: Option<i64>,
    /// Whether there will never be a connection again.
    pub over: bool,
    /// Whether the transport takes its session to the next connection.
    pub resumes: bool,
}

impl News {
    /// Creates the news of a connection since this moment, or of none. The session is 0 if a server has
    /// said that it expired.
    pub fn of(connected: Option<Duration>, session: i64, over: bool, resumes: bool) -> Self {
        Self {
            connected,
            broke: connected.is_none(),
            session: Some(session).filter(|session| *session != 0),
            over,
            resumes,
        }
    }
}

impl Belief {
    /// Creates a belief that rests on this proof.
    #[inline]
    pub fn new(stamp: Stamp) -> Self {
        Self {
            stamp: Some(stamp),
            shaken: false,
        }
    }

    /// Returns the last proof, unless the lock is lost.
    #[inline]
    pub fn look(&mut self, terms: Terms, now: Duration) -> Option<Stamp> {
        self.stamp = self.stamp.filter(|stamp| now < terms.until(*stamp));
        self.stamp
    }

    /// Returns the state of the guard.
    #[inline]
    pub fn state(&mut self, terms: Terms, now: Duration) -> GuardState {
        match self.look(terms, now) {
            Some(stamp) => terms.validity(stamp).state(self.shaken, now),
            None => GuardState::Lost,
        }
    }

    /// Returns when the state changes if nothing more arrives; never, once the lock is lost.
    pub fn changes_at(&mut self, terms: Terms, now: Duration) -> Option<Duration> {
        let validity = terms.validity(self.look(terms, now)?);
        let next = validity.next_change(self.state(terms, now))?;
        Some(next.min(validity.until))
    }

    /// Notes that a quorum confirmed the nodes when it was asked with this stamp.
    ///
    /// The newer of each of the two times counts, because each is true by itself.
    pub fn confirm(&mut self, stamp: Stamp, terms: Terms, now: Duration) {
        if let Some(old) = self.look(terms, now) {
            self.stamp = Some(Stamp {
                sent: stamp.sent.max(old.sent),
                touched: stamp.touched.max(old.touched),
            });
            self.shaken = false;
        }
    }

    /// Applies what happened to the connection to a lock of this `session`.
    pub fn hear(&mut self, session: i64, news: News) {
        let another = news.connected.is_some() && news.session != Some(session);
        let ends = news.broke && !news.resumes && news.connected.is_none();
        if news.over || another || news.session.is_none() || ends {
            self.stamp = None;
        }
        // A proof that came through this connection is newer than the break of the last one.
        let proven = |since| self.stamp.is_some_and(|stamp| since <= stamp.sent);
        self.shaken |= news.broke && !news.connected.is_some_and(proven);
    }
}
