//! A client's way through its plan: it begins attempts, holds, gives up, enters.

use zklock_core::attempt::{Attempt, Event, Origin, Orphan, Outcome, OwnNode};
use zklock_core::dialect::{Dialect, Role};
use zklock_core::downgrade::{self, Downgrade};
use zklock_core::multi::{self, Multi};
use zklock_core::permit_attempt::{self, Permit, Wish};
use zklock_core::predecessor_mark::{self, Mark};
use zklock_jute::Names;

use super::{Detour, Goal, Journey, Last, Plan, Stage};
use crate::property::Property;

impl Journey {
    /// Begins the client's plan, or begins it anew.
    pub(crate) fn begin(&mut self, i: usize) {
        let traveller = &mut self.travellers[i];
        let patience = traveller.patience(0);
        match traveller.goal {
            Goal::All { second, .. } => {
                traveller.ids += 1;
                let (id, session) = (traveller.id(i), Some(traveller.session));
                let roles = [Role::Exclusive, second];
                let multi = Multi::new(&roles, Dialect::Curator, &id, session, patience);
                traveller.plan = Plan::Multi(multi);
            }
            Goal::Permit {
                dialect,
                permits,
                limited,
                patience,
                count,
            } => {
                let wish = Wish {
                    patience,
                    limited,
                    agreed: limited,
                    count,
                };
                traveller.plan = Plan::Permit(Permit::new(dialect, permits, wish));
            }
            goal => {
                traveller.plan = Plan::Attempt;
                return self.enter(i, usize::from(goal == Goal::Second));
            }
        }
        self.proceed(i);
    }

    /// Queues the client in a directory.
    pub(crate) fn enter(&mut self, i: usize, dir: usize) {
        let traveller = &mut self.travellers[i];
        traveller.ids += 1;
        let (id, session) = (traveller.id(i), Some(traveller.session));
        let (contest, patience) = (traveller.contest(dir), traveller.patience(dir));
        self.queue(i, dir, Attempt::enter(contest, &id, session, patience));
    }

    fn queue(&mut self, i: usize, dir: usize, attempt: Attempt) {
        let traveller = &mut self.travellers[i];
        traveller.attempt = Some(attempt);
        traveller.stage = Stage::Queue(dir);
        traveller.stop_watching();
    }

    /// Does what the plan says, until it needs a request or a wait.
    pub(crate) fn proceed(&mut self, i: usize) {
        match self.travellers[i].plan.clone() {
            Plan::Attempt => {}
            Plan::Multi(multi) => self.proceed_multi(i, multi),
            Plan::Permit(permit) => self.proceed_permit(i, permit),
            Plan::Downgrade(mut downgrade) => match downgrade.action() {
                downgrade::Action::Finish(outcome) => {
                    let orphans = downgrade.orphans();
                    self.downgraded(i, outcome, orphans);
                }
                _ => self.travellers[i].stage = Stage::Ask,
            },
            Plan::Mark(mark) => match mark.action() {
                predecessor_mark::Action::Finish(predecessor_mark::Outcome::Entered(abandoned)) => {
                    self.travellers[i].told = abandoned;
                    self.go_inside(i);
                }
                predecessor_mark::Action::Finish(_) => self.end(i),
                _ => self.travellers[i].stage = Stage::Ask,
            },
        }
    }

    fn proceed_multi(&mut self, i: usize, mut multi: Multi) {
        let traveller = &mut self.travellers[i];
        match multi.action() {
            multi::Action::Queue(1, _) if self.detour == Detour::SkipsAQueue => {
                self.tell_multi(i, multi::Event::First);
            }
            multi::Action::Look(at) => {
                let (contest, patience) = (traveller.contest(at), traveller.patience(at));
                self.queue(i, at, Attempt::enter(contest, "", None, patience));
                self.is_listed(i);
            }
            multi::Action::Queue(at, mine) => {
                let attempt = Attempt::queued(
                    traveller.contest(at),
                    mine[at].clone(),
                    traveller.patience(at),
                );
                self.queue(i, at, attempt);
                self.is_listed(i);
            }
            multi::Action::Prove(_) if self.detour == Detour::HoldsAllUnproved => {
                self.tell_multi(i, multi::Event::Proved);
            }
            multi::Action::Finish(outcome) => {
                let mut orphans = multi.orphans();
                match self.detour {
                    Detour::ForgetsWhatWasPlaced => {
                        orphans.retain(|(_, orphan)| matches!(orphan, Orphan::Node(_)));
                    }
                    Detour::ForgetsTheOtherQueue => orphans.retain(|(at, _)| *at == 0),
                    _ => {}
                }
                for (at, orphan) in orphans {
                    traveller.part_from(at, orphan);
                }
                self.multi_ended(i, outcome);
            }
            _ => traveller.stage = Stage::Ask,
        }
    }

