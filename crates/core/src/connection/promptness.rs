//! When to leave a server that keeps the connection and answers no request.
//!
//! A follower that is cut off from its leader answers pings and nothing else, and a server that hangs answers
//! nothing. Another server may answer at once, even behind the same address if that is a balancer's. So the client
//! moves on before its guards are in doubt. A client that waits for a lock moves on too: its pings count as
//! requests. A client moves on once: if no server answers, as while the servers elect a leader, moving from one to
//! the next gains nothing.
//!
//! A commit waits for the disks of a quorum, and whoever leaves waits for them again: it has more time than a read.
//! After one that took long, the next one may take four times as long, but not as long as a server that sends nothing
//! at all: that would cost the guards if the server hangs, and a disk may be slow only now and then.
//!
//! The first answer may take only four times as long as the greeting, for the same reason. A client that has just left
//! another one is patient.
//!
//! A server that was never prompt gets as long as one that sends nothing at all: it may drop a request that
//! it does not know, and answer pings. The time for a request begins with the reply before: a server with
//! many requests answers them one by one.

use core::time::Duration;

use zklock_jute::ErrorCode;

/// The least time that a request may take, however short the session timeout.
const LEAST: Duration = Duration::from_millis(500);

/// The parts of the session timeout that a server which was prompt may take for a read, and for a commit.
const READ: u32 = 8;
const COMMIT: u32 = 6;
/// How many times as long as the greeting the first answer may take, or a commit as the one before.
const TIMES: u32 = 4;

/// How promptly one connection's server has answered.
#[derive(Debug)]
pub struct Promptness {
    timeout: Duration,
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

impl OpenRequest {
    /// Returns which of these has been open for longer: the oldest request, or the oldest ping, which counts as a read.
    pub fn oldest(request: Option<Self>, ping: Option<Duration>) -> Option<Self> {
        let ping = ping.map(|since| Self {
            since,
            commits: false,
        });
        request.into_iter().chain(ping).min_by_key(|it| it.since)
    }

    /// Returns what was answered if the server refused the request for this reason: one that it throws away, because it
    /// has too many, waits for no disk.
    #[must_use]
    pub fn refused_for(self, reason: Option<ErrorCode>) -> Self {
        let commits = self.commits && reason != Some(ErrorCode::THROTTLED);
        Self { commits, ..self }
    }
}

impl Promptness {
    /// Creates the state for a connection of a session with this timeout.
    pub fn new(timeout: Duration) -> Self {
        let longest = longest(timeout);
        Self {
            timeout,
            answered_at: None,
            reads: longest,
            commits: longest,
        }
    }

    /// Notes that the greeting took this long.
    pub fn greeted(&mut self, took: Duration) {
        (self.reads, self.commits) = (self.after(took, READ), self.after(took, COMMIT));
    }

    /// Returns how long a request may take after one that took this long: this part of the session timeout at least.
    fn after(&self, took: Duration, part: u32) -> Duration {
        (TIMES * took).clamp(self.least(part), longest(self.timeout))
    }

    fn least(&self, part: u32) -> Duration {
        (self.timeout / part).max(LEAST)
    }

    /// Notes that this request is answered now.
    pub fn answered(&mut self, request: OpenRequest, now: Duration) {
        let took = now.saturating_sub(request.since);
        let commits = self.after(took, COMMIT);
        // A read waits for no disk: a commit takes as long, or longer.
        if request.commits {
            self.commits = commits;
            self.reads = self.reads.min(self.after(took, READ));
        } else {
            let least = self.least(READ);
            // On a link whose round trips take long, a late answer says nothing about the server.
            self.reads = match took <= least / TIMES {
                true => least,
                false => longest(self.timeout),
            };
            self.commits = self.commits.max(commits);
        }
        self.answered_at = Some(now);
    }

    /// Returns when to leave the server, if the `oldest` open request is still unanswered then.
    pub fn leaves_at(&self, oldest: Option<OpenRequest>) -> Option<Duration> {
        let OpenRequest { since, commits } = oldest?;
        let turn = self.answered_at.map_or(since, |at| since.max(at));
        Some(turn + if commits { self.commits } else { self.reads })
    }
}

/// Returns how long a request may take where the server was not prompt.
fn longest(timeout: Duration) -> Duration {
    (timeout * 2 / 3).max(LEAST)
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
        let patient = T * 2 / 3;
        for (request, limit, slow) in [
            (read as fn(u64) -> OpenRequest, T / 8, patient),
            (commit, T / 6, at(5_000)),
        ] {
            let mut server = Promptness::new(T);
            let patience = |server: &Promptness, since| {
                let left = server.leaves_at(Some(request(since)));
                left.map(|left| left - at(since))
            };
            assert_eq!(patience(&server, 300), Some(patient), "no answer yet");
            server.answered(request(0), at(500));
            assert_eq!(server.leaves_at(None), None, "nothing is open");
            assert_eq!(patience(&server, 9_000), Some(limit));
            assert_eq!(patience(&server, 100), Some(at(400) + limit), "in turn");
            server.answered(request(9_000), at(10_250));
            assert_eq!(patience(&server, 10_300), Some(slow), "a slow link");
        }
    }

    #[test]
    fn a_read_that_is_answered_at_once_does_not_tell_how_long_a_commit_takes() {
        let patient = T * 2 / 3;
        let mut server = Promptness::new(T);
        server.greeted(Duration::ZERO);
        for (answered, now, of_read, of_commit) in [
            (read(0), 1, T / 8, T / 6),
            (commit(1), 1_901, T / 8, at(7_600)),
            (read(1_901), 1_902, T / 8, at(7_600)),
            (commit(1_902), 1_903, T / 8, T / 6),
            (read(1_903), 2_903, patient, at(4_000)),
            (read(2_903), 2_904, T / 8, at(4_000)),
            (commit(2_904), 6_000, T / 8, patient),
            (commit(6_000), 6_001, T / 8, T / 6),
        ] {
            server.answered(answered, at(now));
            for (request, patience) in [(read(now), of_read), (commit(now), of_commit)] {
                let left = server.leaves_at(Some(request));
                assert_eq!(left, Some(at(now) + patience), "{request:?}");
            }
        }
    }

    #[test]
    fn a_request_that_is_thrown_away_does_not_tell_how_long_a_commit_takes() {
        for (reason, patience) in [
            (None, T / 6),
            (Some(ErrorCode::NO_NODE), T / 6),
            (Some(ErrorCode::THROTTLED), at(7_600)),
        ] {
            let mut server = Promptness::new(T);
            server.answered(commit(0), at(1_900));
            server.answered(commit(1_900).refused_for(reason), at(1_901));
            let left = server.leaves_at(Some(commit(1_901)));
            assert_eq!(left, Some(at(1_901) + patience), "{reason:?}");
        }
    }

    /// The guard's last proof was sent T/8 before the commit that is not answered, and is good for T/2.
    #[test]
    fn a_server_that_hangs_after_a_commit_that_was_slow_costs_no_guard() {
        for (part, left) in [(24, T / 6), (18, T * 2 / 9)] {
            let mut server = Promptness::new(T);
            server.greeted(Duration::ZERO);
            server.answered(commit(0), T / part);
            server.answered(read(2_000), at(2_001));
            let leaves = server.leaves_at(Some(commit(3_000))).unwrap() - at(3_000);
            assert!(leaves <= left + at(1), "{leaves:?} after T/{part}");
            assert!(T / 8 + leaves < T / 2 - T / 8);
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
