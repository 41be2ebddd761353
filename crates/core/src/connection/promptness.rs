//! When to leave a server that keeps the connection and answers no request.
//!
//! A follower that is cut off from its leader answers pings and nothing else, and a server that hangs answers
//! nothing. Another server may answer at once, even behind the same address if that is a balancer's. So the client
//! moves on before its guards are in doubt. A client that waits for a lock moves on too: its pings count as
//! requests. A client moves on once: if no server answers, as while the servers elect a leader, moving from one to
//! the next gains nothing.
//!
//! A commit waits for the disks of a quorum, and whoever leaves waits for them again: it has more time than a read.
//! One that took long gives the next ones as long as a server that sends nothing at all.
//!
//! The first answer may take only four times as long as the greeting, because a server that hangs right after the
//! greeting costs the guards otherwise. A client that has just left another one is patient.
//!
//! A server that was never prompt gets as long as one that sends nothing at all: it may drop a request that
//! it does not know, and answer pings. The time for a request begins with the reply before: a server with
//! many requests answers them one by one.

use core::time::Duration;

/// The least time that a request may take, however short the session timeout.
const LEAST: Duration = Duration::from_millis(500);

/// The parts of the session timeout that a server which was prompt may take for a read, and for a commit.
const READ: u32 = 8;
const COMMIT: u32 = 6;

/// How promptly one connection's server has answered.
#[derive(Debug)]
pub struct Promptness {
    timeout: Duration,
    /// How long a request may take.
    limit: Duration,
    /// How long a request may take where the server was not prompt.
    longest: Duration,
    /// When the last reply arrived.
    answered_at: Option<Duration>,
    /// How long the next reply may take.
    reads: Duration,
    /// How long the next reply to a request that the quorum must commit may take.
    commits: Duration,
}

/// A request that a server has not answered.
#[derive(Clone, Copy, Debug)]
pub struct OpenRequest {
    /// When it was queued.
    pub since: Duration,
    /// Whether the quorum must commit it.
    pub commits: bool,
}

impl Promptness {
    /// Creates the state for a connection of a session with this timeout.
    pub fn new(timeout: Duration) -> Self {
        let longest = (timeout * 2 / 3).max(LEAST);
        Self {
            timeout,
            limit: (timeout / READ).max(LEAST),
            longest,
            answered_at: None,
            reads: longest,
            commits: longest,
        }
    }

    /// Notes that the greeting took this long.
    pub fn greeted(&mut self, took: Duration) {
        self.reads = (4 * took).clamp(self.limit, self.longest);
        self.commits = self.reads;
    }

    /// Notes that this request is answered now.
    pub fn answered(&mut self, request: OpenRequest, now: Duration) {
        // On a link whose round trips take long, a late answer says nothing about the server.
        let took = now.saturating_sub(request.since);
        let is_prompt = took <= self.limit / 4;
        let next = if is_prompt { self.limit } else { self.longest };
        // A read waits for no disk: a commit takes as long, or longer.
        if request.commits {
            (self.commits, self.reads) = (next, self.reads.min(next));
        } else {
            (self.reads, self.commits) = (next, self.commits.max(next));
        }
        self.answered_at = Some(now);
    }

    /// Returns when to leave the server, if the `oldest` open request is still unanswered then.
    pub fn leaves_at(&self, oldest: Option<OpenRequest>) -> Option<Duration> {
        let OpenRequest { since, commits } = oldest?;
        let turn = self.answered_at.map_or(since, |at| since.max(at));
        let next = match commits {
            true => self.commits.max(self.timeout / COMMIT),
            false => self.reads,
        };
        Some(turn + next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Duration = Duration::from_secs(16);

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn read(millis: u64) -> OpenRequest {
        let since = at(millis);
        OpenRequest {
            since,
            commits: false,
        }
    }

    fn commit(millis: u64) -> OpenRequest {
        let since = at(millis);
        OpenRequest {
            since,
            commits: true,
        }
    }

    #[test]
    fn a_server_that_was_prompt_and_answers_no_more_is_left() {
        for (request, limit) in [(read as fn(u64) -> OpenRequest, T / 8), (commit, T / 6)] {
            let mut server = Promptness::new(T);
            let patience = |server: &Promptness, since| {
                let left = server.leaves_at(Some(request(since)));
                left.map(|left| left - at(since))
            };
            assert_eq!(patience(&server, 300), Some(T * 2 / 3), "no answer yet");
            server.answered(request(0), at(500));
            assert_eq!(server.leaves_at(None), None, "nothing is open");
            assert_eq!(patience(&server, 9_000), Some(limit));
            assert_eq!(patience(&server, 100), Some(at(400) + limit), "in turn");
            server.answered(request(9_000), at(9_501));
            assert_eq!(patience(&server, 9_600), Some(T * 2 / 3), "a slow link");
        }
    }

    #[test]
    fn a_read_that_is_answered_at_once_does_not_tell_how_long_a_commit_takes() {
        let patient = T * 2 / 3;
        let mut server = Promptness::new(T);
        server.greeted(Duration::ZERO);
        for (answered, now, of_read, of_commit) in [
            (read(0), 1, T / 8, T / 6),
            (commit(1), 1_900, T / 8, patient),
            (read(1_900), 1_901, T / 8, patient),
            (commit(1_901), 1_902, T / 8, T / 6),
            (read(1_902), 2_900, patient, patient),
            (read(2_900), 2_901, T / 8, patient),
            (read(2_901), 3_900, patient, patient),
            (commit(3_900), 3_901, T / 8, T / 6),
        ] {
            server.answered(answered, at(now));
            for (request, patience) in [(read(now), of_read), (commit(now), of_commit)] {
                let left = server.leaves_at(Some(request));
                assert_eq!(left, Some(at(now) + patience), "{request:?}");
            }
        }
    }

    #[test]
    fn the_first_answer_may_take_as_long_as_the_greeting_lets_expect() {
        let mut server = Promptness::new(T);
        for (greeting, of_read, of_commit) in [
            (1, 2_000, 2_666),
            (900, 3_600, 3_600),
            (9_000, 10_666, 10_666),
        ] {
            server.greeted(Duration::from_millis(greeting));
            for (request, first) in [(read(0), of_read), (commit(0), of_commit)] {
                let left = server.leaves_at(Some(request)).unwrap();
                assert_eq!(left.as_millis(), first);
            }
        }
    }

    #[test]
    fn a_server_that_answers_one_by_one_is_not_left() {
        let mut server = Promptness::new(T);
        for second in 1..100 {
            let now = at(1_000 * second);
            assert!(server.leaves_at(Some(read(0))) > Some(now), "{now:?}");
            server.answered(read(0), now);
        }
        let patient = Some(at(99_000) + T * 2 / 3);
        assert_eq!(server.leaves_at(Some(read(0))), patient);
    }

    #[test]
    fn a_short_session_leaves_time() {
        let mut short = Promptness::new(Duration::from_millis(300));
        short.answered(commit(0), at(1));
        assert_eq!(short.leaves_at(Some(commit(2))), Some(at(502)));
    }
}
