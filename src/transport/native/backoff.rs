//! How long to pause between two rounds of attempts to connect.

use std::time::Duration;

/// The first pauses; each further one is twice as long.
const FIRST: Duration = Duration::from_millis(100);
/// How many pauses are that short if there is a session. Behind a balancer with a dead server, an
/// attempt in two or three fails, and its locks must not wait long for the one that does not.
const SHORT: u32 = 6;
/// A connection that lasted for less counts as a failure.
const WORTHWHILE: Duration = Duration::from_millis(500);
/// The longest pause is a third of the session timeout, within these bounds: short enough
/// to keep the session, long enough not to burden the servers.
const CAP: (Duration, Duration) = (Duration::from_millis(1300), Duration::from_millis(2500));

#[derive(Debug)]
pub(super) struct Backoff {
    cap: Duration,
    failures: u32,
}

impl Backoff {
    pub(super) fn new(session_timeout: Duration) -> Self {
        Self {
            cap: (session_timeout / 3).clamp(CAP.0, CAP.1),
            failures: 0,
        }
    }

    /// The pause after a round in which no server gave a session.
    pub(super) fn after_failure(&mut self, session: bool) -> Duration {
        let short = if session { SHORT } else { 1 };
        self.failures += 1;
        let doubled = self.failures.saturating_sub(short).min(10);
        let pause = FIRST.saturating_mul(1 << doubled);
        // The jitter keeps clients that lost the same server from coming back in step.
        pause.min(self.cap).mul_f64(0.8 + 0.4 * fastrand::f64())
    }

    /// The pause after a connection: none, unless it was short and no `others` are left to try.
    pub(super) fn after_service(&mut self, lived: Duration, others: bool) -> Duration {
        match is_worthwhile(lived) {
            true => self.failures = 0,
            false if others => {}
            false => return self.after_failure(true),
        }
        Duration::ZERO
    }

    /// The pause after an expiry: none for the first, because the server answers.
    pub(super) fn after_expiry(&mut self) -> Duration {
        match self.failures {
            0 => {
                self.failures = 1;
                Duration::ZERO
            }
            _ => self.after_failure(false),
        }
    }
}

/// Whether a connection lasted so long that it was no failure.
pub(super) fn is_worthwhile(lived: Duration) -> bool {
    WORTHWHILE <= lived
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn attempts_in_a_minute(
        timeout: Duration,
        mut pause: impl FnMut(&mut Backoff) -> Duration,
    ) -> u32 {
        let mut backoff = Backoff::new(timeout);
        let (mut attempts, mut time) = (0, Duration::ZERO);
        while time < MINUTE {
            attempts += 1;
            time += pause(&mut backoff);
        }
        attempts
    }

    #[test]
    fn a_refusing_server_sees_fewer_than_sixty_attempts_a_minute() {
        for seconds in [1, 4, 10, 40] {
            let timeout = Duration::from_secs(seconds);
            let refused = attempts_in_a_minute(timeout, |backoff| backoff.after_failure(true));
            let cut = attempts_in_a_minute(timeout, |backoff| {
                backoff.after_service(Duration::ZERO, false)
            });
            let expired = attempts_in_a_minute(timeout, Backoff::after_expiry);
            for attempts in [refused, cut, expired] {
                assert!((15..60).contains(&attempts), "{attempts} with {timeout:?}");
            }
        }
    }

    #[test]
    fn a_connection_that_lasted_is_made_again_at_once() {
        let mut backoff = Backoff::new(Duration::from_secs(4));
        for _ in 0..9 {
            backoff.after_failure(true);
        }
        let lived = Duration::from_secs(1);
        assert_eq!(backoff.after_service(lived, false), Duration::ZERO);
        assert!(backoff.after_failure(true) < Duration::from_millis(200));
    }

    /// Each attempt of a session of 4 s that holds a lock may meet the dead one of two servers.
    #[test]
    fn a_dead_server_behind_a_balancer_leaves_many_attempts_before_a_lock_is_lost() {
        for _ in 0..100 {
            let mut backoff = Backoff::new(Duration::from_secs(4));
            let (mut attempts, mut time) = (1, Duration::ZERO);
            while time < Duration::from_secs(2) {
                time += backoff.after_service(Duration::from_millis(10), false);
                attempts += 1;
            }
            assert!(9 <= attempts, "{attempts}");
        }
    }

    #[test]
    fn a_short_connection_costs_no_pause_while_others_are_left_to_try() {
        let mut backoff = Backoff::new(Duration::from_secs(4));
        assert_eq!(backoff.after_service(Duration::ZERO, true), Duration::ZERO);
        assert!(Duration::ZERO < backoff.after_service(Duration::ZERO, false));
    }
}
