//! The turns of threads at a path.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::Core;
use super::ask::{Grant, GuardId, Loss, Outcome, Thread, Ticket};
use super::asked::{Alarm, Wants};
use super::leases::Lease;
use super::line::{Acquires, Line, LineId, Turn, Waiter};
use super::releases::Told;
use zklock_core::acquisition::{Acquisition, Reached, Wire};
use zklock_core::answer::Failure;
use zklock_core::attempt::{OwnNode, Patience};
use zklock_core::path::node_in;
use zklock_core::queue::Contest;
use zklock_core::seen_ahead::SeenAhead;
use zklock_core::skip_listing::LastGrant;
use zklock_core::validity::Stamp;
use zklock_jute::{ErrorCode, Request};

/// How many lines are kept for the next thread that comes, to spare it a listing.
const IDLE_LINES: usize = 1024;

/// The thread that waits for the end of a release, the operations in the release, and the release's note.
type Farewell = (Option<Ticket>, (Vec<Request>, Option<Request>));

impl Core {
    /// Takes in that a thread wants the lock at a path.
    pub(super) fn lock(&mut self, id: &LineId, waiter: Waiter) {
        if let Some(why) = self.link.over {
            return self.wake(waiter.ticket, Outcome::Over(why));
        }
        let line = self.lines.entry(id.clone()).or_default();
        if line.has(waiter.thread) {
            self.wake(waiter.ticket, Outcome::WouldDeadlock);
        } else if line.turn.is_none() {
            self.begin_turn(id, waiter, None);
        } else {
            line.waiting.push_back(waiter);
            self.dismiss_tries(id);
        }
    }

    /// Sends away the threads that do not wait for another one, once that counts as a lock that is taken.
    pub(super) fn dismiss_tries(&mut self, id: &LineId) {
        let taken = self.is_shown_taken(id);
        let Some(line) = self.lines.get_mut(id).filter(|_| taken) else {
            return;
        };
        let tries = |waiter: &&Waiter| waiter.patience == Patience::Tries;
        let dismissed: Vec<_> = line.waiting.iter().filter(tries).copied().collect();
        line.waiting.retain(|waiter| !tries(&waiter));
        for waiter in dismissed {
            self.wake(waiter.ticket, Outcome::GaveUp { taken });
        }
    }

    /// Lets a thread try for the lock. Its create leaves together with the deletion of this number, if
    /// there is one.
    pub(super) fn begin_turn(&mut self, id: &LineId, waiter: Waiter, deletion: Option<u64>) {
        let Some(line) = self.lines.get_mut(id) else {
            return;
        };
        let settings = &self.link.settings;
        let (notes, contest) = (
            settings.notes && id.only.is_none() && id.permits.is_none(),
            Contest {
                dialect: settings.dialect,
                role: waiter.role,
                permits: id.permits.unwrap_or_default() as usize,
            },
        );
        let asks = (contest, waiter.patience);
        let wire = &mut self.link.on(id);
        let (fresh, session) = (wire.fresh_id(), wire.session());
        let mut acquisition = Acquisition::enter(asks, (&id.path, &fresh), line.last, session);
        if notes {
            acquisition.record_seen(SeenAhead::default());
        }
        if id.permits.is_some() {
            let of = (id, waiter.ticket);
            self.permits.begin(of, &mut acquisition, contest.dialect);
        }
        if let Some(deletion) = deletion {
            let next = (id, &mut acquisition);
            self.releases.leave_with(deletion, next, &mut self.link);
        }
        let acquires = Box::new(Acquires {
            ticket: waiter.ticket,
            acquisition,
        });
        line.turn = Some((waiter.thread, Turn::Acquires(acquires)));
        self.advance(id);
    }

    /// Lets the thread that has the turn go on as far as it can.
    pub(super) fn advance(&mut self, id: &LineId) {
        let Some(Acquires {
            ticket,
            acquisition,
        }) = self.lines.get_mut(id).and_then(Line::acquires)
        else {
            return;
        };
        let now = self.link.now;
        let try_in = (&*id.path, acquisition.sharing());
        let lets_go = acquisition
            .tries()
            .then(|| self.releases.awaited_until(try_in, now));
        let until = lets_go.flatten();
        acquisition.note_own_left(until.is_some());
        let reached = acquisition.advance(&mut self.link.on(id));
        let until = until.filter(|_| acquisition.lets_own_go());
        for at in acquisition.rests_until().into_iter().chain(until) {
            self.alarms.insert((at, Alarm::Step(*ticket)));
        }
        for orphan in acquisition.left() {
            self.releases.delete(&id.path, orphan, &mut self.link);
        }
        let (ticket, is_taken) = (*ticket, acquisition.is_taken());
        let blocked = acquisition.blocked().map_or(1, |blocked| blocked.ahead);
        let ahead = is_taken.then(|| (blocked, acquisition.write_took()));
        if id.permits.is_some() && (is_taken || id.only.is_none()) {
            self.limit_if_taken(ticket, ahead);
        }
        if let Some(reached) = reached {
            self.reached(id, reached);
        }
        self.news.stir(id);
    }

