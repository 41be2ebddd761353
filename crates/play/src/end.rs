//! The end of a core.

use core::mem;

use super::Core;
use super::ask::{Loss, Outcome, Time};
use super::asked::Wants;

impl Core {
    /// Ends the core: there will never be a connection again, because the client was closed or its credentials were
    /// refused. Every thread is woken, and every guard is lost. The nodes that exist go with their session.
    pub fn ends(&mut self, now: Time, why: Loss) {
        self.pass(now);
        self.link.ends(why);
        self.lines.clear();
        self.permits.calls.clear();
        for (ticket, asked) in mem::take(&mut self.asks) {
            let outcome = match asked.wants {
                Wants::Lock(_) | Wants::Permit => Outcome::Over(why),
                Wants::Verify(guard) => Outcome::Lost(self.leases.why(guard, &self.link)),
                Wants::Commit(guard) => self.gives_up_commit(ticket, guard),
                Wants::Unlock => self.releases.gives_up(ticket, why),
            };
            self.news.woken(ticket);
            self.wakes.push_back((ticket, outcome));
        }
        self.releases.clear();
        self.alarms.clear();
        self.leases.link_changed();
        self.settle();
    }
}
