//! What a traveller does, and what happens to it.

use zklock::recipe::attempt::{Action, Event, Origin, Orphan, Outcome};
use zklock::recipe::cleanup;
use zklock::recipe::dialect::Role;
use zklock::recipe::name::NodeName;

use super::{Detour, Goal, Journey, Last, Seen, Stage, Step, Watch};
use crate::property::Property;

impl Journey {
    pub(crate) fn go(&mut self, step: Step) {
        self.pay(step);
        match step {
            Step::Run(i) => self.run(i),
            Step::Wake(i) | Step::WakeAfterReconnect(i) => self.wake(i),
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
            Stage::Place(_) => self.place(i),
            Stage::Prove => self.prove(i),
            Stage::Downgrade => self.downgrade(i),
            Stage::Look => {
                self.travellers[i].told = self.mark;
                self.travellers[i].stage = Stage::Mark;
            }
            Stage::Mark => match self.set_mark(i) {
                true => self.go_inside(i),
                false => self.end(i),
            },
            Stage::Inside | Stage::Done => unreachable!("it asks for nothing"),
        }
    }

    /// Carries out the attempt's action.
    fn serve(&mut self, i: usize, dir: usize) -> Event {
        let children = |journey: &Self| journey.dirs[dir].names(None).unwrap_or_default();
        match self.travellers[i].action().expect("it queues") {
            Action::Create(prefix) => {
                if self.detour == Detour::MarksInTheQueue {
                    self.mark = Some(0);
                }
                let (name, origin) = self.create(i, dir, &prefix);
                Event::Created(name, Some(origin))
            }
            Action::Sync => Event::Synced,
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
            Action::Watch(blocked) => self.watch(i, dir, blocked.nearest),
            // Who may not read the node beyond waits for the nearest alone.
            Action::WatchAround(blocked, mine) => {
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

    pub(crate) fn create(&mut self, i: usize, dir: usize, prefix: &str) -> (String, Origin) {
        let (maker, session) = (self.maker(i, dir), self.travellers[i].session);
        let contest = self.travellers[i].contest(dir);
        if !contest.dialect.is_numbered(contest.role) {
            let origin = self.dirs[dir].plant(prefix, session, maker);
            self.fire(dir, None);
            return (prefix.to_owned(), origin);
        }
        let made = self.dirs[dir].create(prefix, session, maker);
        self.fire(dir, None);
        made.expect("the directory is there")
    }

    fn report(&mut self, i: usize, event: Event) {
        let traveller = &mut self.travellers[i];
        let Stage::Queue(dir) = traveller.stage else {
            unreachable!("it queues")
        };
        let attempt = traveller.attempt.as_mut().expect("it queues");
        let created = matches!(event, Event::Created(..));
        attempt.handle(event);
        let action = attempt.action();
        let Action::Finish(outcome) = action else {
            if created && dir == 1 && self.detour == Detour::LetsTheNextInTooEarly {
                self.travellers[i].release_line();
            }
            return;
        };
        for orphan in attempt.orphans() {
            traveller.part_from(dir, orphan, false);
        }
        traveller.attempt = None;
        traveller.stop_watching();
        match outcome {
            Outcome::Held(mine) => self.arrive(i, dir, mine),
            Outcome::Gone => self.end(i),
            Outcome::Restart => self.restart(i, dir),
            Outcome::Evicted(name) if self.dirs[dir].find(&name).is_none() => self.end(i),
            outcome => {
                self.blame(
                    Property::Truth,
                    format!("nobody has done that: {outcome:?}"),
                );
                self.end(i);
            }
        }
    }

    fn part(&mut self, i: usize, nth: usize) {
        let parting = &self.travellers[i].partings[nth];
        let event = match parting.cleanup.action() {
            cleanup::Action::Sync => cleanup::Event::Synced,
            cleanup::Action::List => {
                let names = self.dirs[parting.dir].names(None);
                cleanup::Event::Children(names.unwrap_or_default())
            }
            _ if self.delete(i, nth) => cleanup::Event::Gone,
            _ => return,
        };
        self.answer(i, nth, event);
    }

    /// Deletes a node and clears the mark, if that is due, in one transaction. Returns
    /// whether that is all.
    fn delete(&mut self, i: usize, nth: usize) -> bool {
        let parting = &mut self.travellers[i].partings[nth];
        let cleanup::Action::Delete(name) = parting.cleanup.action() else {
            return true;
        };
        let (dir, clears) = (parting.dir, parting.clears);
        let there = self.dirs[dir].find(&name).is_some();
        self.remove(dir, &name);
        match self.detour {
            Detour::ClearsAfterwards if clears && there => return false,
            Detour::ClearsAfterwards | Detour::ClearsWithoutDeleting if clears => self.clear(),
            _ if clears && there => self.clear(),
            _ => {}
        }
        true
    }

    fn clear(&mut self) {
        self.mark = None;
        if self.last == Last::Open {
            self.last = Last::Released;
        }
    }

    fn answer(&mut self, i: usize, nth: usize, event: cleanup::Event) {
        let partings = &mut self.travellers[i].partings;
        partings[nth].cleanup.handle(event);
        if partings[nth].cleanup.action() == cleanup::Action::Done {
            partings.remove(nth);
        }
    }

    fn remove(&mut self, dir: usize, name: &str) {
        if self.dirs[dir].remove(name).is_some() {
            self.fire(dir, Some(name));
        }
    }

    /// Tells who watches: a node was deleted, or one was created.
    fn fire(&mut self, dir: usize, deleted: Option<&str>) {
        let mut woken = 0;
        for traveller in &mut self.travellers {
            let at = match traveller.stage {
                Stage::Queue(at) => Some(at),
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
            // Who has something else to hear of is awake.
            let sleeps = traveller.events.is_empty() && traveller.contest(dir).role != Role::Read;
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
        // What they were to delete has gone with the session.
        traveller.partings.clear();
        traveller.stop_watching();
        match traveller.stage {
            Stage::Queue(_) => self.report(i, Event::NewSession),
            Stage::Place(_) => {
                traveller.leave();
                self.begin(i);
            }
            Stage::Prove => {
                self.travellers[i].leave();
                self.begin(i);
            }
            Stage::Downgrade | Stage::Look | Stage::Mark | Stage::Inside => self.end(i),
            Stage::Done => {}
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

    /// The connection breaks; an open request was carried out, or not.
    fn reconnect(&mut self, i: usize, carried_out: bool) {
        let stage = self.travellers[i].stage;
        let asleep = self.travellers[i].is_asleep();
        match stage {
            Stage::Queue(dir) => {
                if carried_out {
                    let _ = self.serve(i, dir);
                }
                self.travellers[i].lose_watches();
                self.travellers[i].reconnected = asleep;
                if !asleep {
                    self.report(i, Event::ReplyLost);
                }
            }
            Stage::Place(_) => {
                for dir in 0..2 {
                    let mine = self.stand(i, dir);
                    let number = NodeName::parse(&mine.name).map(|name| name.sequence);
                    let digits = format!("{:010}", number.unwrap_or(0));
                    let prefix = mine.name.trim_end_matches(&digits).to_owned();
                    self.travellers[i].part_from(dir, Orphan::Prefix(prefix), false);
                }
                self.travellers[i].leave();
                self.begin(i);
            }
            Stage::Downgrade => {
                self.make_reader(i);
            }
            Stage::Mark => {
                self.set_mark(i);
            }
            _ => {}
        }
    }

    fn cancel(&mut self, i: usize) {
        match self.travellers[i].stage {
            Stage::Queue(_) => self.report(i, Event::Cancel),
            _ => self.end(i),
        }
    }

    /// Who holds the node hears of it, now or from the next proof; it is outside the promise
    /// from here on.
    fn evict(&mut self, dir: usize, nth: usize) {
        let name = self.dirs[dir].nodes[nth].name.clone();
        for i in 0..self.travellers.len() {
            let holds = self.travellers[i].holds.iter_mut();
            let held = holds.filter(|raw| raw.dir == dir && raw.mine.name == name);
            if held.map(|raw| raw.trusted = false).count() > 0 {
                self.die(i);
            }
        }
        self.remove(dir, &name);
    }

    fn expire(&mut self, i: usize) {
        self.die(i);
        let traveller = &mut self.travellers[i];
        traveller.expired = true;
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
        }
        let traveller = &mut self.travellers[i];
        traveller.leave();
        traveller.crashed = true;
        traveller.partings.clear();
        traveller.stop_watching();
        traveller.stage = Stage::Done;
    }

    /// A holder goes without releasing.
    fn die(&mut self, i: usize) {
        let traveller = &self.travellers[i];
        if (traveller.goal, traveller.stage) == (Goal::Tracked, Stage::Inside) {
            self.last = Last::Died;
        }
    }
}
