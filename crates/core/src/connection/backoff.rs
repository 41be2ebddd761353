//! How long to pause between two attempts to connect.

use core::mem;
use core::time::Duration;

/// The shortest pause.
///
/// The first pauses are this short: behind a balancer with a dead server, one attempt in two or three
/// fails, and the locks of the client must not wait long for the one that succeeds.
pub const LEAST: Duration = Duration::from_millis(100);
/// The part of the time without a server that a pause takes, so that a client is late by a fraction of the
/// outage, a quarter of it with the jitter.
pub(super) const PART: u32 = 5;
/// The time within which the end of a connection counts as a failure, unless a request was answered on it.
const WORTHWHILE: Duration = Duration::from_millis(500);
/// The longest pause after a short connection on which a request was answered, as a part of the session
/// timeout: the session is alive, and whoever cuts its connections must not end it.
const RESTLESS_PART: u32 = 12;
/// The bounds of the longest pause, which is a third of the session timeout: short enough to keep the
/// session, long enough not to burden the servers.
const CAP: (Duration, Duration) = (Duration::from_millis(1500), Duration::from_millis(2500));

/// The pauses of one client between its attempts to connect.
#[derive(Debug)]
pub(super) struct Backoff {
    cap: Duration,
    restless_cap: Duration,
    /// The end of the last connection that served, or the beginning.
    away_since: Duration,
    /// The end of the last connection that lasted, or the beginning.
    restless_since: Duration,
    /// Whether a session has expired since.
    expired: bool,
}

impl Backoff {
    /// Creates the state of a client that begins now.
    pub(super) fn new(session_timeout: Duration, now: Duration) -> Self {
        Self {
            cap: (session_timeout / 3).clamp(CAP.0, CAP.1),
            restless_cap: (session_timeout / RESTLESS_PART).clamp(LEAST, CAP.1),
            away_since: now,
            restless_since: now,
            expired: false,
        }
    }

    /// Returns the pause after a round in which no server gave a session.
    pub(super) fn after_failure(&self, now: Duration) -> Duration {
        pause(now.saturating_sub(self.away_since), self.cap)
    }

    /// Returns the pause after a connection: none, unless it was short and no `others` are left to try.
    pub(super) fn after_service(
        &mut self,
        service: Service,
        others: bool,
        now: Duration,
    ) -> Duration {
        if service.is_worthwhile() {
            (self.away_since, self.restless_since, self.expired) = (now, now, false);
        }
        if service.is_long() {
            return Duration::ZERO;
        }
        if service.answered {
            self.away_since = now;
        }
        match (others, service.answered) {
            (true, _) => Duration::ZERO,
            (false, true) => pause(now.saturating_sub(self.restless_since), self.restless_cap),
            (false, false) => self.after_failure(now),
        }
    }

    /// Returns the pause after an expiry: none for the first, because the server answers.
    pub(super) fn after_expiry(&mut self, now: Duration) -> Duration {
        match mem::replace(&mut self.expired, true) {
            false => Duration::ZERO,
            true => self.after_failure(now),
        }
    }
}

/// Returns a part of the time that trouble has lasted. The caller makes it a little longer or shorter.
fn pause(trouble: Duration, longest: Duration) -> Duration {
    (trouble / PART).clamp(LEAST, longest)
}

/// The outcome of a connection that a server admitted.
#[derive(Clone, Copy, Debug)]
pub struct Service {
    /// How long the connection lasted.
    pub lived: Duration,
    /// Whether a request was answered, which shows that the session is alive.
    pub answered: bool,
    /// Whether the client left because requests stayed open.
    pub unanswered: bool,
}

impl Service {
    /// Returns whether the connection lasted so long that it was no failure.
    pub fn is_worthwhile(self) -> bool {
        self.is_long() && !self.is_useless()
    }

    /// Returns whether no request was answered on the connection, and the client left for that reason.
    fn is_useless(self) -> bool {
        self.unanswered && !self.answered
    }

