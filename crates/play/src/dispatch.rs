//! Dispatches inputs to the parts of a core that they are for.
//!
//! Every input is a tick first: what is due by then is done before anything else is taken in.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;

use super::Core;
use super::ask::{GuardId, Outcome, Ticket, Time};
use super::asked::{Alarm, Asked, Wants};
use super::calls::{Call, Creation, Purpose};
use super::line::{Line, LineId};
use zklock_core::acquisition::CallId;
use zklock_core::answer::{Answered, BREATHER};
use zklock_core::delete_and_create;
use zklock_jute::EventKind;

impl Core {
    /// Does what is due by now. A lock whose time is over is lost before anything else is taken in.
    pub(super) fn pass(&mut self, now: Time) {
        self.link.now = self.link.now.max(now);
        self.leases.look_if_due(&mut self.link);
        while let Some((at, alarm)) = self.alarms.first().copied() {
            if self.link.now < at {
                break;
            }
            self.alarms.pop_first();
            self.ring(alarm);
        }
        if self.releases.next.is_some_and(|next| next <= self.link.now) {
            self.releases.send_due(&mut self.link);
        }
    }

    fn ring(&mut self, alarm: Alarm) {
        match alarm {
            Alarm::Limit(ticket) => self.give_up(ticket),
            Alarm::Step(ticket) => match self.asks.get(&ticket).map(|asked| &asked.wants) {
                Some(Wants::Lock(line)) => self.advance(&line.clone()),
                Some(Wants::Permit) => self.resume(ticket),
                _ => {}
            },
            Alarm::Unsent => self.send_unsent(),
        }
    }

    /// Sends what threads have asked for and what could not be sent yet.
    pub(super) fn send_unsent(&mut self) {
        for (ticket, guard) in mem::take(&mut self.leases.unsent) {
            self.verify(ticket, guard);
        }
        for commit in mem::take(&mut self.unsent) {
            self.commit(commit);
        }
    }

    /// Sends again soon what the server has thrown away. What broke with a connection waits for the next one.
    pub(super) fn send_again(&mut self) {
        if self.link.is_connected() {
            self.alarms
                .insert((self.link.now + BREATHER, Alarm::Unsent));
        }
    }

    /// Sends what the turn has made due.
    pub(super) fn settle(&mut self) {
        self.leases.look_if_due(&mut self.link);
        if !self.permits.calls.is_empty() {
            self.look_at_places();
            self.leases.look_if_due(&mut self.link);
        }
        self.orderly.look(&mut self.link);
        self.tell_news();
    }

    /// Notes that a thread waits for something.
    pub(super) fn note(&mut self, ticket: Ticket, wants: Wants, until: Option<Time>) {
        self.asks.insert(ticket, Asked { wants, until: None });
        if let Some(until) = until {
            self.limit(ticket, until);
        }
    }

    /// Makes the thread with this ticket give up at this time.
    pub(super) fn limit(&mut self, ticket: Ticket, until: Time) {
        self.limit_anew(ticket, Some(until));
    }

    /// Makes the thread with this ticket give up at this time instead.
    pub(super) fn limit_anew(&mut self, ticket: Ticket, until: Option<Time>) {
        let Some(asked) = self.asks.get_mut(&ticket) else {
            return;
        };
        if let Some(before) = asked.until.take() {
            self.alarms.remove(&(before, Alarm::Limit(ticket)));
        }
        asked.until = until;
        if let Some(until) = until {
            self.alarms.insert((until, Alarm::Limit(ticket)));
        }
    }

    /// Wakes a thread, unless it has given up.
    pub(super) fn wake(&mut self, ticket: Ticket, outcome: Outcome) {
        let Some(asked) = self.asks.remove(&ticket) else {
            return;
        };
        if let Some(until) = asked.until {
            self.alarms.remove(&(until, Alarm::Limit(ticket)));
        }
        self.news.woken(ticket);
        if let Wants::Lock(line) = &asked.wants {
            self.news.stir(line);
        }
        self.wakes.push_back((ticket, outcome));
    }

    /// Returns the lines at a path.
    fn lines_at(&self, path: &Arc<str>) -> Vec<LineId> {
        let first = LineId {
            path: path.clone(),
            only: None,
            permits: None,
        };
        let lines = self.lines.range(first..).map(|(id, _)| id);
        lines.take_while(|id| id.path == *path).cloned().collect()
    }

