//! The steps of a traveller, and what happens to it.

use zklock_core::answer::{Answered, Failure};
use zklock_core::attempt::{Action, Attempt, Event, Outcome};
use zklock_core::connection::is_sync;
use zklock_core::dialect::Role;
use zklock_core::multi::{self, Multi};
use zklock_core::path::name;
use zklock_core::predecessor_mark::CLEAN;
use zklock_core::{downgrade, permit_attempt, predecessor_mark};
use zklock_jute::{ErrorCode, Reply, Request};

use super::{Detour, Goal, Journey, Last, Plan, RawGuard, Seen, Stage, Step, Watch};
use crate::client::{ends_by, listed, request_of};
use crate::property::Property;

impl Journey {
    pub(crate) fn go(&mut self, step: Step) {
        self.pay(step);
        match step {
            Step::Run(i) => self.run(i),
            Step::Wake(i) | Step::WakeAfterReconnect(i) => self.wake(i),
            Step::Learn(i) => self.learn(i),
            Step::Release(i) => self.end(i),
            Step::Part(i, nth) => self.part(i, nth),
            Step::Hear(i) => self.hear(i),
            Step::Reap(session) => self.reap(session),
            Step::LoseRequest(i) => self.reconnect(i, false),
            Step::LoseReply(i) => self.reconnect(i, true),
            Step::LosePart(i, nth) => {
                self.delete(i, nth);
            }
            Step::Cancel(i) => self.cancel(i),
            Step::Expire(i) => self.expire(i),
            Step::Crash(i) => self.crash(i),
            Step::Panic(i) => self.panic(i),
            Step::Evict(dir, nth) => self.evict(dir, nth),
        }
    }

    fn pay(&mut self, step: Step) {
        let budget = &mut self.budget;
        match step {
            Step::LoseRequest(_) | Step::LoseReply(_) | Step::LosePart(..) => budget.faults -= 1,
            Step::Cancel(_) => budget.cancels -= 1,
            Step::Expire(_) => budget.expiries -= 1,
            Step::Crash(_) => budget.crashes -= 1,
            Step::Panic(_) => budget.panics -= 1,
            Step::Evict(..) => budget.evictions -= 1,
            _ => {}
        }
    }

    fn run(&mut self, i: usize) {
        match self.travellers[i].stage {
            Stage::Queue(dir) => {
                let event = self.serve(i, dir);
                self.report(i, event);
            }
            Stage::Ask => self.ask(i),
            Stage::Await | Stage::Inside | Stage::Done => unreachable!("it asks for nothing"),
        }
    }

    /// Carries out the attempt's action.
    fn serve(&mut self, i: usize, dir: usize) -> Event {
        let children = |journey: &Self| journey.dirs[dir].names(None).unwrap_or_default();
        match self.travellers[i].action().expect("it queues") {
            Action::Create(prefix) => {
                if self.detour == Detour::MarksInTheQueue {
                    self.data = b"{\"held\":0}".to_vec();
                }
                let (name, origin) = self.create(i, dir, &prefix);
                Event::Created(name, Some(origin))
            }
            Action::Sync | Action::CatchUp => Event::Synced,
            Action::List => Event::Children(children(self)),
            Action::ListAndWatch(false) if self.detour == Detour::DoesNotLook => Event::NoNode,
            Action::ListAndWatch(_) => {
                if self.detour != Detour::DoesNotWatchTheLeases {
                    self.travellers[i].watch = Some(Watch::Children(dir));
                }
                let mut names = children(self);
                if self.detour == Detour::CountsWithoutItself {
                    let own = self.travellers[i].ids;
                    let other = |n: &str| {
                        let node = self.dirs[dir].find(n).expect("it is listed");
                        node.maker.client != i || node.maker.attempt != own
                    };
                    let first = names.iter().position(other);
                    let all = names.iter().enumerate();
                    let rest = all.filter(|(at, _)| Some(*at) != first);
                    names = rest.map(|(_, name)| name).collect();
                }
                Event::Children(names)
            }
            Action::Inspect(name) => match self.dirs[dir].find(&name) {
                Some(node) => Event::Inspected(node.origin),
                None => Event::NoNode,
            },
            // A client that may not read the node beyond waits for the nearest only.
            Action::Watch(blocked, mine) => {
                let event = self.watch(i, dir, blocked.nearest);
                if self.dirs[dir].find(&mine).is_none() {
                    return Event::Evicted;
                }
                self.travellers[i].guard = Some(mine);
                event
            }
            Action::Prove(name) => match self.dirs[dir].find(&name) {
                Some(_) => Event::Proved,
                None => Event::NoNode,
            },
            action => unreachable!("nobody serves {action:?}"),
        }
    }

