//! Sessions that end, containers that are left empty, and nodes whose time is over.

use std::time::{Duration, Instant};

use super::entry::{Act, Entry};
use super::state::{ServerState, epoch_ms};

impl ServerState {
    /// Ends what is overdue. Returns how long until the next end.
    pub(super) fn tick(&mut self) -> Duration {
        for session in self.sessions.overdue(self.now_ms()) {
            self.expire(session);
        }
        let now = Instant::now();
        let (over, lingering) = self.lingering.drain(..).partition(|(end, _)| *end <= now);
        self.lingering = lingering;
        for (_, session) in over {
            self.remove_nodes_of(session);
        }
        if self.lag.as_ref().is_some_and(|lag| lag.ends <= now) {
            self.catch_up();
        }
        if now >= self.next_container_check {
            self.next_container_check = now + self.config.container_check;
            self.remove_what_is_over();
        }
        self.until_next_tick(now)
    }

    /// Ends a session before its timeout. Returns `false` if there is no such session.
    pub(super) fn expire(&mut self, session: i64) -> bool {
        let Some(ended) = self.sessions.end(session) else {
            return false;
        };
        if self.faults.linger.is_zero() {
            self.remove_nodes_of(session);
        } else {
            let end = Instant::now() + self.faults.linger;
            self.lingering.push((end, session));
        }
        if let Some(connection) = ended.connection {
            self.cut(connection);
        }
        true
    }

    pub(super) fn remove_nodes_of(&mut self, session: i64) {
        let at = self.advance();
        let act = Act::End;
        self.keep(Entry { at, session, act });
        let changes = self.view.tree.end_session(session, at);
        self.announce(&changes);
    }

    fn remove_what_is_over(&mut self) {
        for path in self.view.tree.over(epoch_ms()) {
            let at = self.advance();
            let change = self.view.tree.remove_over(&path, at);
            let (session, act) = (0, Act::Remove { path });
            self.keep(Entry { at, session, act });
            self.announce(change.ok().as_slice());
        }
    }

    fn until_next_tick(&self, now: Instant) -> Duration {
        let tick_ms = self.config.timeouts().tick_ms;
        let into_tick = self.started.elapsed().as_millis() % u128::from(tick_ms);
        let rest = tick_ms - u64::try_from(into_tick).unwrap_or(0);
        let ends = self.lingering.iter().map(|(end, _)| *end);
        let next_end = ends
            .chain([self.next_container_check])
            .chain(self.lag.as_ref().map(|lag| lag.ends))
            .min();
        let until_end = next_end.map(|end| end.saturating_duration_since(now));
        until_end
            .unwrap_or(Duration::MAX)
            .min(Duration::from_millis(rest))
    }
}
