//! What a contender does about a hold ahead: it removes one whose time is over.
//!
//! A hold has no session that would end it. Its name shows what it is, so a listing without one costs
//! nothing, and only who sees one reads it. The time is the servers': a node's birth and its last change
//! say how late it was there, and this machine's clock counts from then on, so a hold is never
//! removed early. The removal itself admits nobody: who removed it lists the queue again.

use std::time::{Duration, SystemTime};

use super::{Driver, Step};
use crate::error::Result;
use crate::hold::Hold;
use crate::path;
use crate::time::limit::{LimitReached, from_now};
use crate::transport::{CallId, Failure};
use zklock_core::attempt::Event;
use zklock_core::dialect::Role;
use zklock_core::hold::ONE_AFTER_THE_OTHER;
use zklock_jute::{ErrorCode, Reply, Request, Stat};

/// A hold that was read.
struct SeenHold {
    node: String,
    hold: Hold,
    stat: Stat,
    /// How many waiters see it before this one.
    place: usize,
}

impl SeenHold {
    fn of(node: String, reply: Reply, place: usize) -> Option<Self> {
        let (hold, stat) = Hold::of(reply)?;
        Some(Self {
            node,
            hold,
            stat,
            place,
        })
    }

    /// When it is over at the servers, since the epoch.
    fn until(&self) -> Option<Duration> {
        let until = self.hold.until()?;
        until.duration_since(SystemTime::UNIX_EPOCH).ok()
    }
}

impl Driver<'_, '_> {
    /// Looks at the holds in a listing, if there are any, before the attempt takes it in.
    pub(super) fn past_holds(&mut self, event: Event) -> Result<Step> {
        let Event::Children(names) = &event else {
            return Ok(Step::Report(event));
        };
        let (contest, mine) = (self.attempt.contest(), self.attempt.node());
        let ahead = match self.queue.role {
            Role::Permit => Vec::new(),
            _ => contest.holds_ahead(names, mine),
        };
        if ahead.is_empty() {
            self.meet(None);
            return Ok(Step::Report(event));
        }
        let holds = ahead
            .iter()
            .map(|(name, _)| Request::get(&self.full(name.text)));
        let mine = mine.map(|mine| Request::exists(&self.full(mine)));
        let requests: Vec<_> = holds.chain(mine.clone()).collect();
        let mut call_id = self.post(requests);
        let mut seen = Vec::new();
        for (name, place) in ahead {
            match self.answer(call_id) {
                Err(LimitReached) => return Ok(Step::Report(Event::Cancel)),
                Ok(Ok(reply)) => seen.extend(SeenHold::of(self.full(name.text), reply, place)),
                // It has gone, or may not be read.
                Ok(Err(Failure::Refused(_))) => {}
                Ok(answered) => return self.trouble(answered),
            }
            call_id = call_id.next();
        }
        self.meet(seen.first().map(|one| one.hold.clone()));
        match mine {
            Some(_) => {
                let now = self.servers_time(call_id, &seen);
                Ok(self.remove_past(&seen, now)?.unwrap_or(Step::Report(event)))
            }
            None => Ok(self.without_past(&seen, event)),
        }
    }

    /// The least that it can be at the servers, by this read of our own node and those of the holds.
    fn servers_time(&mut self, own: CallId, holds: &[SeenHold]) -> Duration {
        let born = match self.answer(own) {
            Ok(Ok(Reply::Stat(stat))) => stat.ctime,
            // The next request learns why.
            _ => 0,
        };
        let written = holds.iter().map(|one| one.stat.mtime).max();
        self.holds.servers_time(born.max(written.unwrap_or(0)))
    }

    /// Removes the first hold that is over, whatever stands ahead of it: a waiter that watches the nearest
    /// node may never hear of what goes before that. Plans to look again when the next one is.
    fn remove_past(&mut self, seen: &[SeenHold], now: Duration) -> Result<Option<Step>> {
        for one in seen
            .iter()
            .filter(|one| !self.holds.kept.contains(&one.node))
        {
            let Some(until) = one.until() else {
                continue;
            };
            if until <= now {
                return self.remove_hold(one).map(Some);
            }
            let later = ONE_AFTER_THE_OTHER.saturating_mul(one.place as u32);
            let at = from_now((until - now).saturating_add(later));
            self.holds.again = Some(self.holds.again.map_or(at, |again| again.min(at)));
        }
        Ok(None)
    }

    /// A contender without a node that believes by the clock of its own machine that holds are over enters
    /// the queue, to learn the servers' time.
    fn without_past(&self, seen: &[SeenHold], event: Event) -> Step {
        let over = seen.iter().filter(|one| one.hold.seems_over());
        let over: Vec<_> = over.map(|one| path::name(&one.node)).collect();
        Step::Report(match event {
            Event::Children(names) if !over.is_empty() => Event::Children(names.without(&over)),
            event => event,
        })
    }

    /// Deletes the node of a hold that is over, unless somebody has changed it.
    fn remove_hold(&mut self, hold: &SeenHold) -> Result<Step> {
        let node = &hold.node;
        log::warn!("the hold {node} is over: removing it");
        let answered = match self.ask(self.session.eviction(node, hold.stat.version)) {
            Err(LimitReached) => return Ok(Step::Report(Event::Cancel)),
            Ok(answered) => answered,
        };
        match answered {
            Ok(_) | Err(Failure::Refused(ErrorCode::NO_NODE | ErrorCode::BAD_VERSION)) => {}
            Err(Failure::Refused(code)) => {
                log::warn!("the hold {node} is over, and stays: {}", code.text());
                self.holds.kept.push(node.clone());
            }
            answered => return self.trouble(answered),
        }
        Ok(Step::Again)
    }

    /// Notes which hold is ahead.
    fn meet(&mut self, hold: Option<Hold>) {
        self.holds.again = None;
        if hold.is_some() || self.holds.met {
            self.holds.met = hold.is_some();
            let path = self.queue.path.to_owned();
            *self.session.taken.lock() = Some((path, hold));
        }
    }
}
