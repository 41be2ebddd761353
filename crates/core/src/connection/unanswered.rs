//! The connect requests that servers take and do not answer, or after which they do not let the client in. Each of
//! them may extend the session.

use core::time::Duration;

/// When such requests were sent; see the module's documentation.
#[derive(Debug, Default)]
pub struct Unanswered {
    /// The first and the last since a server answered, or since a pause that was longer than a session.
    sent: Option<(Duration, Duration)>,
}

impl Unanswered {
    /// Notes that a server has answered a request or let the client in, or that one hung up and not most others are
    /// silent: without a leader they extend no session.
    pub fn end(&mut self) {
        self.sent = None;
    }

    /// Notes a request without an answer. Returns whether such requests may have extended a session that lasts
    /// this long to more than twice its time.
    ///
    /// A session ends in a pause that is longer. If it goes on after one, all servers were down.
    pub fn add(&mut self, sent: Duration, now: Duration, lasts: Duration) -> bool {
        self.goes_on(sent, lasts);
        let first = self.sent.map_or(sent, |(first, _)| first);
        self.sent = Some((first, sent));
        lasts < now.saturating_sub(first)
    }

    /// Notes a request of another kind, which may also have extended the session.
    pub fn goes_on(&mut self, sent: Duration, lasts: Duration) {
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
