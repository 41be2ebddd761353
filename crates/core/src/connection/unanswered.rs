//! The connect requests that servers take and do not answer. Each of them may extend the session.

use core::time::Duration;

/// When such requests were sent; see the module's documentation.
#[derive(Debug, Default)]
pub struct Unanswered {
    /// The first and the last since a server answered, or since a pause that was longer than a session.
    sent: Option<(Duration, Duration)>,
}

impl Unanswered {
    /// Notes that a server has answered a request, or hung up: without a leader it extends no session.
    pub fn end(&mut self) {
        self.sent = None;
    }

    /// Notes a request without an answer. Returns whether such requests may have extended a session that lasts
    /// this long to more than twice its time.
    ///
    /// A session ends in a pause that is longer. If it goes on after one, all servers were down.
    pub fn add(&mut self, sent: Duration, now: Duration, lasts: Duration) -> bool {
        let before = self.sent.filter(|(_, last)| sent <= *last + lasts);
        let first = before.map_or(sent, |(first, _)| first);
        self.sent = Some((first, sent));
        lasts < now.saturating_sub(first)
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
