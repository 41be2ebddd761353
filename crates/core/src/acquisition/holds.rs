//! Holds in the queue: nodes without a session, which stand for a pause. A waiter removes a hold whose time
//! is over.
//!
//! A hold's name shows what it is, so a listing without holds costs nothing, and only a contender that sees
//! a hold reads it. The time is the servers': the births of our nodes and the last changes of holds show
//! how late it was there, and this machine's clock counts from then on. So no hold is removed early, unless
//! the servers' clock is set back, or a server whose clock is behind comes to lead. The removal
//! itself admits nobody: the contender that removed a hold lists the queue again.

use alloc::vec::Vec;
use core::mem;
use core::time::Duration;

use super::state::{SeenHold, Step};
use super::{Acquisition, Note, Wire};
use crate::answer::{Answered, Failure};
use crate::attempt::Event;
use crate::dialect::Role;
use crate::hold::{self, ONE_AFTER_THE_OTHER};
use crate::name::NodeName;
use crate::path::node_in;
use zklock_jute::{Data, ErrorCode, Names, Reply, Request, Stat};

impl Acquisition {
    /// Reads the holds in a listing before the attempt takes it in. Returns the listing if it contains none.
    pub(super) fn past_holds(&mut self, names: Names, wire: &mut dyn Wire) -> Option<Names> {
        let mine = self.attempt.node();
        let ahead = match mine.is_some() || self.looks_before() {
            true => self.contest.holds_ahead(&names, mine),
            false => Vec::new(),
        };
        self.holds.again = None;
        self.holds.ours.clear();
        let seen = |(name, place): &(NodeName<'_>, usize)| SeenHold {
            name: name.text.into(),
            place: *place as u32,
            version: -1,
            end: None,
        };
        let asked: Vec<_> = ahead.iter().map(seen).collect();
        if asked.is_empty() {
            self.meets(None, wire);
            return Some(names);
        }
        // A node that somebody else created has not shown its birth yet.
        if let Some(mine) = self.attempt.node().filter(|_| self.stood) {
            let look = Request::exists(&node_in(&self.path, mine));
            self.send(look, Step::Clock, wire);
        }
        for hold in &asked {
            let read = Request::get(&node_in(&self.path, &hold.name));
            self.send(read, Step::Hold, wire);
        }
        self.holds.look = Some((names, asked));
        None
    }

    /// Returns whether a listing can show, before there is a node, that the lock is taken. Permits know no holds.
    fn looks_before(&self) -> bool {
        self.tries() && self.contest.role != Role::Permit
    }

    /// Reports which hold is the first one ahead.
    fn meets(&mut self, hold: Option<(&Data, &Stat)>, wire: &mut dyn Wire) {
        if hold.is_some() || self.holds.met {
            self.holds.met = hold.is_some();
            wire.tell(Note::Holds(hold));
        }
    }

    /// Returns whether a listing waits until the semaphore or the holds in it are read, or the next listing until some
    /// holds are removed.
    pub(super) fn looks_closer(&self) -> bool {
        let removes = !self.holds.removes.is_empty();
        self.beside.look.is_some() || self.holds.look.is_some() || removes
    }

    /// Takes in which holds were read; the others are gone, or may not be read.
    pub(super) fn holds_read(
        &mut self,
        answers: Vec<Answered>,
        wire: &mut dyn Wire,
    ) -> Result<(), Failure> {
        let Some((names, asked)) = self.holds.look.take() else {
            return Ok(());
        };
        // A contender without a node does not know the servers' time.
        let time = match self.attempt.node() {
            Some(_) => Duration::ZERO,
            None => wire.probable_time(),
        };
        let (mut seen, mut first) = (Vec::new(), None);
        for (mut hold, answered) in asked.into_iter().zip(answers) {
            match answered {
                Ok(Reply::Data { data, stat }) if !stat.has_session() => {
                    self.holds.clock.saw(stat.mtime, wire.now());
                    hold.version = stat.version;
                    hold.end = hold::end(&data, &stat);
                    if !hold.is_over(time) {
                        first.get_or_insert((data, stat));
                    }
                    seen.push(hold);
                }
                Ok(_) | Err(Failure::Refused(_) | Failure::TooLong(_)) => {}
                Err(failure) => return Err(failure),
            }
        }
        self.meets(first.as_ref().map(|(data, stat)| (data, stat)), wire);
        if self.attempt.node().is_none() {
            self.without_past(&names, &seen, time);
        } else if !self.removes_past(seen, wire) {
            self.attempt.handle(Event::Children(names));
        }
        Ok(())
    }