    /// Reports the listing of the queue that the client begins to wait in, if there is one already.
    fn is_listed(&mut self, i: usize) {
        let traveller = &mut self.travellers[i];
        let mine = traveller.attempt.as_ref().and_then(Attempt::node);
        let Plan::Multi(multi) = &mut traveller.plan else {
            return;
        };
        let listing = multi.listing().map(|names| match self.detour {
            Detour::OverlooksWhoWasListed => mine.into_iter().collect(),
            _ => names,
        });
        if let Some(names) = listing {
            self.report(i, Event::Children(names));
        }
    }

    fn multi_ended(&mut self, i: usize, outcome: multi::Outcome) {
        let traveller = &mut self.travellers[i];
        match outcome {
            multi::Outcome::Held(mine) => {
                if traveller.holds.is_empty() {
                    for (at, mine) in mine.into_iter().enumerate() {
                        traveller.hold(at, mine);
                    }
                }
                self.go_inside(i);
            }
            multi::Outcome::Restart => self.begin(i),
            multi::Outcome::Evicted(at, name) => self.evicted(i, at, &name),
            multi::Outcome::Gone => self.end(i),
        }
    }

    fn proceed_permit(&mut self, i: usize, permit: Permit) {
        let traveller = &mut self.travellers[i];
        match permit.action() {
            permit_attempt::Action::Line => {
                traveller.release(None);
                self.enter(i, 0);
            }
            permit_attempt::Action::Permit(has_room) => {
                self.enter(i, 1);
                let attempt = &mut self.travellers[i].attempt;
                if let Some(attempt) = attempt.as_mut().filter(|_| has_room) {
                    attempt.handle(Event::Children(Names::default()));
                }
            }
            permit_attempt::Action::Check => {
                let permits = traveller.holds.iter().filter(|raw| raw.dir == 1);
                let one_lost = permits.rev().skip(1).any(|raw| !raw.trusted);
                let event = match traveller.line_lost || one_lost {
                    true if !self.detour.trusts_the_line() => permit_attempt::Event::Lost,
                    _ => permit_attempt::Event::IsFirst,
                };
                if matches!(event, permit_attempt::Event::Lost) {
                    traveller.release(Some(1));
                }
                self.tell_permit(i, event);
            }
            permit_attempt::Action::Finish(permit_attempt::Outcome::Held) => {
                traveller.release(Some(0));
                self.go_inside(i);
            }
            permit_attempt::Action::Finish(permit_attempt::Outcome::Evicted(name)) => {
                self.evicted(i, 0, &name)
            }
            permit_attempt::Action::Finish(permit_attempt::Outcome::Disagrees(others)) => {
                self.check_disagreement(i, others.number);
                self.end(i);
            }
            permit_attempt::Action::Finish(permit_attempt::Outcome::Gone) => self.end(i),
            permit_attempt::Action::Finish(outcome) => self.lie(i, format!("{outcome:?}")),
            _ => traveller.stage = Stage::Ask,
        }
    }

    fn downgraded(&mut self, i: usize, outcome: downgrade::Outcome, orphans: Vec<Orphan>) {
        let traveller = &mut self.travellers[i];
        if self.detour != Detour::ForgetsTheReader {
            for orphan in orphans {
                traveller.part_from(0, orphan);
            }
        }
        let downgrade::Outcome::Reader(name) = outcome else {
            return self.end(i);
        };
        // The writer's node goes only now.
        let made = traveller.half.take().unwrap_or(name);
        match self.detour {
            Detour::DeletesTheWriterFirst | Detour::KeepsTheWriter => traveller.holds.clear(),
            _ => traveller.release(None),
        }
        let origin = self.dirs[0].find(&made).map(|node| node.origin);
        let session = self.travellers[i].session;
        let mine = OwnNode {
            name: made,
            origin: origin.unwrap_or(Origin {
                owner: session,
                czxid: 0,
            }),
        };
        self.travellers[i].hold(0, mine);
        self.go_inside(i);
    }

    pub(crate) fn tell_multi(&mut self, i: usize, event: multi::Event) {
        if let Plan::Multi(multi) = &mut self.travellers[i].plan {
            multi.handle(event);
        }
        self.proceed(i);
    }

    pub(crate) fn tell_permit(&mut self, i: usize, event: permit_attempt::Event) {
        if let Plan::Permit(permit) = &mut self.travellers[i].plan {
            permit.handle(event);
        }
        self.proceed(i);
    }

    pub(crate) fn tell_downgrade(&mut self, i: usize, event: downgrade::Event) {
        if let Plan::Downgrade(downgrade) = &mut self.travellers[i].plan {
            downgrade.handle(event);
        }
        self.proceed(i);
    }

