//! How long no server has served, and when a session is given up that goes on without its client.
//!
//! Each connect request may extend the session, also one that a server takes and does not answer, or after which it
//! does not let the client in. The session's locks would stay taken for as long as that goes on.

use core::mem;
use core::time::Duration;

use super::rotation::Refusal;

/// How much longer than its timeout a session may last, because servers count in ticks.
const MARGIN: Duration = Duration::from_secs(1);

/// What a client knows of its session since a server last served.
#[derive(Debug, Default)]
pub struct Outage {
    served_at: Duration,
    /// The session timeout that this server granted.
    pub granted: Duration,
    /// Whether a server has hung up in the last round.
    hung_up: bool,
    /// When the last connect request was sent.
    asked_at: Duration,
    unanswered: Unanswered,
    /// The requests after which the client was not let in.
    not_let_in: Unanswered,
}

impl Outage {
    /// Creates what a client knows when it begins; the session that it continues, if it does, was `granted` that long.
    pub fn since(served_at: Duration, granted: Duration) -> Self {
        Self {
            served_at,
            granted,
            ..Self::default()
        }
    }

    /// Returns for how long no server has served.
    pub fn away(&self, now: Duration) -> Duration {
        now.saturating_sub(self.served_at)
    }

    /// Notes that a server has let the client in and served until now, and has granted this session timeout.
    pub fn served_until(&mut self, now: Duration, granted: Duration) {
        (self.served_at, self.granted) = (now, granted);
        self.not_let_in.end();
    }

    /// Returns whether the session should have ended by now.
    pub fn is_overdue(&self, now: Duration) -> bool {
        self.away(now) > self.lasts()
    }

    /// Notes what a server did instead of serving.
    pub fn refused(&mut self, refusal: Refusal) {
        self.hung_up |= refusal == Refusal::HungUp;
    }

    /// Returns whether the last round suggests that no server will ever resume the session. This is asked before each
    /// round.
    ///
    /// A server whose data is older than what the client has seen closes the connection without a
    /// reason. If that server lags behind, another one resumes the session; if the ensemble was set
    /// up anew or restored from a backup, none ever does. A server without a quorum closes the
    /// connection too, as does a proxy whose server is down; once that passes, the session
    /// continues. The client therefore asks for a new session only at a server that has just closed
    /// the connection.
    pub fn may_be_forgotten(&mut self, now: Duration) -> bool {
        mem::take(&mut self.hung_up) && self.is_overdue(now)
    }

    /// Notes that a connect request was sent, what the server did instead of greeting, if it did not, and whether most
    /// servers have been silent. Returns whether to give the session up: servers have taken such requests for longer
    /// than it lasts, and let the client in at none of them, and may go on like that.
    pub fn asked(
        &mut self,
        sent: Duration,
        refusal: Option<Refusal>,
        most_are_silent: bool,
        now: Duration,
    ) -> bool {
        self.asked_at = sent;
        match refusal {
            Some(Refusal::Silent) => {
                self.not_let_in.goes_on(sent, self.lasts());
                return self.unanswered.add(sent, now, self.lasts());
            }
            // The others may have a leader, and extend the session, whatever this one says.
            Some(Refusal::HungUp) if most_are_silent => {}
            _ => self.unanswered.end(),
        }
        false
    }

    /// Notes that a server has extended the session, and not let the client in. Returns whether to give the session
    /// up, because that goes on. Right after an outage of all servers, the next attempt may be luckier.
    pub fn was_not_let_in(&mut self, now: Duration) -> bool {
        self.not_let_in.add(self.asked_at, now, self.lasts())
    }

    /// Returns how long a session lasts from its extension on, at most.
    fn lasts(&self) -> Duration {
        self.granted + MARGIN
    }
}

/// When connect requests were sent that servers took and did not answer, or after which they did not let the client in.
#[derive(Debug, Default)]
struct Unanswered {
    /// The first and the last since a server answered, or since a pause that was longer than a session.
    sent: Option<(Duration, Duration)>,
}

