//! The requests of the plans, besides those of their attempts.

use zklock_core::attempt::{Origin, OwnNode};
use zklock_core::dialect::{Dialect, Role};
use zklock_core::name::prefix;
use zklock_core::permit_attempt::Look;
use zklock_core::{downgrade, multi, permit_attempt, predecessor_mark};

use super::{Detour, Goal, Journey, Last, Plan, Stage, Watch};
use crate::directory::Maker;

impl Journey {
    /// Carries out the plan's request, and reports the result.
    pub(crate) fn ask(&mut self, i: usize) {
        match self.travellers[i].plan.clone() {
            Plan::Attempt => unreachable!("it asks for nothing"),
            Plan::Multi(multi) => {
                if let Some(event) = self.serve_multi(i, multi.action()) {
                    self.tell_multi(i, event);
                }
            }
            Plan::Permit(permit) => {
                if let Some(event) = self.serve_permit(i, permit.action()) {
                    self.tell_permit(i, event);
                }
            }
            Plan::Downgrade(downgrade) => {
                let event = self.serve_downgrade(i, downgrade.action());
                self.tell_downgrade(i, event);
            }
            Plan::Mark(mark) => {
                let event = self.serve_mark(i, mark.action());
                self.tell_mark(i, event);
            }
        }
    }

    /// As `ask`, but the connection breaks; the request was carried out, or not.
    pub(crate) fn ask_in_vain(&mut self, i: usize, carried_out: bool) {
        match self.travellers[i].plan.clone() {
            Plan::Attempt => {}
            Plan::Multi(multi) => {
                let action = multi.action();
                let creates = matches!(action, multi::Action::Place(_));
                if carried_out {
                    let _ = self.serve_multi(i, action);
                }
                if creates {
                    self.tell_multi(i, multi::Event::ReplyLost);
                }
            }
            // The request is repeated until there is an answer.
            Plan::Permit(permit) => {
                if carried_out {
                    let _ = self.serve_permit(i, permit.action());
                }
            }
            Plan::Downgrade(downgrade) => {
                if carried_out {
                    let _ = self.serve_downgrade(i, downgrade.action());
                }
                self.tell_downgrade(i, downgrade::Event::ReplyLost);
            }
            Plan::Mark(mark) => {
                let action = mark.action();
                let sets = matches!(action, predecessor_mark::Action::Set(..));
                if carried_out {
                    let _ = self.serve_mark(i, action);
                }
                if sets {
                    self.tell_mark(i, predecessor_mark::Event::ReplyLost);
                }
            }
        }
    }

    fn serve_multi(&mut self, i: usize, action: multi::Action) -> Option<multi::Event> {
        Some(match action {
            multi::Action::Place(prefixes) if self.detour == Detour::PlacesOneByOne => {
                return self.place_one(i, &prefixes);
            }
            multi::Action::Place(prefixes) => {
                let names = [0, 1].map(|at| self.create(i, at, &prefixes[at]).0);
                multi::Event::Created(names.into())
            }
            multi::Action::Births(names) => {
                let birth =
                    |(at, name): (usize, &String)| self.dirs[at].find(name).map(|node| node.origin);
                let births = names.iter().enumerate().map(birth).collect();
                let queues = self.dirs.iter().map(|dir| dir.names(None));
                multi::Event::Births(births, queues.collect())
            }
            multi::Action::Lists(queues, _) => {
                let listed = queues.iter().map(|at| self.dirs[*at].names(None));
                multi::Event::Queues(listed.collect())
            }
            multi::Action::Prove(names) => {
                let gone = |at: &usize| self.dirs[*at].find(&names[*at]).is_none();
                // A lost guard counts as gone, whatever the server says.
                let holds = &self.travellers[i].holds;
                let lost = |at: &usize| holds.iter().any(|raw| raw.dir == *at && !raw.trusted);
                let missing: Vec<_> = [0, 1]
                    .into_iter()
                    .filter(|at| gone(at) || lost(at))
                    .collect();
                match (&missing[..], self.detour) {
                    ([], _) | ([_], Detour::KeepsHalf) => multi::Event::Proved,
                    ([at, ..], _) => multi::Event::Gone(*at),
                }
            }
            action => unreachable!("nobody serves {action:?}"),
        })
    }

    /// Places the nodes in the wrong way: one after the other, and every other client in the
    /// opposite order.
    fn place_one(&mut self, i: usize, prefixes: &[String]) -> Option<multi::Event> {
        let first = self.travellers[i].half.take();
        let at = (usize::from(first.is_some()) + i) % 2;
        let (name, _) = self.create(i, at, &prefixes[at]);
        let Some(first) = first else {
            self.travellers[i].half = Some(name);
            return None;
        };
        Some(multi::Event::Created(match at {
            0 => vec![name, first],
            _ => vec![first, name],
        }))
    }

    fn serve_permit(
        &mut self,
        i: usize,
        action: permit_attempt::Action,
    ) -> Option<permit_attempt::Event> {
        Some(match action {
            permit_attempt::Action::Look | permit_attempt::Action::LookAgain => {
                permit_attempt::Event::Looked(self.look(i))
            }
            permit_attempt::Action::Read(others) => match self.dirs[1].find(&others.oldest) {
                Some(_) => permit_attempt::Event::IsThere,
                None => permit_attempt::Event::NoNode,
            },
            permit_attempt::Action::Await(others) => {
                if self.dirs[1].find(&others.last).is_none() {
                    return Some(permit_attempt::Event::Woken);
                }
                let traveller = &mut self.travellers[i];
                traveller.stop_watching();
                if self.detour != Detour::SleepsThroughTheLastOne {
                    traveller.watch = Some(Watch::Node(1, others.last));
                }
                traveller.stage = Stage::Await;
                return None;
            }
            permit_attempt::Action::Write(line, version, _) => self.write_number(i, &line, version),
            permit_attempt::Action::Inspect(line) => {
                let node = self.dirs[0].find(&line);
                let session = self.travellers[i].session;
                match node.map(|node| node.origin.owner) {
                    Some(owner) if owner == session => permit_attempt::Event::IsThere,
                    None if !self.travellers[i].line_in_old_session() => {
                        permit_attempt::Event::NoNode
                    }
                    _ => permit_attempt::Event::Lost,
                }
            }
            action => unreachable!("nobody serves {action:?}"),
        })
    }

