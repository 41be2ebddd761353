//! What a traveller does between its attempts, and instead of one.

use std::mem;

use zklock::recipe::attempt::{Attempt, Orphan, OwnNode, Patience};
use zklock::recipe::dialect::{Dialect, Role};
use zklock::recipe::name::{NodeName, prefix};

use super::{Detour, Goal, Journey, Last, RawGuard, Stage};
use crate::directory::Maker;

impl Journey {
    /// It is at the head of this queue.
    pub(crate) fn arrive(&mut self, i: usize, dir: usize, mine: OwnNode) {
        let traveller = &mut self.travellers[i];
        let raw = |mine| RawGuard {
            dir,
            mine,
            trusted: true,
        };
        match (traveller.goal, dir) {
            (Goal::Lock(_), _) => {
                traveller.holds.push(raw(mine));
                self.go_inside(i);
            }
            (Goal::Permit(..), 0) => {
                traveller.holds.push(raw(mine));
                if self.detour == Detour::LooksAfterItsTurn {
                    traveller.release_line();
                }
                self.enter(i, 1);
            }
            (Goal::Permit(..), _) => {
                // The line's node is in the same session, and so still there.
                traveller.release_line();
                traveller.holds.push(raw(mine));
                self.go_inside(i);
            }
            (Goal::Downgrade, _) => {
                traveller.holds.push(raw(mine));
                traveller.stage = Stage::Downgrade;
                if self.detour == Detour::DeletesTheWriterFirst {
                    let name = traveller.holds[0].mine.name.clone();
                    traveller.part_from(0, Orphan::Node(name), false);
                }
            }
            (Goal::All, 0) => self.queue_up(i, 1),
            (Goal::All, _) => match self.detour {
                Detour::HoldsAllUnproved => self.hold_all(i),
                _ => traveller.stage = Stage::Prove,
            },
            (Goal::Tracked, _) => {
                traveller.holds.push(raw(mine));
                traveller.stage = Stage::Look;
                if self.detour == Detour::MarksInTheQueue {
                    traveller.told = None;
                    self.go_inside(i);
                }
            }
        }
    }

    /// Has the nodes in all queues confirmed, and holds them.
    pub(crate) fn prove(&mut self, i: usize) {
        let mut standing = self.travellers[i].standing.iter().enumerate();
        match standing.all(|(dir, mine)| self.dirs[dir].find(&mine.name).is_some()) {
            true => self.hold_all(i),
            false => self.end(i),
        }
    }

    fn hold_all(&mut self, i: usize) {
        let traveller = &mut self.travellers[i];
        let mines = mem::take(&mut traveller.standing).into_iter().enumerate();
        let raw = |(dir, mine)| RawGuard {
            dir,
            mine,
            trusted: true,
        };
        traveller.holds = mines.map(raw).collect();
        self.go_inside(i);
    }

    pub(crate) fn restart(&mut self, i: usize, dir: usize) {
        match (self.travellers[i].goal, dir) {
            (Goal::Permit(..), 1) if self.detour == Detour::RestartsTheLeaseAlone => {
                self.enter(i, 1);
            }
            // What it has reached with its other nodes is lost with the session.
            (Goal::All | Goal::Permit(..), _) => {
                self.travellers[i].leave();
                self.begin(i);
            }
            _ => self.enter(i, dir),
        }
    }

    /// Creates a node in every queue, at once.
    pub(crate) fn place(&mut self, i: usize) {
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

    pub(crate) fn stand(&mut self, i: usize, dir: usize) -> OwnNode {
        let id = self.travellers[i].id(i);
        let prefix = prefix(Dialect::Curator, Role::Exclusive, &id);
        let (name, origin) = self.create(i, dir, &prefix);
        OwnNode { name, origin }
    }

    fn queue_up(&mut self, i: usize, dir: usize) {
        let traveller = &mut self.travellers[i];
        let mine = traveller.standing[dir].clone();
        let attempt = Attempt::queued(traveller.contest(dir), mine, Patience::Waits);
        traveller.attempt = Some(attempt);
        traveller.stage = Stage::Queue(dir);
    }

    /// Creates the reader's node, then leaves the writer's.
    ///
    /// Both happen in one transaction, which fails if the writer's node is gone.
    pub(crate) fn downgrade(&mut self, i: usize) {
        let Some(mine) = self.make_reader(i) else {
            // An earlier transaction may have made it, and its reply was lost.
            let prefix = self.reader_prefix(i);
            self.travellers[i].part_from(0, Orphan::Prefix(prefix), false);
            return self.end(i);
        };
        let traveller = &mut self.travellers[i];
        if self.detour != Detour::DeletesTheWriterFirst {
            traveller.leave();
        }
        traveller.holds = vec![RawGuard {
            dir: 0,
            mine,
            trusted: true,
        }];
        self.go_inside(i);
    }

    fn reader_prefix(&self, i: usize) -> String {
        prefix(Dialect::Curator, Role::Read, &self.travellers[i].id(i))
    }

    pub(crate) fn make_reader(&mut self, i: usize) -> Option<OwnNode> {
        let traveller = &self.travellers[i];
        let unchecked = matches!(
            self.detour,
            Detour::DowngradesUnchecked | Detour::DeletesTheWriterFirst
        );
        let writer = &traveller.holds[0].mine.name;
        if !unchecked && self.dirs[0].find(writer).is_none() {
            return None;
        }
        let writer = NodeName::parse(&traveller.holds[0].mine.name).expect("it is a contender");
        let prefix = self.reader_prefix(i);
        let name = format!("{prefix}{:010}", writer.sequence);
        let maker = Maker {
            role: Role::Read,
            ..self.maker(i, 0)
        };
        let session = traveller.session;
        if let Some(node) = self.dirs[0].find(&name) {
            return Some(OwnNode {
                name,
                origin: node.origin,
            });
        }
        let (name, origin) = match self.detour {
            Detour::TakesANewNumber => self.dirs[0]
                .create(&prefix, session, maker)
                .expect("it is there"),
            _ => {
                let origin = self.dirs[0].plant(&name, session, maker);
                (name, origin)
            }
        };
        Some(OwnNode { name, origin })
    }

    /// The transaction that sets the mark if the node is there.
    pub(crate) fn set_mark(&mut self, i: usize) -> bool {
        let mine = &self.travellers[i].holds[0].mine;
        if self.dirs[0].find(&mine.name).is_none() {
            return false;
        }
        self.mark = Some(mine.origin.czxid);
        if self.last == Last::Released {
            self.last = Last::Open;
        }
        true
    }

    pub(crate) fn go_inside(&mut self, i: usize) {
        self.check_nodes(i);
        self.travellers[i].stage = Stage::Inside;
        if self.travellers[i].goal == Goal::Tracked {
            self.check_told(i);
            self.last = Last::Open;
        }
    }

    /// The caller has got its result, or has done with it.
    pub(crate) fn end(&mut self, i: usize) {
        let traveller = &mut self.travellers[i];
        traveller.leave();
        traveller.stop_watching();
        traveller.stage = Stage::Done;
    }
}