    /// Takes in that the thread that had the turn has the lock, or never will.
    fn reached(&mut self, id: &LineId, reached: Reached) {
        let Some(line) = self.lines.get_mut(id) else {
            return;
        };
        let Some((thread, Turn::Acquires(mut acquires))) = line.turn.take() else {
            return;
        };
        for orphan in acquires.acquisition.orphans() {
            self.releases.delete(&id.path, orphan, &mut self.link);
        }
        if id.permits.is_some() {
            let by = (acquires.ticket, &mut acquires.acquisition);
            return self.permit_reached(id, by, reached);
        }
        let outcome = match reached {
            Reached::Held(mine, stamp) => {
                if id.only.is_none() {
                    line.last = LastGrant::new(&mine, line.last);
                }
                return self.granted(id, (thread, &mut acquires), (&mine, stamp));
            }
            Reached::GaveUp => Outcome::GaveUp {
                taken: acquires.acquisition.is_taken(),
            },
            // This node did not stand in the queue before its acquisition began, so it does not end this way.
            Reached::Restart => Outcome::GaveUp { taken: false },
            Reached::Evicted(node) => Outcome::Evicted(node),
            Reached::Foreign(foreign) => Outcome::Foreign(foreign),
            Reached::Refused(refused) => Outcome::Refused(code_of(refused.failure)),
        };
        line.last = None;
        self.wake(acquires.ticket, outcome);
        self.next_turn(id, None);
    }

    /// Gives the thread the lock, on the strength of this proof of its node.
    fn granted(
        &mut self,
        id: &LineId,
        (thread, by): (Thread, &mut Acquires),
        (mine, stamp): (&OwnNode, Stamp),
    ) {
        let (node, token) = (Arc::from(node_in(&id.path, &mine.name)), mine.origin.czxid);
        let lock = (id.clone(), Arc::clone(&node), token);
        let (guard, trust) = self.leases.begin(lock, stamp, &self.link);
        if let Some(lease) = self.leases.get(guard).filter(|_| id.only.is_none()) {
            let by = &mut by.acquisition;
            self.orderly.begin((guard, lease), by, &self.link);
        }
        let has_waited = by.acquisition.is_taken();
        self.counts.grants += 1;
        self.counts.waits += u64::from(has_waited);
        if let Some(line) = self.lines.get_mut(id) {
            line.turn = Some((thread, Turn::Holds { guard, has_waited }));
        }
        let grant = Grant {
            guard,
            node,
            token,
            trust,
        };
        self.wake(by.ticket, Outcome::Held(grant));
    }

    /// Gives the turn to the next thread in line.
    pub(super) fn next_turn(&mut self, id: &LineId, deletion: Option<u64>) {
        let count = self.lines.len();
        let Some(line) = self.lines.get_mut(id) else {
            return;
        };
        line.streak = 0;
        match line.waiting.pop_front() {
            Some(waiter) => self.begin_turn(id, waiter, deletion),
            None => {
                if line.last.is_none() || IDLE_LINES < count {
                    self.lines.remove(id);
                }
                if let Some(deletion) = deletion {
                    self.releases.send(deletion, &mut self.link);
                }
            }
        }
    }

    /// Gives up the lock of a guard: to the next thread of this client, or to the servers.
    pub(super) fn give_back(&mut self, guard: GuardId, told: Option<Ticket>, ops: Vec<Request>) {
        let why = self.leases.why(guard, &self.link);
        let lease = self.leases.end(guard);
        let turn = lease
            .as_ref()
            .and_then(|lease| self.lines.get_mut(&lease.line)?.turn.take());
        let (Some(lease), Some((_, Turn::Holds { has_waited, .. }))) = (lease, turn) else {
            return self.unlocked(told, Outcome::Lost(why));
        };
        let held = lease.is_believed(&self.link);
        if held && ops.is_empty() && self.hand_on(&lease, has_waited) {
            return self.unlocked(told, Outcome::Released);
        }
        if !held {
            self.unlocked(told, Outcome::Lost(why));
        }
        let word = self.orderly.end(&lease);
        if lease.session != self.link.session {
            // The node went with its session.
            return self.next_turn(&lease.line, None);
        }
        let writes = match held {
            true => (ops, word),
            false => Default::default(),
        };
        self.leave(&lease, (told.filter(|_| held), writes), held && has_waited);
    }

