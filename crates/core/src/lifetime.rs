//! What a client knows of the life of its session: which of its messages the leader has heard of.

use alloc::collections::VecDeque;
use core::time::Duration;

use super::validity::{Stamp, Terms};

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
    /// This connection's handshake.
    handshake: Answer,
    /// The last handshake after which its leader has committed something on the same connection.
    led: Answer,
    /// The messages of this connection that were answered, as far as they matter. Both of their
    /// times grow.
    answers: VecDeque<Answer>,
}

#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
struct Answer {
    /// From this moment on a committed request shows that the message keeps the session.
    counts_at: Duration,
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
            counts_at: Duration::ZERO,
            sent,
        };
        Self {
            timeout,
            asked: Duration::MAX,
            unheard: Duration::MAX,
            heard_of: sent,
            since: at,
            handshake: opened,
            led: opened,
            answers: VecDeque::from([opened]),
        }
    }

    /// The shortest timeout that was negotiated in this session.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// When the last message was sent that the leader had heard of in time, as a later commit has
    /// shown; zero if there is none.
    pub fn heard_of(&self) -> Duration {
        self.heard_of
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

    /// A connect request for this session is sent. A server that receives it grants what the
    /// servers have granted this session before, or no less than `least` if that is stated; only
    /// the answer tells.
    pub fn greets(&mut self, sent: Duration, least: Option<Duration>) {
        self.unheard = self.latest();
        let least = least.map_or(self.timeout, |least| least.min(self.timeout));
        // As for any timeout: clocks do not run at the same speed.
        self.asked = sent + least - least / 100;
    }

    /// A server has granted this timeout when asked at `sent`; the answer was in hand `at` this
    /// moment. The leader itself opens and moves sessions, so it has heard of the request. That
    /// counts at once if the session was not due yet, else when the leader would have ended it.
    ///
    /// If it was not due at the last handshake before, whose leader was the leader, it is not due now
    /// either, for T from then on: both count from the same moment, when that would have ended it.
    ///
    /// That leader may have been deposed without knowing it. Then what earlier connect requests
    /// may have done still counts, with the present leader.
    pub fn greeted(&mut self, timeout: Duration, sent: Duration, at: Duration) {
        self.since = at;
        let timeout_before = self.timeout;
        self.timeout = timeout_before.min(timeout);
        let lasts = |heard_of: Duration| {
            let due = heard_of + timeout_before - timeout_before / 100;
            !heard_of.is_zero() && at < due.min(self.unheard)
        };
        let ended = at + ended_within(self.timeout);
        let counts_at = if lasts(self.heard_of) {
            Duration::ZERO
        } else {
            let counts_at = match lasts(self.led.sent) {
                true => ended.min(self.led.counts_at),
                false => ended,
            };
            // A commit that follows says nothing of the time before this handshake.
            self.heard_of = Duration::ZERO;
            counts_at
        };
        self.asked = Duration::MAX;
        self.handshake = Answer { counts_at, sent };
        self.answers = VecDeque::from([self.handshake]);
    }

    /// A quorum has committed a request of this connection, which was sent at `sent`: the leader
    /// that heard of its handshake was the leader, and earlier connect requests came before the
    /// handshake.
    ///
    /// Returns the earliest send time of a request whose commit adds something to this.
    pub fn committed(&mut self, sent: Duration) -> Duration {
        self.unheard = Duration::MAX;
        self.heard_of = self.heard_of.max(self.stamp(sent).touched);
        self.led = self.handshake;
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
        while self.answers.get(1).is_some_and(|next| next.counts_at <= at) {
            self.answers.pop_front();
        }
        let reported = at + reported_after(self.timeout);
        let may_be_due = !last.sent.is_zero() && last.sent + self.timeout * 3 / 5 <= at;
        let counts_at = match may_be_due {
            true => reported + ended_within(self.timeout),
            false => last.counts_at.max(reported),
        };
        self.answers.push_back(Answer { counts_at, sent });
        sent + step
    }

    /// The stamp of a check that is sent now.
    pub fn stamp(&self, now: Duration) -> Stamp {
        let heard_of = self.answers.iter().filter(|answer| answer.counts_at <= now);
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
        newer.map(|answer| answer.counts_at).min()
    }

    /// From when on a proof can support a grant; `None` if one that is sent now can.
    pub fn provable_at(&self, now: Duration) -> Option<Duration> {
        let stamp = self.stamp(now);
        let better_at = self.better_at(stamp);
        better_at.filter(|_| !stamp.outlasts(better_at, self.timeout, now))
    }

    /// Whether a lock may be granted now on the strength of `stamp`, after this many proofs.
    ///
    /// What an earlier connection was answered says nothing of the server that committed the
    /// proof: the earlier one may have reported none of it.
    pub fn supports_a_grant(&self, stamp: Stamp, proofs: u32, now: Duration) -> bool {
        self.is_of_this_connection(stamp)
            && stamp.supports_a_grant(self.better_at(stamp), proofs, self.timeout, now)
    }

    /// Whether this stamp is of a check that was sent on this connection.
    pub fn is_of_this_connection(&self, stamp: Stamp) -> bool {
        self.since <= stamp.sent
    }
}

#[cfg(test)]
mod tests;