    pub(crate) fn tell_mark(&mut self, i: usize, event: predecessor_mark::Event) {
        if let Plan::Mark(mark) = &mut self.travellers[i].plan {
            mark.handle(event);
        }
        self.proceed(i);
    }

    /// Handles the client's arrival at the head of this queue.
    pub(crate) fn arrive(&mut self, i: usize, dir: usize, mine: OwnNode) {
        let traveller = &mut self.travellers[i];
        match (traveller.goal, dir) {
            (Goal::Lock(_) | Goal::Second, _) => {
                traveller.hold(dir, mine);
                self.go_inside(i);
            }
            (Goal::Permit { .. }, 0) => {
                traveller.hold(0, mine.clone());
                traveller.line_lost = false;
                if self.detour == Detour::LooksAfterItsTurn {
                    traveller.release(Some(0));
                }
                self.tell_permit(i, permit_attempt::Event::First(mine));
            }
            (Goal::Permit { .. }, _) => {
                traveller.hold(1, mine.clone());
                if self.detour == Detour::LetsTheLineGoForTheSecond {
                    traveller.release(Some(0));
                }
                self.tell_permit(i, permit_attempt::Event::Permit(true));
            }
            (Goal::Downgrade { .. }, _) => {
                let id = traveller.id(i);
                let downgrade = Downgrade::new(Dialect::Curator, &mine.name, &id);
                traveller.plan = Plan::Downgrade(downgrade.expect("the number is small"));
                if self.detour == Detour::DeletesTheWriterFirst {
                    traveller.part_from(0, Orphan::Node(mine.name.clone()));
                }
                traveller.hold(0, mine);
                self.proceed(i);
            }
            (Goal::All { .. }, _) => {
                self.tell_multi(i, multi::Event::First);
            }
            (Goal::Tracked, _) => {
                traveller.plan = Plan::Mark(Mark::new(mine.origin.czxid));
                traveller.hold(dir, mine);
                self.proceed(i);
                if self.detour == Detour::MarksInTheQueue {
                    self.tell_mark(
                        i,
                        predecessor_mark::Event::Data(
                            predecessor_mark::CLEAN.to_vec(),
                            self.version - 1,
                        ),
                    );
                    self.tell_mark(i, predecessor_mark::Event::IsSet);
                }
            }
        }
    }

    /// Handles the end of an attempt in this queue without the lock.
    pub(crate) fn turned_away(&mut self, i: usize, dir: usize, outcome: Outcome) {
        match (self.travellers[i].goal, outcome) {
            (Goal::All { .. }, Outcome::Restart) => {
                self.tell_multi(i, multi::Event::NewSession);
            }
            (Goal::All { .. }, outcome) => {
                self.tell_multi(i, multi::Event::Cancel);
                match outcome {
                    Outcome::Gone => {}
                    Outcome::Evicted(name) => self.evicted(i, dir, &name),
                    outcome => self.lie(i, format!("{outcome:?}")),
                }
            }
            (Goal::Permit { .. }, Outcome::Restart)
                if dir == 1 && self.detour != Detour::RestartsTheLeaseAlone =>
            {
                // The place in the line went with the same session.
                self.tell_permit(i, permit_attempt::Event::Permit(false));
            }
            (Goal::Permit { .. }, Outcome::Gone) if dir == 1 => {
                self.tell_permit(i, permit_attempt::Event::Permit(false));
            }
            (_, Outcome::Restart) => self.enter(i, dir),
            (_, Outcome::Evicted(name)) => self.evicted(i, dir, &name),
            (_, Outcome::Gone) => self.end(i),
            (_, outcome) => self.lie(i, format!("{outcome:?}")),
        }
    }

    fn evicted(&mut self, i: usize, dir: usize, node: &str) {
        match self.dirs[dir].find(node) {
            None if self.travellers[i].evicted => self.end(i),
            _ => self.lie(i, format!("{node} was deleted")),
        }
    }

    fn lie(&mut self, i: usize, what: String) {
        self.blame(Property::Truth, format!("nobody has done that: {what}"));
        self.end(i);
    }

    pub(crate) fn go_inside(&mut self, i: usize) {
        self.check_nodes(i);
        self.travellers[i].stage = Stage::Inside;
        if self.travellers[i].goal == Goal::Tracked {
            self.check_told(i);
            self.last = Last::Open;
            self.travellers[i].found = None;
        }
    }

    /// Ends the client's goal: the caller has its result, or is done with it.
    pub(crate) fn end(&mut self, i: usize) {
        let traveller = &mut self.travellers[i];
        traveller.leave();
        traveller.stop_watching();
        traveller.stage = Stage::Done;
        // The former plan decides nothing any more.
        traveller.plan = Plan::Attempt;
    }
}
