//! What a traveller does, and what happens to it.

use std::mem;

use zklock::protocol::attempt::{Action, Attempt, Born, Event, Leftover, Mine, Outcome, Patience};
use zklock::protocol::dialect::{Dialect, Role};
use zklock::protocol::farewell;
use zklock::protocol::name::{NodeName, prefix};

use super::{Detour, Goal, Hold, Journey, Last, Seen, Stage, Step, Watch};
use crate::directory::Maker;
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
        }
    }

    fn pay(&mut self, step: Step) {
        let budget = &mut self.budget;
        match step {
            Step::LoseRequest(_) | Step::LoseReply(_) | Step::LosePart(..) => budget.faults -= 1,
            Step::Cancel(_) => budget.cancels -= 1,
            Step::Expire(_) => budget.expiries -= 1,
            Step::Crash(_) => budget.crashes -= 1,
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
            Stage::Downgrade => self.downgrade(i),
            Stage::Look => {
                self.travellers[i].told = self.mark;
                self.travellers[i].stage = Stage::Mark;
            }
            Stage::Mark => {
                self.set_mark(i);
                self.go_inside(i);
            }
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
                let (name, born) = self.create(i, dir, &prefix);
                Event::Created(name, Some(born))
            }
            Action::Sync => Event::Synced,
            Action::List => Event::Children(children(self)),
            Action::ListAndWatch => {
                if self.detour != Detour::DoesNotWatchTheLeases {
                    self.travellers[i].watch = Some(Watch::Children(dir));
                }
                let mut names = children(self);
                if self.detour == Detour::CountsWithoutItself {
                    let own = self.travellers[i].ids;
                    let other = |n: &String| {
                        let node = self.dirs[dir].find(n).expect("it is listed");
                        node.maker.client != i || node.maker.attempt != own
                    };
                    if let Some(at) = names.iter().position(other) {
                        names.remove(at);
                    }
                }
                Event::Children(names)
            }
            Action::Inspect(name) => match self.dirs[dir].find(&name) {
                Some(node) => Event::Inspected(node.born),
                None => Event::NoNode,
            },
            Action::Watch(behind) => self.watch(i, dir, behind.nearest),
            Action::WatchBoth(behind, mine) => {
                self.travellers[i].guard = Some(mine);
                self.watch(i, dir, behind.nearest)
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

    fn create(&mut self, i: usize, dir: usize, prefix: &str) -> (String, Born) {
        let (maker, session) = (self.maker(i, dir), self.travellers[i].session);
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
        for leftover in attempt.leftovers() {
            traveller.part_from(dir, leftover, false);
        }
        traveller.attempt = None;
        traveller.stop_watching();
        match outcome {
            Outcome::Held(mine) => self.arrive(i, dir, mine),
            Outcome::Gone => self.end(i),
            Outcome::Restart => self.restart(i, dir),
            outcome => {
                self.blame(
                    Property::Truth,
                    format!("nobody has done that: {outcome:?}"),
                );
                self.end(i);
            }
        }
    }

    /// It is at the head of this queue.
    fn arrive(&mut self, i: usize, dir: usize, mine: Mine) {
        let traveller = &mut self.travellers[i];
        let hold = |mine| Hold {
            dir,
            mine,
            trusted: true,
        };
        match (traveller.goal, dir) {
            (Goal::Lock(_), _) => {
                traveller.holds.push(hold(mine));
                self.go_inside(i);
            }
            (Goal::Permit(_), 0) => {
                traveller.holds.push(hold(mine));
                self.enter(i, 1);
            }
            (Goal::Permit(_), _) => {
                // The line's node is in the same session, and so still there.
                traveller.release_line();
                traveller.holds.push(hold(mine));
                self.go_inside(i);
            }
            (Goal::Downgrade, _) => {
                traveller.holds.push(hold(mine));
                traveller.stage = Stage::Downgrade;
                if self.detour == Detour::DeletesTheWriterFirst {
                    let name = traveller.holds[0].mine.name.clone();
                    traveller.part_from(0, Leftover::Node(name), false);
                }
            }
            (Goal::All, 0) => self.queue_up(i, 1),
            (Goal::All, _) => {
                let mines = mem::take(&mut traveller.standing).into_iter().enumerate();
                traveller.holds = mines
                    .map(|(dir, mine)| Hold {
                        dir,
                        mine,
                        trusted: true,
                    })
                    .collect();
                self.go_inside(i);
            }
            (Goal::Tracked, _) => {
                traveller.holds.push(hold(mine));
                traveller.stage = Stage::Look;
                if self.detour == Detour::MarksInTheQueue {
                    traveller.told = None;
                    self.go_inside(i);
                }
            }
        }
    }

    fn restart(&mut self, i: usize, dir: usize) {
        match (self.travellers[i].goal, dir) {
            (Goal::Permit(_), 1) if self.detour == Detour::RestartsTheLeaseAlone => {
                self.enter(i, 1);
            }
            // What it has reached with its other nodes is lost with the session.
            (Goal::All | Goal::Permit(_), _) => {
                self.travellers[i].leave();
                self.begin(i);
            }
            _ => self.enter(i, dir),
        }
    }

    /// Creates a node in every queue, at once.
    fn place(&mut self, i: usize) {
        if self.detour == Detour::PlacesOneByOne {
            return self.place_one(i);
        }
        for dir in 0..2 {
            let mine = self.stand(i, dir);
            self.travellers[i].standing.push(mine);
        }
        self.queue_up(i, 0);
    }

    /// The wrong way: one after the other, every other client in another order.
    fn place_one(&mut self, i: usize) {
        let Stage::Place(count) = self.travellers[i].stage else {
            return;
        };
        let dir = (count + i) % 2;
        let mine = self.stand(i, dir);
        let standing = &mut self.travellers[i].standing;
        standing.insert(if dir == 0 { 0 } else { standing.len() }, mine);
        match count {
            0 => self.travellers[i].stage = Stage::Place(1),
            _ => self.queue_up(i, 0),
        }
    }

    fn stand(&mut self, i: usize, dir: usize) -> Mine {
        let id = self.travellers[i].id(i);
        let prefix = prefix(Dialect::Curator, Role::Exclusive, &id);
        let (name, born) = self.create(i, dir, &prefix);
        Mine { name, born }
    }

    fn queue_up(&mut self, i: usize, dir: usize) {
        let traveller = &mut self.travellers[i];
        let mine = traveller.standing[dir].clone();
        let attempt = Attempt::queued(traveller.contest(dir), mine, Patience::Waits);
        traveller.attempt = Some(attempt);
        traveller.stage = Stage::Queue(dir);
    }

    /// Creates the reader's node, then leaves the writer's.
    fn downgrade(&mut self, i: usize) {
        let mine = self.make_reader(i);
        let traveller = &mut self.travellers[i];
        if self.detour != Detour::DeletesTheWriterFirst {
            traveller.leave();
        }
        traveller.holds = vec![Hold {
            dir: 0,
            mine,
            trusted: true,
        }];
        self.go_inside(i);
    }

    fn make_reader(&mut self, i: usize) -> Mine {
        let traveller = &self.travellers[i];
        let writer = NodeName::parse(&traveller.holds[0].mine.name).expect("it is a contender");
        let prefix = prefix(Dialect::Curator, Role::Read, &traveller.id(i));
        let name = format!("{prefix}{:010}", writer.sequence);
        let maker = Maker {
            role: Role::Read,
            ..self.maker(i, 0)
        };
        let session = traveller.session;
        if let Some(node) = self.dirs[0].find(&name) {
            return Mine {
                name,
                born: node.born,
            };
        }
        let (name, born) = match self.detour {
            Detour::TakesANewNumber => self.dirs[0]
                .create(&prefix, session, maker)
                .expect("it is there"),
            _ => {
                let born = self.dirs[0].plant(&name, session, maker);
                (name, born)
            }
        };
        Mine { name, born }
    }

    /// The transaction that sets the mark if the node is there.
    fn set_mark(&mut self, i: usize) {
        let mine = &self.travellers[i].holds[0].mine;
        if self.dirs[0].find(&mine.name).is_some() {
            self.mark = Some(mine.born.czxid);
            if self.last == Last::Released {
                self.last = Last::Open;
            }
        }
    }

    fn go_inside(&mut self, i: usize) {
        self.travellers[i].stage = Stage::Inside;
        if self.travellers[i].goal == Goal::Tracked {
            self.check_told(i);
            self.last = Last::Open;
        }
    }

    /// The caller has got its result, or has done with it.
    fn end(&mut self, i: usize) {
        let traveller = &mut self.travellers[i];
        traveller.leave();
        traveller.stop_watching();
        traveller.stage = Stage::Done;
    }

    fn part(&mut self, i: usize, nth: usize) {
        let parting = &self.travellers[i].partings[nth];
        let event = match parting.farewell.action() {
            farewell::Action::Sync => farewell::Event::Synced,
            farewell::Action::List => {
                let names = self.dirs[parting.dir].names(None);
                farewell::Event::Children(names.unwrap_or_default())
            }
            _ if self.delete(i, nth) => farewell::Event::Gone,
            _ => return,
        };
        self.answer(i, nth, event);
    }

    /// Deletes a node and clears the mark, if that is due, in one transaction. Returns
    /// whether that is all.
    fn delete(&mut self, i: usize, nth: usize) -> bool {
        let parting = &mut self.travellers[i].partings[nth];
        let farewell::Action::Delete(name) = parting.farewell.action() else {
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

    fn answer(&mut self, i: usize, nth: usize, event: farewell::Event) {
        let partings = &mut self.travellers[i].partings;
        partings[nth].farewell.handle(event);
        if partings[nth].farewell.action() == farewell::Action::Done {
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
            let seen = match &traveller.watch {
                Some(Watch::Children(at)) if *at == dir => Seen::Other,
                Some(Watch::Node(at, node)) if *at == dir && Some(node.as_str()) == deleted => {
                    Seen::Deleted
                }
                _ => continue,
            };
            traveller.watch = None;
            traveller.events.push(seen);
            woken += usize::from(deleted.is_some() && traveller.contest(dir).role != Role::Read);
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
            Stage::Downgrade | Stage::Look | Stage::Mark | Stage::Inside => self.end(i),
            Stage::Done => {}
        }
    }

    fn reap(&mut self, session: i64) {
        for dir in 0..2 {
            let nodes = self.dirs[dir].nodes.iter();
            let theirs = nodes.filter(|node| node.born.owner == session);
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
                    self.travellers[i].part_from(dir, Leftover::Prefix(prefix), false);
                }
                self.travellers[i].leave();
                self.begin(i);
            }
            Stage::Downgrade => {
                self.make_reader(i);
            }
            Stage::Mark => self.set_mark(i),
            _ => {}
        }
    }

    fn cancel(&mut self, i: usize) {
        match self.travellers[i].stage {
            Stage::Queue(_) => self.report(i, Event::Cancel),
            _ => self.end(i),
        }
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
            .for_each(|hold| hold.trusted = false);
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