    fn is_long(self) -> bool {
        WORTHWHILE <= self.lived
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn short(answered: bool) -> Service {
        Service {
            lived: Duration::from_millis(10),
            answered,
            unanswered: false,
        }
    }

    const MINUTE: Duration = Duration::from_secs(60);

    /// A machine has been up for a while.
    const START: Duration = Duration::from_secs(7);

    fn attempts_in_a_minute(
        timeout: Duration,
        mut pause: impl FnMut(&mut Backoff, Duration) -> Duration,
    ) -> u32 {
        let mut backoff = Backoff::new(timeout, START);
        let (mut attempts, mut now) = (0, START);
        while now < START + MINUTE {
            attempts += 1;
            now = now + pause(&mut backoff, now);
        }
        attempts
    }

    #[test]
    fn a_refusing_server_sees_fewer_than_sixty_attempts_a_minute() {
        for seconds in [1, 4, 10, 40] {
            let timeout = Duration::from_secs(seconds);
            let refused = attempts_in_a_minute(timeout, |backoff, now| backoff.after_failure(now));
            let cut = attempts_in_a_minute(timeout, |backoff, now| {
                backoff.after_service(short(false), false, now)
            });
            let expired = attempts_in_a_minute(timeout, Backoff::after_expiry);
            for attempts in [refused, cut, expired] {
                assert!((15..60).contains(&attempts), "{attempts} with {timeout:?}");
            }
        }
    }

    #[test]
    fn a_client_is_back_a_quarter_of_the_outage_later_or_earlier() {
        for (timeout, tenths) in [4, 20, 60]
            .into_iter()
            .flat_map(|t| (1..600).map(move |o| (t, o)))
        {
            let backoff = Backoff::new(Duration::from_secs(timeout), START);
            let outage = Duration::from_millis(100 * tenths);
            let mut now = START;
            while now < START + outage {
                now = now + backoff.after_failure(now);
            }
            let late = now.saturating_sub(START + outage);
            let most = (outage / 4).max(Duration::from_millis(120));
            assert!(
                late <= most.min(Duration::from_secs(3)),
                "{late:?} after {outage:?}"
            );
        }
    }

    #[test]
    fn a_connection_that_lasted_is_made_again_at_once() {
        let mut backoff = Backoff::new(Duration::from_secs(4), START);
        let now = START + MINUTE;
        assert!(Duration::from_secs(1) < backoff.after_failure(now));
        let steady = Service {
            lived: Duration::from_secs(1),
            ..short(false)
        };
        assert_eq!(backoff.after_service(steady, false, now), Duration::ZERO);
        assert!(backoff.after_failure(now) < Duration::from_millis(200));
    }

    #[test]
    fn a_session_that_expired_in_an_outage_is_replaced_at_once() {
        let mut backoff = Backoff::new(Duration::from_secs(4), START);
        let now = START + MINUTE;
        backoff.after_failure(now);
        assert_eq!(backoff.after_expiry(now), Duration::ZERO);
        assert!(Duration::ZERO < backoff.after_expiry(now));
    }

    /// Each attempt of a session of 4 s that holds a lock may meet the dead one of two servers.
    #[test]
    fn a_dead_server_behind_a_balancer_leaves_many_attempts_before_a_lock_is_lost() {
        for _ in 0..100 {
            let mut backoff = Backoff::new(Duration::from_secs(4), START);
            let (mut attempts, mut now) = (1, START);
            while now < START + Duration::from_secs(2) {
                now = now + backoff.after_service(short(false), false, now);
                attempts += 1;
            }
            assert!(9 <= attempts, "{attempts}");
        }
    }

    #[test]
    fn a_short_connection_costs_no_pause_while_others_are_left_to_try() {
        let mut backoff = Backoff::new(Duration::from_secs(4), START);
        let now = START;
        for answered in [false, true] {
            let short = short(answered);
            assert_eq!(backoff.after_service(short, true, now), Duration::ZERO);
            assert!(Duration::ZERO < backoff.after_service(short, false, now));
        }
    }

    #[test]
    fn who_is_cut_off_again_and_again_fits_many_attempts_into_its_session() {
        for seconds in [4, 10, 40] {
            let timeout = Duration::from_secs(seconds);
            let mut backoff = Backoff::new(timeout, START);
            let now = START + MINUTE;
            let pause = backoff.after_service(short(true), false, now);
            assert!(pause <= timeout / 10, "{pause:?}");
            assert!(
                backoff.after_failure(now + pause) <= Duration::from_millis(120).max(timeout / 20)
            );
            // And a server that answers once a connection is left in peace.
            let cut = attempts_in_a_minute(timeout, |backoff, now| {
                backoff.after_service(short(true), false, now)
            });
            assert!(cut < 240, "{cut} with {timeout:?}");
        }
    }
}
