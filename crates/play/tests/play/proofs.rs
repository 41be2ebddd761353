//! The worth of a client's proofs, by the messages that it has sent and the answers that it has received: a second
//! implementation of the rule in `docs/guarantees.md`.

use std::collections::VecDeque;
use std::time::Duration;

use crate::servers::Time;

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Proofs {
    /// When the messages of this connection were sent, and when their answers arrived.
    answered: Vec<(Time, Time)>,
    pings: VecDeque<Time>,
    /// Until when the best proof supports a lock.
    support: Time,
}

impl Proofs {
    /// Notes that a handshake, which counts at once at best, has begun a connection.
    pub(crate) fn connected(&mut self, sent: Time) {
        self.answered.clear();
        self.answered.push((sent, Time::ZERO));
        self.pings.clear();
    }

    pub(crate) fn pings(&mut self, now: Time) {
        self.pings.push_back(now);
    }

    pub(crate) fn pong(&mut self, now: Time) {
        if let Some(sent) = self.pings.pop_front() {
            self.answered(sent, now);
        }
    }

    pub(crate) fn answered(&mut self, sent: Time, now: Time) {
        let last = self.answered.last().map_or(Time::ZERO, |(last, _)| *last);
        self.answered.push((sent.max(last), now));
    }

    /// Returns when the first answer of this connection arrived, after that to its handshake.
    pub(crate) fn first_answer(&self) -> Option<Time> {
        self.answered.get(1).map(|(_, answered)| *answered)
    }

    /// Notes that a quorum has committed a message that was sent then. The shortest and the longest timeout are
    /// those of all servers which give the proof the most worth.
    pub(crate) fn committed(&mut self, sent: Time, shortest: Duration, longest: Duration) {
        let reported = |answered: Time| answered + shortest * 7 / 20 <= sent;
        let mut heard_of = self.answered.iter().rev();
        if let Some((touched, _)) = heard_of.find(|(_, answered)| reported(*answered)) {
            let until = (sent + longest / 2).min(*touched + longest - longest / 100);
            self.support = self.support.max(until);
        }
    }

    /// Returns until when a lock may be trusted.
    pub(crate) fn support(&self) -> Time {
        self.support
    }
}