    fn watch(&mut self, i: usize, dir: usize, nearest: String) -> Event {
        if self.dirs[dir].find(&nearest).is_none() {
            return Event::NoNode;
        }
        self.travellers[i].watch = Some(Watch::Node(dir, nearest));
        Event::Watching
    }

    pub(crate) fn report(&mut self, i: usize, event: Event) {
        let traveller = &mut self.travellers[i];
        let Stage::Queue(dir) = traveller.stage else {
            unreachable!("it queues")
        };
        let id = traveller.id(i);
        let attempt = traveller.attempt.as_mut().expect("it queues");
        let created = matches!(event, Event::Created(..));
        attempt.handle(event);
        // No create is late here, so the name may stay, and there are fewer worlds.
        if attempt.action() == Action::Rename {
            attempt.rename(&id);
            attempt.orphans();
        }
        let action = attempt.action();
        let only_looks = matches!(&traveller.plan, Plan::Multi(multi) if looks(multi));
        if only_looks && matches!(action, Action::Create(_)) {
            traveller.attempt = None;
            return self.tell_multi(i, multi::Event::Free);
        }
        let Action::Finish(outcome) = action else {
            if created && dir == 1 && self.detour == Detour::LetsTheNextInTooEarly {
                self.travellers[i].release(Some(0));
            }
            return;
        };
        for orphan in attempt.orphans() {
            traveller.part_from(dir, orphan);
        }
        traveller.attempt = None;
        traveller.stop_watching();
        match outcome {
            Outcome::Held(mine) => self.arrive(i, dir, mine),
            outcome => self.turned_away(i, dir, outcome),
        }
    }

    fn part(&mut self, i: usize, nth: usize) {
        let parting = &self.travellers[i].partings[nth];
        let answered = match request_of(&parting.deletion) {
            request if is_sync(&request) => Err(Failure::Refused(ErrorCode::NO_NODE)),
            Request::GetChildren { .. } => {
                let names = self.dirs[parting.dir].names(None);
                listed(Some(names.unwrap_or_default()))
            }
            _ if self.delete(i, nth) => Ok(Reply::Nothing),
            _ => return,
        };
        self.answer(i, nth, answered);
    }

    /// Deletes a node and writes the data that are due, in one transaction. Returns whether nothing
    /// is left to do.
    fn delete(&mut self, i: usize, nth: usize) -> bool {
        let parting = &mut self.travellers[i].partings[nth];
        let Request::Delete { path, .. } = request_of(&parting.deletion) else {
            return true;
        };
        let name = name(&path);
        let (dir, closing, found) = (parting.dir, parting.closing.clone(), parting.found);
        let there = self.dirs[dir].find(name).is_some();
        self.remove(dir, name);
        if let Some(found) = found.filter(|_| there) {
            self.last = found;
        }
        let Some(closing) = closing else {
            return true;
        };
        match self.detour {
            Detour::ClearsAfterwards if there => return false,
            Detour::LeavesAMarkBehind if found.is_some() => {}
            Detour::ClearsAfterwards | Detour::ClearsWithoutDeleting => self.write(closing),
            _ if there => self.write(closing),
            _ => {}
        }
        true
    }

    fn write(&mut self, (closing, version): (Vec<u8>, i32)) {
        let any = matches!(
            self.detour,
            Detour::ClearsAfterwards | Detour::ClearsWithoutDeleting
        );
        // Then the node is deleted alone.
        if version != self.version && !any {
            return;
        }
        if self.last == Last::Open && closing == CLEAN {
            self.last = Last::Released;
        }
        self.data = closing;
        self.version += 1;
    }

    fn answer(&mut self, i: usize, nth: usize, answered: Answered) {
        let partings = &mut self.travellers[i].partings;
        if ends_by(&mut partings[nth].deletion, answered) {
            partings.remove(nth);
        }
    }

