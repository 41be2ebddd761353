//! When to leave a server that keeps the connection and answers no request.
//!
//! A follower that is cut off from its leader answers pings and nothing else, and a server that hangs answers
//! nothing. Another server may answer at once, even behind the same address if that is a balancer's. So the client
//! moves on before its guards are in doubt. A client that waits for a lock moves on too: its pings count as
//! requests. A client moves on once: if no server answers, as while the servers elect a leader, moving from one to
//! the next gains nothing.
//!
//! The first answer may take only four times as long as the greeting, because a server that hangs right after the
//! greeting costs the guards otherwise. This applies to as many connections in a row as there are addresses.
//!
//! A server that was never prompt gets as long as one that sends nothing at all: it may drop a request that
//! it does not know, and answer pings. The time for a request begins with the reply before: a server with
//! many requests answers them one by one.

use core::time::Duration;

/// The least time that a request may take, however short the session timeout.
const LEAST: Duration = Duration::from_millis(500);

/// How promptly one connection's server has answered.
#[derive(Debug)]
pub struct Promptness {
    /// How long a request may take.
    limit: Duration,
    /// How long a request may take where the server was not prompt.
    longest: Duration,
    /// When the last reply arrived.
    answered_at: Option<Duration>,
    /// How long the next reply may take.
    next: Duration,
}

impl Promptness {
    /// Creates the state for a connection of a session with this timeout.
    pub fn new(timeout: Duration) -> Self {
        let longest = (timeout * 2 / 3).max(LEAST);
        Self {
            limit: (timeout / 8).max(LEAST),
            longest,
            answered_at: None,
            next: longest,
        }
    }

    /// Notes that the greeting took this long.
    pub fn greeted(&mut self, took: Duration) {
        self.next = (4 * took).clamp(self.limit, self.longest);
    }

    /// Notes that a request that was queued at one moment is answered at another.
    pub fn answered(&mut self, queued: Duration, now: Duration) {
        // On a link whose round trips take long, a late answer says nothing about the server.
        let took = now.saturating_sub(queued);
        let prompt = took <= self.limit / 4;
        self.next = if prompt { self.limit } else { self.longest };
        self.answered_at = Some(now);
    }

    /// Returns when to leave the server, if the `oldest` open request is still unanswered then.
    pub fn leaves_at(&self, oldest: Option<Duration>) -> Option<Duration> {
        let oldest = oldest?;
        let turn = self.answered_at.map_or(oldest, |at| oldest.max(at));
        Some(turn + self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Duration = Duration::from_secs(16);

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_server_that_was_prompt_and_answers_no_more_is_left() {
        let mut server = Promptness::new(T);
        assert_eq!(
            server.leaves_at(Some(at(300))),
            Some(at(300) + T * 2 / 3),
            "it has answered nothing"
        );
        server.answered(at(0), at(500));
        assert_eq!(server.leaves_at(None), None, "nothing is open");
        assert_eq!(server.leaves_at(Some(at(9_000))), Some(at(11_000)));
        assert_eq!(
            server.leaves_at(Some(at(100))),
            Some(at(2_500)),
            "it answers in turn"
        );
        server.answered(at(9_000), at(9_501));
        let patient = Some(at(9_600) + T * 2 / 3);
        assert_eq!(
            server.leaves_at(Some(at(9_600))),
            patient,
            "the link is slow"
        );
    }

    #[test]
    fn the_first_answer_may_take_as_long_as_the_greeting_lets_expect() {
        let mut server = Promptness::new(T);
        for (greeting, first) in [(1, 2_000), (900, 3_600), (9_000, 10_666)] {
            server.greeted(Duration::from_millis(greeting));
            let left = server.leaves_at(Some(at(0))).unwrap();
            assert_eq!(left.as_millis(), first);
        }
        server.answered(at(0), at(100));
        assert_eq!(server.leaves_at(Some(at(0))), Some(at(2_100)));
    }

    #[test]
    fn a_server_that_answers_one_by_one_is_not_left() {
        let mut server = Promptness::new(T);
        for second in 1..100 {
            let now = at(1_000 * second);
            assert!(server.leaves_at(Some(at(0))) > Some(now), "{now:?}");
            server.answered(at(0), now);
        }
        assert_eq!(server.leaves_at(Some(at(0))), Some(at(99_000) + T * 2 / 3));
    }

    #[test]
    fn a_short_session_leaves_time() {
        let mut short = Promptness::new(Duration::from_millis(300));
        short.answered(at(0), at(1));
        assert_eq!(short.leaves_at(Some(at(2))), Some(at(502)));
    }
}
