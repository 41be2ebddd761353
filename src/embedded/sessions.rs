//! The sessions: what they were promised, and when they end.
//!
//! Values in, values out: time is a number of milliseconds that the caller gives. A
//! session ends at a whole tick, as in ZooKeeper, never before its timeout is over.

use std::collections::BTreeMap;

use super::watches::Watcher;

/// How long a session may live without a sign of life.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    pub(super) tick_ms: u64,
    pub(super) min_ms: u64,
    pub(super) max_ms: u64,
}

pub(super) struct Sessions {
    timeouts: Timeouts,
    alive: BTreeMap<i64, Session>,
    latest: i64,
}

// Whoever knows the password owns the session, so it is not shown.
pub(super) struct Session {
    pub(super) password: Password,
    pub(super) connection: Option<Watcher>,
    pub(super) timeout_ms: u64,
    ends_ms: u64,
}

pub(super) type Password = [u8; 16];

impl Sessions {
    /// `first` is where the numbers of the sessions start.
    pub(super) fn new(timeouts: Timeouts, first: i64) -> Self {
        Self {
            timeouts,
            alive: BTreeMap::new(),
            latest: first,
        }
    }

    /// Begins a session and returns its number.
    pub(super) fn begin(&mut self, asked_ms: i32, password: Password, now_ms: u64) -> i64 {
        self.latest = self.latest.wrapping_add(1);
        let timeout_ms = self.timeouts.negotiate(asked_ms);
        let session = Session {
            password,
            connection: None,
            timeout_ms,
            ends_ms: self.timeouts.end(now_ms, timeout_ms),
        };
        self.alive.insert(self.latest, session);
        self.latest
    }

    /// Takes a session up again, if it is alive and the password is right.
    pub(super) fn resume(
        &mut self,
        id: i64,
        password: &[u8],
        asked_ms: i32,
        now_ms: u64,
    ) -> Option<&mut Session> {
        let session = self.alive.get_mut(&id)?;
        if session.password != password {
            return None;
        }
        session.timeout_ms = self.timeouts.negotiate(asked_ms);
        session.ends_ms = self.timeouts.end(now_ms, session.timeout_ms);
        Some(session)
    }

    pub(super) fn get_mut(&mut self, id: i64) -> Option<&mut Session> {
        self.alive.get_mut(&id)
    }

    /// Notes a sign of life; `false` if it comes too late.
    pub(super) fn touch(&mut self, id: i64, now_ms: u64) -> bool {
        let timeouts = self.timeouts;
        let session = self.alive.get_mut(&id);
        session.is_some_and(|session| {
            let ends_ms = timeouts.end(now_ms, session.timeout_ms);
            session.ends_ms = session.ends_ms.max(ends_ms);
            true
        })
    }

    pub(super) fn end(&mut self, id: i64) -> Option<Session> {
        self.alive.remove(&id)
    }

    /// The sessions whose time is over.
    pub(super) fn overdue(&self, now_ms: u64) -> Vec<i64> {
        let overdue = |(_, session): &(&i64, &Session)| session.ends_ms <= now_ms;
        self.alive
            .iter()
            .filter(overdue)
            .map(|(id, _)| *id)
            .collect()
    }

    /// When each session ends, unless it gives a sign of life before.
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
    fn negotiate(self, asked_ms: i32) -> u64 {
        let asked_ms = u64::try_from(asked_ms).unwrap_or(0);
        asked_ms.min(self.max_ms).max(self.min_ms)
    }

    /// The first tick after the timeout is over.
    fn end(self, now_ms: u64, timeout_ms: u64) -> u64 {
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