    /// Returns all lines.
    pub(super) fn line_ids(&self) -> Vec<LineId> {
        self.lines.keys().cloned().collect()
    }

    /// Hands an answer, or the lack of one, to the part that it is for.
    pub(super) fn answered(&mut self, call: Call, answered: Answered) {
        match call.purpose {
            Purpose::Step(line) => self.step_answered(&line, call.id, answered),
            Purpose::Create(creation) => self.created(&creation, call.id, answered),
            Purpose::Deletion(id) => self.deleted(id, answered),
            Purpose::Both(id, creation) => {
                let (deletion, create) = delete_and_create::parts(answered);
                self.deleted(id, deletion);
                self.created(&creation, call.id, create);
            }
            Purpose::Check(check) => self.leases.checked(&check, &answered, &mut self.link),
            Purpose::Commit(commit, stamp) => self.committed(commit, stamp, answered),
            Purpose::Note(node) => {
                let told = self.orderly.was_read(node, &answered);
                self.leases.notices.extend(told);
            }
            Purpose::Watch(id) => self.leases.was_read(id, &answered, &mut self.link),
            Purpose::Permit(ticket, number) => self.permit_answered((ticket, number), answered),
            Purpose::Verify(ticket, guard, stamp) => {
                let asked = (ticket, guard, stamp);
                match self.leases.verified(asked, &answered, &mut self.link) {
                    Some(true) => self.wake(ticket, Outcome::Verified),
                    Some(false) => self.not_verified(ticket, guard),
                    None => self.send_again(),
                }
            }
        }
    }

    fn step_answered(&mut self, line: &LineId, id: CallId, answered: Answered) {
        if let Some(acquisition) = self.lines.get_mut(line).and_then(Line::acquisition) {
            acquisition.answered(id, answered, &mut self.link.on(line));
            self.advance(line);
        }
    }

    fn created(&mut self, creation: &Creation, id: CallId, answered: Answered) {
        match creation.is_wanted {
            true => self.step_answered(&creation.line, id, answered),
            false => self.releases.created(creation, answered, &mut self.link),
        }
    }

    fn deleted(&mut self, id: u64, answered: Answered) {
        let Some(done) = self.releases.answered(id, answered, &mut self.link) else {
            return;
        };
        if let Some((ticket, outcome)) = done.told {
            self.wake(ticket, outcome);
        }
        // A try may have waited for this deletion.
        if let Some(dir) = done.left_in {
            self.resume_calls_in(&dir);
            for line in self.lines_at(&dir.into()) {
                self.advance(&line);
            }
        }
    }

    /// Takes in that something happened to a node in this directory, or to the directory.
    pub(super) fn happened(&mut self, dir: &str, (name, path): (&str, &str), kind: EventKind) {
        if !self.permits.calls.is_empty() && !name.is_empty() {
            self.happened_to_permit(path);
        }
        for id in self.lines_at(&dir.into()) {
            let Some(line) = self.lines.get_mut(&id) else {
                continue;
            };
            if let Some(guard) = line.guard() {
                let node = self.leases.get(guard).map(|lease| lease.node.clone());
                if node.as_deref() == Some(path) {
                    self.leases.happened(guard, kind, &mut self.link);
                }
            } else if let Some(acquisition) = line.acquisition() {
                acquisition.happened(name, kind);
                self.advance(&id);
            }
        }
    }

    /// Notes which session there is now, if any. A thread that waits for a release in another one is woken.
    pub(super) fn serves(&mut self, session: i64) {
        for (ticket, outcome) in self.releases.serves(session) {
            self.wake(ticket, outcome);
        }
    }

    /// Asks the quorum to confirm a lock for a thread that wants to know.
    pub(super) fn verify(&mut self, ticket: Ticket, guard: GuardId) {
        if !self.leases.verify(ticket, guard, &mut self.link) {
            self.not_verified(ticket, guard);
        }
    }

    fn not_verified(&mut self, ticket: Ticket, guard: GuardId) {
        let why = self.leases.why(guard, &self.link);
        self.wake(ticket, Outcome::Lost(why));
    }
}