    fn remove(&mut self, dir: usize, name: &str) {
        if self.dirs[dir].remove(name).is_some() {
            self.fire(dir, Some(name));
        }
    }

    /// Tells the clients that watch that a node was deleted or created.
    pub(crate) fn fire(&mut self, dir: usize, deleted: Option<&str>) {
        let mut woken = 0;
        for traveller in &mut self.travellers {
            let at = match traveller.stage {
                Stage::Queue(at) => Some(at),
                Stage::Await => Some(1),
                _ => None,
            };
            if at == Some(dir) && deleted.is_some() && traveller.guard.as_deref() == deleted {
                traveller.guard = None;
                traveller.events.push(Seen::Other);
                continue;
            }
            let seen = match &traveller.watch {
                Some(Watch::Children(at)) if *at == dir => Seen::Other,
                Some(Watch::Node(at, node)) if *at == dir && Some(node.as_str()) == deleted => {
                    Seen::Deleted
                }
                _ => continue,
            };
            traveller.watch = None;
            // A client that has another event to read is awake, and a client that was evicted in
            // its sleep does not count.
            let own = traveller.attempt.as_ref().and_then(Attempt::node);
            let queues = own.is_none_or(|own| self.dirs[dir].find(own).is_some());
            let alone = traveller.contest(dir).role != Role::Read;
            let sleeps = traveller.events.is_empty() && alone && queues && !traveller.line_lost;
            traveller.events.push(seen);
            woken += usize::from(deleted.is_some() && sleeps);
        }
        if 1 < woken {
            self.blame(Property::Herd, format!("{woken} are woken at once"));
        }
    }

    fn wake(&mut self, i: usize) {
        let traveller = &mut self.travellers[i];
        let seen = match traveller.reconnected {
            true => None,
            false => traveller.events.first().copied(),
        };
        traveller.stop_watching();
        if traveller.stage == Stage::Await {
            return self.tell_permit(i, permit_attempt::Event::Woken);
        }
        self.report(
            i,
            match seen {
                Some(Seen::Deleted) => Event::Deleted,
                _ => Event::Woken,
            },
        );
    }

    fn hear(&mut self, i: usize) {
        let traveller = &mut self.travellers[i];
        traveller.session += 1;
        traveller.expired = false;
        traveller.stop_watching();
        self.tell_of_session(i);
        // The nodes that they were to delete have gone with the session.
        self.travellers[i].partings.clear();
    }

    fn tell_of_session(&mut self, i: usize) {
        let traveller = &mut self.travellers[i];
        match (traveller.stage, traveller.goal) {
            (_, Goal::All { .. }) if self.detour == Detour::TakesOldPlaces => {
                if traveller.attempt.is_some() {
                    self.report(i, Event::Woken);
                }
            }
            (Stage::Queue(_), _) => self.report(i, Event::NewSession),
            (Stage::Ask | Stage::Await, _) => self.tell_plan_of_session(i),
            (Stage::Inside, _) => self.end(i),
            (Stage::Done, _) => {}
        }
    }

    fn tell_plan_of_session(&mut self, i: usize) {
        match &self.travellers[i].plan {
            Plan::Attempt => {}
            Plan::Multi(_) => self.tell_multi(i, multi::Event::NewSession),
            Plan::Permit(_) => self.tell_permit(i, permit_attempt::Event::Lost),
            Plan::Downgrade(_) => self.tell_downgrade(i, downgrade::Event::Lost),
            Plan::Mark(_) => self.tell_mark(i, predecessor_mark::Event::NoNode),
        }
    }

    fn reap(&mut self, session: i64) {
        for dir in 0..2 {
            let nodes = self.dirs[dir].nodes.iter();
            let theirs = nodes.filter(|node| node.origin.owner == session);
            let names: Vec<_> = theirs.map(|node| node.name.clone()).collect();
            names.iter().for_each(|name| self.remove(dir, name));
        }
    }

    /// Breaks the connection; an open request was carried out, or not.
    fn reconnect(&mut self, i: usize, carried_out: bool) {
        let asleep = self.travellers[i].is_asleep();
        if let Stage::Queue(dir) = self.travellers[i].stage
            && carried_out
        {
            let _ = self.serve(i, dir);
        }
        match self.travellers[i].stage {
            Stage::Queue(_) | Stage::Await => {
                self.travellers[i].lose_watches();
                self.travellers[i].reconnected = asleep;
                if !asleep {
                    self.report(i, Event::ReplyLost);
                }
            }
            Stage::Ask => self.ask_in_vain(i, carried_out),
            Stage::Inside | Stage::Done => {}
        }
    }

