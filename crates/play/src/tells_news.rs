//! Threads that want to know which contenders they wait for.

use core::mem;

use super::Core;
use super::ask::{Ahead, Ticket, Time};
use super::asked::Wants;

impl Core {
    /// Tells the thread with this ticket which contenders it waits for, from now on until it is woken.
    pub fn follow(&mut self, now: Time, ticket: Ticket) {
        self.pass(now);
        if let Some(Wants::Lock(line)) = self.asks.get(&ticket).map(|asked| &asked.wants) {
            let line = line.clone();
            self.news.told.insert(ticket, None);
            self.news.stir(&line);
        }
        self.settle();
    }

    /// Returns the next thread to tell which contenders it waits for.
    pub fn next_news(&mut self) -> Option<(Ticket, Ahead)> {
        self.news.out.pop_front()
    }

    /// Tells the threads whose place has changed in this turn.
    pub(super) fn tell_news(&mut self) {
        if self.news.stirred.is_empty() {
            return;
        }
        let mut stirred = mem::take(&mut self.news.stirred);
        for id in stirred.drain(..) {
            if let Some(line) = self.lines.get(&id) {
                line.tell(&mut self.news);
            }
        }
        self.news.stirred = stirred;
    }
}
