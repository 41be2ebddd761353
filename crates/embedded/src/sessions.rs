//! The sessions, and when they end.
//!
//! Values in, values out: time is a number of milliseconds that the caller gives. A
//! session ends at a whole tick, as in ZooKeeper, and not before its timeout.

use std::collections::BTreeMap;

use super::watches::ConnectionId;

/// The limits of a session's timeout.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    pub tick_ms: u64,
    pub min_ms: u64,
    pub max_ms: u64,
}

pub(super) struct Sessions {
    timeouts: Timeouts,
    alive: BTreeMap<i64, SessionRecord>,
    latest: i64,
}

// Not `Debug`: the password is a secret.
pub(super) struct SessionRecord {
    pub(super) password: Password,
    pub(super) connection: Option<ConnectionId>,
    pub(super) timeout_ms: u64,
    ends_ms: u64,
}

pub type Password = [u8; 16];

impl Sessions {
    /// Creates a set without sessions, whose numbers will start after `first`.
    pub(super) fn new(timeouts: Timeouts, first: i64) -> Self {
        Self {
            timeouts,
            alive: BTreeMap::new(),
            latest: first,
        }
    }

    /// Begins a session and returns its number.
    pub(super) fn begin(&mut self, asked_ms: i32, password: Password, now_ms: u64) -> i64 {
        let id = self.latest.wrapping_add(1);
        self.latest = id;
        self.insert(id, self.timeouts.negotiate(asked_ms), password, now_ms);
        id
    }

    /// Continues a session of an earlier server. Its client trusts what was granted then, whatever the
    /// limits are now.
    pub(super) fn restore(&mut self, id: i64, granted_ms: i32, password: Password, now_ms: u64) {
        self.latest = self.latest.max(id);
        let timeout_ms = u64::try_from(granted_ms).unwrap_or(0);
        self.insert(id, timeout_ms, password, now_ms);
    }

    fn insert(&mut self, id: i64, timeout_ms: u64, password: Password, now_ms: u64) {
        let session = SessionRecord {
            password,
            connection: None,
            timeout_ms,
            ends_ms: self.timeouts.end(now_ms, timeout_ms),
        };
        self.alive.insert(id, session);
    }

    /// Gives every session its whole timeout again.
    pub(super) fn touch_all(&mut self, now_ms: u64) {
        for session in self.alive.values_mut() {
            session.ends_ms = self.timeouts.end(now_ms, session.timeout_ms);
        }
    }

    /// Resumes a session, if it is alive and the password is right.
    pub(super) fn resume(
        &mut self,
        id: i64,
        password: &[u8],
        asked_ms: i32,
        now_ms: u64,
    ) -> Option<&mut SessionRecord> {
        let session = self.alive.get_mut(&id)?;
        if session.password != password {
            return None;
        }
        session.timeout_ms = self.timeouts.negotiate(asked_ms);
        session.ends_ms = self.timeouts.end(now_ms, session.timeout_ms);
        Some(session)
    }

    pub(super) fn get_mut(&mut self, id: i64) -> Option<&mut SessionRecord> {
        self.alive.get_mut(&id)
    }

    /// Extends a session whose client has sent something; returns `false` if it has ended.
    pub(super) fn touch(&mut self, id: i64, now_ms: u64) -> bool {
        let timeouts = self.timeouts;
        let session = self.alive.get_mut(&id);
        session.is_some_and(|session| {
            let ends_ms = timeouts.end(now_ms, session.timeout_ms);
            session.ends_ms = session.ends_ms.max(ends_ms);
            true
        })
    }

    pub(super) fn end(&mut self, id: i64) -> Option<SessionRecord> {
        self.alive.remove(&id)
    }

    /// Returns the sessions whose timeout has passed.
    pub(super) fn overdue(&self, now_ms: u64) -> Vec<i64> {
        let overdue = |(_, session): &(&i64, &SessionRecord)| session.ends_ms <= now_ms;
        self.alive
            .iter()
            .filter(overdue)
            .map(|(id, _)| *id)
            .collect()
    }

    /// Returns when each session ends, unless its client sends something before.
    pub(super) fn ends(&self) -> impl Iterator<Item = (i64, u64)> {
        self.alive
            .iter()
            .map(|(id, session)| (*id, session.ends_ms))
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = i64> {
        self.alive.keys().copied()
    }
}

impl Timeouts {
    pub fn negotiate(self, asked_ms: i32) -> u64 {
        let asked_ms = u64::try_from(asked_ms).unwrap_or(0);
        asked_ms.min(self.max_ms).max(self.min_ms)
    }

    /// Returns the first tick after the timeout.
    pub fn end(self, now_ms: u64, timeout_ms: u64) -> u64 {
        let tick_ms = self.tick_ms.max(1);
        ((now_ms + timeout_ms) / tick_ms + 1) * tick_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUTS: Timeouts = Timeouts {
        tick_ms: 100,
        min_ms: 200,
        max_ms: 2000,
    };

    fn sessions() -> Sessions {
        Sessions::new(TIMEOUTS, 0x1000)
    }

    #[test]
    fn a_timeout_is_brought_between_the_limits() {
        for (asked, given) in [
            (-1, 200),
            (0, 200),
            (200, 200),
            (777, 777),
            (i32::MAX, 2000),
        ] {
            assert_eq!(TIMEOUTS.negotiate(asked), given, "{asked}");
        }
    }

    #[test]
    fn a_session_ends_at_a_tick_and_not_before_its_timeout() {
        let mut sessions = sessions();
        let id = sessions.begin(250, [1; 16], 1010);
        assert!(sessions.overdue(1260).is_empty());
        assert!(sessions.overdue(1299).is_empty());
        assert_eq!(sessions.overdue(1300), [id]);
    }

    #[test]
    fn a_sign_of_life_puts_the_end_off() {
        let mut sessions = sessions();
        let id = sessions.begin(250, [1; 16], 1010);
        assert!(sessions.touch(id, 1250));
        assert!(sessions.overdue(1300).is_empty());
        assert_eq!(sessions.overdue(1600), [id]);
        sessions.end(id);
        assert!(!sessions.touch(id, 1250));
    }

    #[test]
    fn a_restored_session_has_what_it_was_granted_from_the_end_of_the_start_on() {
        let mut sessions = sessions();
        sessions.restore(0x2000, 5000, [1; 16], 0);
        sessions.touch_all(9000);
        assert!(sessions.overdue(13_999).is_empty());
        assert_eq!(sessions.overdue(14_100), [0x2000]);
        assert_eq!(sessions.begin(250, [1; 16], 9000), 0x2001);
    }

    #[test]
    fn a_session_is_taken_up_again_with_its_password_only() {
        let mut sessions = sessions();
        let id = sessions.begin(250, [1; 16], 0);
        assert!(sessions.resume(id, &[2; 16], 400, 100).is_none());
        assert!(sessions.resume(id, &[], 400, 100).is_none());
        assert!(sessions.resume(id + 1, &[1; 16], 400, 100).is_none());
        assert_eq!(
            sessions.resume(id, &[1; 16], 400, 100).unwrap().timeout_ms,
            400
        );
        assert!(sessions.overdue(599).is_empty());
        assert_eq!(sessions.overdue(600), [id]);
    }
}