    fn cancel(&mut self, i: usize) {
        if let Some(mut attempt) = self.travellers[i].attempt.take() {
            attempt.handle(Event::Cancel);
            let Stage::Queue(dir) = self.travellers[i].stage else {
                unreachable!("it queues")
            };
            for orphan in attempt.orphans() {
                self.travellers[i].part_from(dir, orphan);
            }
        }
        match &self.travellers[i].plan {
            Plan::Attempt => self.end(i),
            Plan::Multi(_) => self.tell_multi(i, multi::Event::Cancel),
            Plan::Permit(_) => self.tell_permit(i, permit_attempt::Event::TimeOut),
            Plan::Downgrade(_) => self.tell_downgrade(i, downgrade::Event::Cancel),
            Plan::Mark(_) => self.tell_mark(i, predecessor_mark::Event::Cancel),
        }
    }

    /// Tells a client that waits for a permit that its place in the line is lost.
    fn learn(&mut self, i: usize) {
        match self.travellers[i].stage {
            Stage::Queue(_) => self.report(i, Event::Cancel),
            _ => self.tell_permit(i, permit_attempt::Event::Lost),
        }
    }

    /// Ends a critical section by a panic, of which the next holder must hear.
    fn panic(&mut self, i: usize) {
        self.die(i);
        let closing = match &self.travellers[i].plan {
            Plan::Mark(mark) if self.detour != Detour::ClearsInAPanic => {
                Some(mark.closing(true, false).map(super::owned))
            }
            _ => None,
        };
        if let Some(closing) = closing {
            self.end(i);
            for parting in &mut self.travellers[i].partings {
                parting.closing.clone_from(&closing);
            }
            return;
        }
        self.end(i);
    }

    /// Deletes the node. Its holder hears of that now or from the next proof, and does not count as
    /// a holder from now on.
    fn evict(&mut self, dir: usize, nth: usize) {
        let node = self.dirs[dir].nodes[nth].clone();
        let (i, name) = (node.maker.client, node.name);
        self.doubt(i);
        let holds = |raw: &RawGuard| raw.dir == dir && raw.mine.name == name;
        if self.travellers[i].holds.iter().any(holds) {
            self.die(i);
            let traveller = &mut self.travellers[i];
            let held = traveller.holds.iter_mut().filter(|raw| holds(raw));
            held.for_each(|raw| raw.trusted = false);
            traveller.line_lost |= dir == 0;
        }
        self.travellers[i].evicted = true;
        self.remove(dir, &name);
    }

    fn expire(&mut self, i: usize) {
        self.die(i);
        self.doubt(i);
        let traveller = &mut self.travellers[i];
        traveller.expired = true;
        traveller.line_lost = true;
        traveller.watch = None;
        traveller.guard = None;
        traveller
            .holds
            .iter_mut()
            .for_each(|raw| raw.trusted = false);
    }

    fn crash(&mut self, i: usize) {
        if !self.travellers[i].expired {
            self.die(i);
            self.doubt(i);
        }
        let traveller = &mut self.travellers[i];
        traveller.leave();
        traveller.crashed = true;
        traveller.partings.clear();
        traveller.stop_watching();
        traveller.stage = Stage::Done;
    }

    /// Makes the holder's end unknown: a transaction on its way may come too late.
    fn doubt(&mut self, i: usize) {
        let traveller = &self.travellers[i];
        let mut partings = traveller.partings.iter();
        let closes = partings.any(|parting| parting.closing.is_some());
        if (closes || traveller.found.is_some()) && self.last == Last::Released {
            self.last = Last::Open;
        }
    }

    /// Ends a holder that does not release.
    fn die(&mut self, i: usize) {
        let traveller = &self.travellers[i];
        let held = traveller.holds.iter().all(|raw| raw.trusted);
        if held && (traveller.goal, traveller.stage) == (Goal::Tracked, Stage::Inside) {
            self.last = Last::Died;
        }
    }
}

/// Returns whether the client's attempt ends before it creates a node.
fn looks(multi: &Multi) -> bool {
    matches!(multi.action(), multi::Action::Look(_))
}