impl Unanswered {
    /// Notes that a server has answered a request or let the client in, or that one hung up and not most others are
    /// silent: without a leader they extend no session.
    fn end(&mut self) {
        self.sent = None;
    }

    /// Notes a request without an answer. Returns whether such requests may have extended a session that lasts
    /// this long to more than twice its time.
    ///
    /// A session ends in a pause that is longer. If it goes on after one, all servers were down.
    fn add(&mut self, sent: Duration, now: Duration, lasts: Duration) -> bool {
        self.goes_on(sent, lasts);
        let first = self.sent.map_or(sent, |(first, _)| first);
        self.sent = Some((first, sent));
        lasts < now.saturating_sub(first)
    }

    /// Notes a request of another kind, which may also have extended the session.
    fn goes_on(&mut self, sent: Duration, lasts: Duration) {
        let before = self.sent.filter(|(_, last)| sent <= *last + lasts);
        self.sent = before.map(|(first, _)| (first, sent));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LASTS: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(1_000 + seconds)
    }

    const SILENT: Option<Refusal> = Some(Refusal::Silent);
    const HUNG_UP: Option<Refusal> = Some(Refusal::HungUp);

    /// A client that was served until then, whose session lasts for [`LASTS`].
    fn served() -> Outage {
        Outage::since(at(0), LASTS - MARGIN)
    }

    #[test]
    fn a_session_that_no_server_lets_in_is_given_up_unless_most_have_no_leader() {
        for most in [true, false] {
            let mut outage = served();
            assert!(!outage.asked(at(0), SILENT, most, at(1)));
            assert!(!outage.asked(at(9), SILENT, most, at(10)));
            assert!(!outage.asked(at(10), HUNG_UP, most, at(10)));
            assert_eq!(outage.asked(at(11), SILENT, most, at(12)), most);
            assert!(!outage.asked(at(13), None, most, at(14)), "it has greeted");
            assert!(!outage.asked(at(15), SILENT, most, at(16)));
        }
    }

    #[test]
    fn a_session_that_servers_greet_and_do_not_let_in_is_given_up_until_one_serves() {
        let mut outage = served();
        for (sent, gives_up) in [(0, false), (9, false), (12, true)] {
            assert!(!outage.asked(at(sent), None, false, at(sent)));
            assert_eq!(outage.was_not_let_in(at(sent)), gives_up);
        }
        outage.served_until(at(13), LASTS - MARGIN);
        assert!(!outage.was_not_let_in(at(14)));
    }

    #[test]
    fn a_session_may_be_forgotten_when_it_is_overdue_and_a_server_has_just_hung_up() {
        let mut outage = served();
        outage.refused(Refusal::Silent);
        assert!(!outage.may_be_forgotten(at(11)), "none has hung up");
        for (now, is_overdue) in [(10, false), (11, true)] {
            outage.refused(Refusal::HungUp);
            assert_eq!(outage.is_overdue(at(now)), is_overdue);
            assert_eq!(outage.may_be_forgotten(at(now)), is_overdue);
            assert!(!outage.may_be_forgotten(at(11)), "not in the last round");
        }
    }

    #[test]
    fn requests_of_another_kind_bridge_a_pause_and_begin_nothing() {
        let mut unanswered = Unanswered::default();
        unanswered.goes_on(at(0), LASTS);
        assert!(!unanswered.add(at(9), at(11), LASTS));
        for sent in [18, 27] {
            unanswered.goes_on(at(sent), LASTS);
        }
        assert!(unanswered.add(at(36), at(37), LASTS));
        unanswered.goes_on(at(47), LASTS);
        assert!(!unanswered.add(at(48), at(49), LASTS));
    }

    #[test]
    fn requests_extend_a_session_only_if_none_comes_after_its_end() {
        let mut unanswered = Unanswered::default();
        let mut add = |sent| unanswered.add(at(sent), at(sent + 1), LASTS);
        let extended = [0, 5, 9, 10, 30, 39, 40].map(&mut add);
        assert_eq!(extended, [false, false, false, true, false, false, true]);
        assert!(add(45));
        unanswered.end();
        assert!(!unanswered.add(at(46), at(47), LASTS));
    }
}