    /// Deletes the node of a lock, and writes what is to be written with that. If others may wait, the next
    /// thread's create goes along.
    fn leave(&mut self, lease: &Lease, (told, (ops, word)): Farewell, joins: bool) {
        // The thread waits no longer than the lock could have been trusted.
        if let Some(ticket) = told {
            self.limit(ticket, lease.trust(&self.link).until);
        }
        let writes = !ops.is_empty();
        let told = told.map(|ticket| Told { ticket, writes });
        let ops = match writes {
            true => ops,
            false => word.into_iter().collect(),
        };
        if let Some(line) = self.lines.get_mut(&lease.line).filter(|_| !ops.is_empty()) {
            // If the write is refused, the node is ahead of the next one for a while.
            line.last = None;
        }
        let id = self.releases.begin(&lease.node, ops, told, &self.link);
        if joins {
            return self.next_turn(&lease.line, Some(id));
        }
        self.releases.send(id, &mut self.link);
        self.next_turn(&lease.line, None);
    }

    fn unlocked(&mut self, told: Option<Ticket>, outcome: Outcome) {
        if let Some(ticket) = told {
            self.wake(ticket, outcome);
        }
    }

    /// Hands a lock to the next thread in line, if it may.
    fn hand_on(&mut self, lease: &Lease, has_waited: bool) -> bool {
        let most = self.link.settings.local_handoffs;
        let line = self.lines.get_mut(&lease.line);
        let Some(line) = line.filter(|line| line.streak < most && !line.waiting.is_empty()) else {
            return false;
        };
        let Some((guard, trust)) = self.leases.succeed(lease, &self.link) else {
            return false;
        };
        let Some(waiter) = line.waiting.pop_front() else {
            return false;
        };
        line.streak += 1;
        self.orderly.hand_on(lease, guard);
        self.counts.grants += 1;
        self.counts.handed_on += 1;
        line.turn = Some((waiter.thread, Turn::Holds { guard, has_waited }));
        let grant = Grant {
            guard,
            node: lease.node.clone(),
            token: lease.token,
            trust,
        };
        self.wake(waiter.ticket, Outcome::Held(grant));
        true
    }

    /// Gives up what the thread with this ticket asked for.
    pub(super) fn give_up(&mut self, ticket: Ticket) {
        let Some(asked) = self.asks.get(&ticket) else {
            return;
        };
        let id = match &asked.wants {
            Wants::Lock(line) => line.clone(),
            Wants::Permit => return self.gives_up_permit(ticket),
            Wants::Verify(_) => return self.wake(ticket, Outcome::GaveUp { taken: false }),
            Wants::Commit(guard) => {
                let outcome = self.gives_up_commit(ticket, *guard);
                return self.wake(ticket, outcome);
            }
            Wants::Unlock => {
                let outcome = self.releases.gives_up(ticket, Loss::NotConfirmed);
                return self.wake(ticket, outcome);
            }
        };
        let Some(line) = self.lines.get_mut(&id) else {
            return;
        };
        match line.acquires().filter(|one| one.ticket == ticket) {
            Some(acquires) => {
                acquires.acquisition.cancel(&mut self.link.on(&id));
                self.advance(&id);
            }
            None => {
                line.waiting.retain(|waiter| waiter.ticket != ticket);
                let taken = self.is_shown_taken(&id);
                self.wake(ticket, Outcome::GaveUp { taken });
            }
        }
    }

    /// Returns whether another thread of this client is before the one with this ticket. That one may wake
    /// it without a message from the server, so a thread that reads what the server sends would sleep on.
    pub fn is_in_line(&self, ticket: Ticket) -> bool {
        let Some(Wants::Lock(id)) = self.asks.get(&ticket).map(|asked| &asked.wants) else {
            return false;
        };
        let line = self.lines.get(id);
        line.is_some_and(|line| line.waiting.iter().any(|waiter| waiter.ticket == ticket))
    }

    /// Returns whether a thread that is not first in line may say that the lock is taken. Without a
    /// connection, the one ahead may itself wait for a server.
    pub(super) fn is_shown_taken(&self, id: &LineId) -> bool {
        let held = self.lines.get(id).and_then(Line::guard).is_some();
        held || self.link.is_connected()
    }
}

pub(super) fn code_of(failure: Failure) -> ErrorCode {
    match failure {
        Failure::Refused(code) => code,
        _ => ErrorCode::MARSHALLING_ERROR,
    }
}
