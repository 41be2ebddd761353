//! The life of a session as its client knows it: which of its messages the leader has heard of.

use alloc::collections::VecDeque;
use core::time::Duration;

use super::validity::{Stamp, Terms};

/// Returns how long the leader may take to hear of a message that a follower has answered.
///
/// A follower reports in its answers to the leader's pings, which come every half tick. That is T/4 at
/// most, because servers grant two ticks or more; the rest is for pings that are late.
fn reported_after(timeout: Duration) -> Duration {
    timeout / 4 + timeout / 10
}

/// Returns how much later a message counts if the session may have been due when the leader heard of it.
///
/// The leader takes out the sessions that are due and ends them one by one. In between, a touch changes
/// nothing (`ExpiryQueue.poll` in ZooKeeper 3.5 and later), and requests are still committed.
fn ended_within(timeout: Duration) -> Duration {
    timeout / 4
}

/// The bounds on the life of one session, as far as its client knows them.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Lifetime {
    timeout: Duration,
    /// The moment to which a connect request whose answer is awaited may shorten the session.
    asked: Duration,
    /// The moment to which connect requests that were never answered may have shortened the session.
    unheard: Duration,
    /// When the last message was sent that the leader had heard of in time, as a later commit has shown;
    /// zero if there is none.
    heard_of: Duration,
    /// When this connection's handshake was answered.
    since: Duration,
    /// Whether this connection has not broken since.
    is_connected: bool,
    /// This connection's handshake.
    handshake: Answer,
    /// The last handshake after which its leader has committed something on the same connection.
    led: Answer,
    /// The last request that was committed by a leader with a term.
    last: Commit,
    /// If a later leader than that of this term commits something on this connection, the session was not due at
    /// its handshake.
    renewed_after: Option<i64>,
    /// The messages of this connection that were answered, as far as they matter. Both of their times increase.
    answers: VecDeque<Answer>,
}

#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
struct Answer {
    /// The moment from which a committed request shows that the message keeps the session.
    counts_at: Duration,
    /// When the message was sent.
    sent: Duration,
}

#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
struct Commit {
    /// When the request was sent; zero if there is none.
    sent: Duration,
    /// The term of the leader.
    term: i64,
}

