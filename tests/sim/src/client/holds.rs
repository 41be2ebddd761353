//! Holds, which a client makes as `zklock hold` and `zklock pause` do, and releases.

use std::time::{Duration, SystemTime};

use zklock::diagnostics::Hold;
use zklock::nodes::Node;
use zklock::{Contender, Error, LockGuard, Result, sim};

use super::{Actor, ms, token_and_node};
use crate::history::{Kind, What, nanos};
use crate::jobs::JOB;
use crate::lives::{Planted, RUN_BEGAN};
use crate::marks;
use crate::plan::{self, HELD, Step};

impl Actor {
    pub(super) fn keep(&self, hold: plan::Hold, step: &Step) {
        let path = HELD[hold.on];
        let is_ready = self.is_ready(path);
        if path == marks::LOCK && !is_ready {
            return;
        }
        match hold.in_place && is_ready {
            true if path.ends_with("rw") => {
                let lock = self.client.rwlock(path).expect("a lock");
                self.hold_in_place(hold, step, |options| lock.write_with(options));
            }
            true => {
                let mutex = self.client.mutex(path).expect("a mutex");
                self.hold_in_place(hold, step, |options| mutex.lock_with(options));
            }
            false => {
                let (asked, wanted) = self.plant(hold);
                let made = self.client.pause(path, &wanted);
                if matches!(made, Err(Error::Unconfirmed { .. })) {
                    self.journal.unconfirmed().insert(asked);
                }
                self.planted(made, None);
            }
        }
        if let Some(after) = hold.released_after {
            sim::sleep(ms(after));
            self.release(path);
        }
    }

    /// Returns whether the path's node suits its users, whoever comes before them: a plain lock
    /// makes a node that a job refuses, and a pause one that a lock with marks refuses.
    fn is_ready(&self, path: &str) -> bool {
        let node = self.client.nodes().get(path);
        let has_data = |node: Option<Node>| node.is_some_and(|node| !node.data().is_empty());
        ![JOB, marks::LOCK].contains(&path) || node.is_ok_and(has_data)
    }

    fn hold_in_place<'a, G: LockGuard>(
        &'a self,
        hold: plan::Hold,
        step: &Step,
        lock: impl FnOnce(zklock::LockOptions<'a>) -> Result<Option<G>>,
    ) {
        let (op, options) = self.request(Kind::Exclusive, &[HELD[hold.on]], step);
        let taken = self.call(op, || lock(options));
        let Some(guard) = self.granted(op, taken, token_and_node) else {
            return;
        };
        self.hold(op, step.hold, &guard);
        let (_, wanted) = self.plant(hold);
        self.journal.note(self.who, op, What::Release);
        let made = guard.leave_hold(&wanted);
        let (well, node) = (made.is_ok(), guard.node().to_owned());
        self.planted(made, Some(node));
        drop(guard);
        self.journal.note(self.who, op, What::Released { well });
    }

    /// Returns when the hold is asked for, which its reason says, and the hold to write.
    fn plant(&self, hold: plan::Hold) -> (u64, Hold) {
        let asked = sim::elapsed();
        let wanted = Hold::new(asked.as_nanos().to_string(), None);
        let wanted = match hold.lasts.map(ms) {
            None => wanted,
            Some(time) if hold.until => {
                let end = Duration::from_secs(RUN_BEGAN) + asked + time;
                wanted.ending_at(SystemTime::UNIX_EPOCH + end)
            }
            Some(time) => wanted.lasting(time),
        };
        (nanos(asked), wanted)
    }

    fn planted(&self, made: Result<String>, instead_of: Option<String>) {
        if sim::records() {
            sim::note(&format!("{} made a hold: {made:?}", self.who));
        }
        if let Ok(node) = made {
            let planted = Planted {
                node,
                instead_of,
                at: sim::elapsed(),
            };
            self.journal.planted().push(planted);
        }
    }

    /// Releases the first hold, as `zklock release` does.
    fn release(&self, path: &str) {
        let released = || -> Result<()> {
            let present = self.client.contenders(path)?;
            let first = present.iter().find(|one| one.hold().is_some());
            let Some(first) = first.map(Contender::clone) else {
                return Ok(());
            };
            self.journal.released().insert(first.node().to_owned());
            first.evict()?;
            self.client.tidy_after_hold(path)
        };
        let released = released();
        if sim::records() {
            sim::note(&format!("{} released a hold: {released:?}", self.who));
        }
    }
}