    /// Removes the holds that are over, whatever stands ahead of them: a waiter that watches the nearest
    /// node may never learn what goes before that. The listing, and the proof that a grant may need, leave
    /// in the same write. Schedules a look for when the next hold is over. Returns whether it removes any.
    fn removes_past(&mut self, seen: Vec<SeenHold>, wire: &mut dyn Wire) -> bool {
        let time = self.holds.clock.time(wire.now());
        for hold in seen {
            let Some(end) = hold.end.filter(|_| !self.holds.kept.contains(&hold.name)) else {
                continue;
            };
            if end <= time {
                self.remove(hold, wire);
                continue;
            }
            let later = ONE_AFTER_THE_OTHER.saturating_mul(hold.place);
            let at = wire.now().saturating_add(end - time).saturating_add(later);
            self.holds.again = Some(self.holds.again.map_or(at, |again| again.min(at)));
            if hold.place == 0 {
                self.holds.ours.push(hold);
            }
        }
        let removes = !self.holds.removes.is_empty();
        if removes {
            self.forget_listings();
            self.list_too(wire);
            self.stays_proven(wire);
        }
        removes
    }

    /// Sends the removal of a hold, which fails if somebody has written the hold since it was read.
    fn remove(&mut self, hold: SeenHold, wire: &mut dyn Wire) {
        let path = node_in(&self.path, &hold.name);
        wire.tell(Note::RemovesHold(&path));
        let version = hold.version;
        self.send(Request::Delete { path, version }, Step::Removal, wire);
        self.holds.removes.push(hold.name);
    }

    /// Makes a contender without a node ignore the holds that are probably over. It enters the queue then,
    /// and learns the servers' time.
    fn without_past(&mut self, names: &Names, seen: &[SeenHold], time: Duration) {
        let over = seen.iter().filter(|hold| hold.is_over(time));
        let over = over.map(|hold| &*hold.name);
        let left = names.without(&over.collect::<Vec<_>>());
        self.attempt.handle(Event::Children(left));
    }

    /// Takes in the answers to removals. The listing behind the last one shows what is left.
    pub(super) fn holds_removed(
        &mut self,
        answers: Vec<Answered>,
        wire: &mut dyn Wire,
    ) -> Result<(), Failure> {
        for (name, answered) in mem::take(&mut self.holds.removes).into_iter().zip(answers) {
            match answered {
                Err(Failure::Refused(ErrorCode::NO_NODE | ErrorCode::BAD_VERSION)) => {}
                Err(Failure::Refused(code)) => {
                    wire.tell(Note::HoldStays(&node_in(&self.path, &name), code));
                    self.holds.kept.push(name);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Forgets what the broken connection left unanswered. The time of the next look stays: a waiter that
    /// was setting its watches does not list the queue again because of the break.
    pub(super) fn forget_holds(&mut self) {
        self.holds.look = None;
        self.holds.removes.clear();
    }

    /// Returns whether a look at the holds ahead is due; if not, schedules it. A hold known to be over is
    /// removed without another look: its version tells whether somebody has written it since.
    pub(super) fn is_hold_due(&mut self, wire: &mut dyn Wire) -> bool {
        match self.holds.again {
            Some(again) if again <= wire.now() => {
                self.holds.again = None;
                let ours = mem::take(&mut self.holds.ours);
                if wire.is_connected() {
                    self.removes_past(ours, wire);
                }
                true
            }
            Some(again) => {
                self.rest_at(again);
                false
            }
            None => false,
        }
    }
}