impl Lifetime {
    /// Creates the lifetime of a session that a server opened with this timeout. The connect request was
    /// sent at `sent`, and its answer arrived `at` this moment.
    ///
    /// A `sent` of zero stands for a handshake whose time is unknown, as for a session of another process.
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
            is_connected: true,
            handshake: opened,
            led: opened,
            last: Commit::default(),
            renewed_after: None,
            answers: VecDeque::from([opened]),
        }
    }

    /// Returns the shortest timeout that was negotiated in this session.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns when the last message was sent that the leader had heard of in time, as a later commit has
    /// shown; zero if there is none.
    pub fn heard_of(&self) -> Duration {
        self.heard_of
    }

    /// Returns the moment from which nothing is known of the session unless a server answers.
    pub fn latest(&self) -> Duration {
        self.asked.min(self.unheard)
    }

    /// Returns what guards have to know of the session, while it has not ended.
    pub fn terms(&self) -> Terms {
        Terms {
            timeout: self.timeout,
            latest: self.latest(),
            connected: match self.is_connected {
                true => self.since,
                false => Duration::MAX,
            },
            over: false,
        }
    }

    /// Notes that a connect request for this session is sent. A server that receives it grants what the servers
    /// have granted this session before, or no less than `least` if that is stated; only the answer tells.
    pub fn greets(&mut self, sent: Duration, least: Option<Duration>) {
        self.unheard = self.latest();
        let least = least.map_or(self.timeout, |least| least.min(self.timeout));
        // As with any timeout, clocks do not run at the same speed.
        self.asked = sent + least - least / 100;
    }

    /// Notes that a server has granted this timeout. The connect request was sent at `sent`, and its answer arrived
    /// `at` this moment. The leader itself opens and moves sessions, so it has heard of the request. That counts at
    /// once if the session was not due yet, otherwise when the leader would have ended it.
    ///
    /// If the session was not due at the last handshake whose leader was the leader, it is not due now either, for
    /// T from then on: both handshakes count from the same moment, when that leader would have ended it.
    ///
    /// A leader that was elected since the last commit has given the session T from the start of its term, which was
    /// after that request was sent. Only a commit can tell of it: see [`committed`](Self::committed).
    ///
    /// The leader that answers may have been deposed without knowing it. Then what earlier connect requests may
    /// have done at the present leader still counts.
    pub fn greeted(&mut self, timeout: Duration, sent: Duration, at: Duration) {
        (self.since, self.is_connected) = (at, true);
        let timeout_before = self.timeout;
        self.timeout = timeout_before.min(timeout);
        let lasts = |heard_of: Duration| {
            let due = heard_of + timeout_before - timeout_before / 100;
            !heard_of.is_zero() && at < due.min(self.unheard)
        };
        let ended = at + ended_within(self.timeout);
        self.renewed_after = lasts(self.last.sent).then_some(self.last.term);
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

    /// Notes that the connection broke.
    pub fn broke(&mut self) {
        self.is_connected = false;
    }

    /// Notes that a quorum has committed a request of this connection that was sent at `sent`. So the leader that
    /// heard of the connection's handshake was the leader, and earlier connect requests came before the handshake.
    ///
    /// `zxid` is that of the answer, which tells of the leader's term. Where no leader is elected, it tells of none.
    pub fn committed(&mut self, sent: Duration, zxid: i64) {
        let term = zxid >> 32;
        if self.renewed_after.is_some_and(|before| before < term) {
            self.was_not_due();
        }
        if 0 < term {
            self.last = Commit { sent, term };
        }
        self.unheard = Duration::MAX;
        self.heard_of = self.heard_of.max(self.stamp(sent).touched);
        self.led = self.handshake;
    }

    /// Notes that the session was not due at this connection's handshake, which so counts at once.
    fn was_not_due(&mut self) {
        self.handshake.counts_at = Duration::ZERO;
        let first = self.answers.front_mut();
        if let Some(answer) = first.filter(|first| first.sent == self.handshake.sent) {
            *answer = self.handshake;
        }
    }

    /// Notes that the answer to a message that was sent at `sent` arrived `at` this moment.
    pub fn answered(&mut self, sent: Duration, at: Duration) {
        let last = self.answers.back().copied().unwrap_or_default();
        // An answer that is hardly newer would only make the list longer.
        if sent < last.sent + self.timeout / 64 {
            return;
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
    }

    /// Returns the stamp of a check that is sent now.
    pub fn stamp(&self, now: Duration) -> Stamp {
        let heard_of = self.answers.iter().filter(|answer| answer.counts_at <= now);
        Stamp {
            sent: now,
            touched: heard_of.map(|answer| answer.sent).max().unwrap_or_default(),
        }
    }

    /// Returns when a check will have a newer message to rest on than `stamp` has, if there is one.
    pub fn better_at(&self, stamp: Stamp) -> Option<Duration> {
        let newer = self
            .answers
            .iter()
            .filter(|answer| stamp.touched < answer.sent);
        newer.map(|answer| answer.counts_at).min()
    }

    /// Returns the moment from which a proof can support a grant; `None` if one that is sent now can.
    pub fn provable_at(&self, now: Duration) -> Option<Duration> {
        let stamp = self.stamp(now);
        let better_at = self.better_at(stamp);
        let took = Duration::ZERO;
        better_at.filter(|_| !stamp.outlasts(better_at, took, self.timeout, now))
    }

    /// Returns whether a lock may be granted now on the strength of `stamp`, after this many proofs. The last of them,
    /// or the create, `took` this long.
    ///
    /// The answers on an earlier connection say nothing about the server that committed the proof: the
    /// earlier server may have reported none of them.
    pub fn supports_a_grant(
        &self,
        stamp: Stamp,
        (proofs, took): (u32, Duration),
        now: Duration,
    ) -> bool {
        let better_at = self.better_at(stamp);
        self.is_of_this_connection(stamp)
            && stamp.supports_a_grant(better_at, (proofs, took), self.timeout, now)
    }

    /// Returns whether this stamp is of a check that was sent on this connection.
    pub fn is_of_this_connection(&self, stamp: Stamp) -> bool {
        self.since <= stamp.sent
    }
}

#[cfg(test)]
mod tests;
