//! When each session ends, as its leader has it.
//!
//! As in ZooKeeper's `SessionTrackerImpl`, a session ends at the first tick of the leader's clock
//! after its timeout, counted from when it was last touched. A touch brings the timeout of the
//! connection it came from, so it may move the end to an earlier time.

use std::collections::BTreeMap;

use zklock_embedded::parts::Timeouts;
use zklock_jute::ErrorCode;

#[derive(Debug)]
pub(super) struct SessionTracker {
    timeouts: Timeouts,
    sessions: BTreeMap<i64, Tracked>,
}

#[derive(Debug)]
struct Tracked {
    ends_ms: u64,
    /// The server that may change something for it, once one has.
    owner: Option<usize>,
    /// Its end has come, and the leader will close it, although it answers until then and a touch
    /// seems to succeed (`ExpiryQueue.poll`).
    is_due: bool,
    /// Its end is in the log, even if not committed yet.
    is_closing: bool,
}

impl SessionTracker {
    /// Tracks the sessions of an earlier leader, as if each had been touched now.
    pub(super) fn new(timeouts: Timeouts, known: &BTreeMap<i64, u64>, now_ms: u64) -> Self {
        let mut tracker = Self {
            timeouts,
            sessions: BTreeMap::new(),
        };
        for (session, timeout_ms) in known {
            tracker.track(*session, *timeout_ms, now_ms);
        }
        tracker
    }

    pub(super) fn track(&mut self, session: i64, timeout_ms: u64, now_ms: u64) {
        let ends_ms = self.timeouts.end(now_ms, timeout_ms);
        let tracked = self.sessions.entry(session).or_insert(Tracked {
            ends_ms,
            owner: None,
            is_due: false,
            is_closing: false,
        });
        tracked.ends_ms = ends_ms;
    }

    /// Returns `false` if the session has ended or is about to.
    pub(super) fn touch(&mut self, session: i64, timeout_ms: u64, now_ms: u64) -> bool {
        let ends_ms = self.timeouts.end(now_ms, timeout_ms);
        let tracked = self.sessions.get_mut(&session);
        let Some(tracked) = tracked.filter(|tracked| !tracked.is_closing) else {
            return false;
        };
        tracked.ends_ms = ends_ms;
        true
    }

    /// Fails if the session may not change anything through this server. The first server to
    /// ask becomes its owner.
    pub(super) fn check(&mut self, session: i64, server: usize) -> Result<(), ErrorCode> {
        let tracked = self.sessions.get_mut(&session);
        let tracked = tracked.filter(|tracked| !tracked.is_closing);
        let tracked = tracked.ok_or(ErrorCode::SESSION_EXPIRED)?;
        if *tracked.owner.get_or_insert(server) == server {
            Ok(())
        } else {
            Err(ErrorCode::SESSION_MOVED)
        }
    }

    pub(super) fn set_owner(&mut self, session: i64, server: usize) {
        if let Some(tracked) = self.sessions.get_mut(&session) {
            tracked.owner = Some(server);
        }
    }

    /// Notes that the end of the session is in the log; returns `false` if it was before.
    pub(super) fn close(&mut self, session: i64) -> bool {
        let tracked = self.sessions.get_mut(&session);
        tracked.is_some_and(|tracked| !std::mem::replace(&mut tracked.is_closing, true))
    }

    pub(super) fn remove(&mut self, session: i64) {
        self.sessions.remove(&session);
    }

    /// Takes out the sessions whose end has come, and that are not closing.
    pub(super) fn poll(&mut self, now_ms: u64) -> Vec<i64> {
        let mut due = Vec::new();
        for (session, tracked) in &mut self.sessions {
            if !tracked.is_closing && !tracked.is_due && tracked.ends_ms <= now_ms {
                tracked.is_due = true;
                due.push(*session);
            }
        }
        due
    }

    /// Whether the session was taken out, and is not closing.
    pub(super) fn is_due(&self, session: i64) -> bool {
        let tracked = self.sessions.get(&session);
        tracked.is_some_and(|tracked| tracked.is_due && !tracked.is_closing)
    }
}