    /// Returns what the server has of the semaphore.
    pub(crate) fn look(&self, i: usize) -> Look {
        let mut out = self.dirs[1].names(None).unwrap_or_default();
        if self.detour == Detour::OverlooksThoseOut {
            out = Default::default();
        }
        let kazoo = self.travellers[i].contest(0).dialect == Dialect::Kazoo;
        let number = (self.data.clone(), self.version);
        Look {
            number: (self.detour != Detour::OverlooksTheNumber).then_some(number),
            absent: false,
            unready: false,
            own: match kazoo {
                true => out.clone(),
                false => Default::default(),
            },
            out,
        }
    }

    fn write_number(&mut self, i: usize, line: &str, version: i32) -> permit_attempt::Event {
        let checks = self.detour != Detour::WritesWithoutTheLine;
        if checks && self.dirs[0].find(line).is_none() {
            return permit_attempt::Event::NoNode;
        }
        if version != self.version {
            return permit_attempt::Event::BadVersion;
        }
        let Goal::Permit { permits, .. } = self.travellers[i].goal else {
            unreachable!("it wants a permit")
        };
        self.data = permits.to_string().into_bytes();
        self.version += 1;
        permit_attempt::Event::Written
    }

    fn serve_downgrade(&mut self, i: usize, action: downgrade::Action) -> downgrade::Event {
        let Goal::Downgrade { transacts } = self.travellers[i].goal else {
            unreachable!("it downgrades")
        };
        let writer = self.travellers[i].holds[0].mine.name.clone();
        let gone = self.dirs[0].find(&writer).is_none();
        match action {
            downgrade::Action::Make(reader) => {
                let unchecked = matches!(
                    self.detour,
                    Detour::DowngradesUnchecked | Detour::DeletesTheWriterFirst
                );
                if transacts && gone && !unchecked {
                    return downgrade::Event::NoNode;
                }
                self.make_reader(i, &reader);
                match transacts {
                    true => downgrade::Event::Made,
                    false => downgrade::Event::MadeBeside,
                }
            }
            downgrade::Action::Prove(nodes) if self.detour != Detour::DowngradesUnproved => {
                match nodes.iter().all(|node| self.dirs[0].find(node).is_some()) {
                    true => downgrade::Event::Proved,
                    false => downgrade::Event::NoNode,
                }
            }
            _ => downgrade::Event::Proved,
        }
    }

    fn make_reader(&mut self, i: usize, reader: &str) {
        let traveller = &self.travellers[i];
        let maker = Maker {
            role: Role::Read,
            ..self.maker(i, 0)
        };
        let session = traveller.session;
        if self.detour == Detour::TakesANewNumber {
            let prefix = prefix(Dialect::Curator, Role::Read, &traveller.id(i));
            let made = self.dirs[0].create(&prefix, session, maker);
            self.travellers[i].half = made.map(|(name, _)| name);
        } else if self.dirs[0].find(reader).is_none() {
            self.dirs[0].plant(reader, session, maker);
        }
    }

    fn serve_mark(
        &mut self,
        i: usize,
        action: predecessor_mark::Action,
    ) -> predecessor_mark::Event {
        match action {
            predecessor_mark::Action::Read if self.detour == Detour::DoesNotRead => {
                predecessor_mark::Event::Data(predecessor_mark::CLEAN.to_vec(), self.version)
            }
            predecessor_mark::Action::Read => {
                predecessor_mark::Event::Data(self.data.clone(), self.version)
            }
            predecessor_mark::Action::Pause(_) => predecessor_mark::Event::Paused,
            predecessor_mark::Action::Set(data, version) => self.set_mark(i, data, version),
            predecessor_mark::Action::Finish(_) => unreachable!("nobody serves that"),
        }
    }

    /// Sets the mark in a transaction, which checks that the node exists and that this is the
    /// version.
    fn set_mark(&mut self, i: usize, data: Vec<u8>, version: i32) -> predecessor_mark::Event {
        if self.detour == Detour::DoesNotMark {
            return predecessor_mark::Event::IsSet;
        }
        let name = &self.travellers[i].holds[0].mine.name;
        if self.dirs[0].find(name).is_none() && self.detour != Detour::MarksUnchecked {
            return predecessor_mark::Event::NoNode;
        }
        if version != self.version {
            return predecessor_mark::Event::BadVersion;
        }
        let before = self.last;
        self.travellers[i].found.get_or_insert(before);
        self.data = data;
        self.version += 1;
        if self.last == Last::Released {
            self.last = Last::Open;
        }
        predecessor_mark::Event::IsSet
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
}

impl super::Traveller {
    /// Returns whether the node in the line was created in an earlier session.
    fn line_in_old_session(&self) -> bool {
        let line = match &self.plan {
            Plan::Permit(permit) => permit.line(),
            _ => None,
        };
        line.is_some_and(|line: &OwnNode| line.origin.owner != self.session)
    }
}
