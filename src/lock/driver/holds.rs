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
use crate::system::process;
use crate::time::limit::{LimitReached, from_now};
use crate::transport::{CallId, Failure};
use zklock_core::attempt::Event;
use zklock_core::dialect::Role;
use zklock_jute::{ErrorCode, Names, Reply, Request, Stat};

/// How much later each waiter looks than the one ahead of it: the first one removes the hold.
const ONE_AFTER_THE_OTHER: Duration = Duration::from_secs(1);

/// A hold that was read.
struct SeenHold {
    node: String,
    version: i32,
    until: Option<Duration>,
    /// The least that it can be at the servers, since the epoch, if a node of ours tells.
    now: Option<Duration>,
}

impl Driver<'_, '_> {
    /// Looks at the first hold in a listing, if there is one, before the attempt takes it in.
    pub(super) fn past_holds(&mut self, event: Event) -> Result<Step> {
        let Event::Children(names) = &event else {
            return Ok(Step::Report(event));
        };
        let (contest, mine) = (self.attempt.contest(), self.attempt.node());
        let first = match self.queue.role {
            Role::Permit => None,
            _ => contest.hold_ahead(names, mine),
        };
        let Some((name, place)) = first else {
            self.meet(None);
            return Ok(Step::Report(event));
        };
        let (node, mine) = (self.full(name.text), mine.map(|mine| self.full(mine)));
        let call_id = self.post(
            [Request::get(&node)]
                .into_iter()
                .chain(mine.as_deref().map(Request::exists)),
        );
        let (data, stat) = match self.answer(call_id) {
            Err(LimitReached) => return Ok(Step::Report(Event::Cancel)),
            Ok(Ok(Reply::Data { data, stat })) if !stat.has_session() => (data, stat),
            // It has gone, may not be read, or is none.
            Ok(Ok(_) | Err(Failure::Refused(_))) => return Ok(Step::Report(event)),
            Ok(answered) => return self.trouble(answered),
        };
        let hold = Hold::read(&Vec::from(data), &stat);
        let until = hold.until();
        let seen = SeenHold {
            node,
            version: stat.version,
            until: until.and_then(|until| until.duration_since(SystemTime::UNIX_EPOCH).ok()),
            now: mine.map(|_| self.servers_time(call_id.next(), &stat)),
        };
        self.meet(Some(hold));
        self.past_hold(&seen, names, place)
    }

    /// The least that it can be at the servers, by this read of our own node and that of the hold.
    fn servers_time(&mut self, own: CallId, hold: &Stat) -> Duration {
        let born = match self.answer(own) {
            Ok(Ok(Reply::Stat(stat))) => stat.ctime,
            // The next request learns why.
            _ => 0,
        };
        self.holds.servers_time(born.max(hold.mtime))
    }

    /// Removes the hold if it is over. A contender without a node that believes so by the clock of its
    /// own machine enters the queue, to learn the servers' time.
    fn past_hold(&mut self, hold: &SeenHold, names: &Names, place: usize) -> Result<Step> {
        let listed = |names: Names| Ok(Step::Report(Event::Children(names)));
        let is_kept = self.holds.kept.as_ref() == Some(&hold.node);
        let Some(until) = hold.until.filter(|_| !is_kept) else {
            return listed(names.clone());
        };
        match hold.now {
            None if until <= process::since_epoch() => {
                let name = path::name(&hold.node);
                listed(names.iter().filter(|other| *other != name).collect())
            }
            None => listed(names.clone()),
            Some(now) if until <= now => self.remove_hold(hold),
            Some(now) => {
                let later = ONE_AFTER_THE_OTHER.saturating_mul(place as u32);
                self.holds.again = Some(from_now((until - now).saturating_add(later)));
                listed(names.clone())
            }
        }
    }

    /// Deletes the node of a hold that is over, unless somebody has changed it.
    fn remove_hold(&mut self, hold: &SeenHold) -> Result<Step> {
        let node = &hold.node;
        log::warn!("the hold {node} is over: removing it");
        let answered = match self.ask(self.session.eviction(node, hold.version)) {
            Err(LimitReached) => return Ok(Step::Report(Event::Cancel)),
            Ok(answered) => answered,
        };
        match answered {
            Ok(_) | Err(Failure::Refused(ErrorCode::NO_NODE | ErrorCode::BAD_VERSION)) => {}
            Err(Failure::Refused(code)) => {
                log::warn!("the hold {node} is over, and stays: {}", code.text());
                self.holds.kept = Some(node.clone());
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
