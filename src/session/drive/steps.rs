//! What each action of an attempt means on the wire, and what its answer says.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::{Drive, Step, born};
use crate::error::Result;
use crate::path;
use crate::proto::{CreateMode, ErrorCode, Reply, Request};
use crate::protocol::attempt::Event;
use crate::protocol::dialect::Role;
use crate::protocol::name::{LAST_SEQUENCE, NodeName};
use crate::protocol::queue::{Behind, strangers};
use crate::session::ask::{not_made, refused};
use crate::session::limit::{GaveUp, Limit};
use crate::session::overdue::Verdict;
use crate::session::proof::{self, Proof, pause_until};
use crate::session::queries::Refusals;
use crate::session::transport::Failure;
use crate::session::{list, sync};

/// From this number on a directory is worth a warning.
const HALF_WAY: i64 = LAST_SEQUENCE / 2;

impl Drive<'_, '_> {
    /// Creates the node and lists the directory in one write, so that a free lock costs
    /// one round trip. Where nobody is expected, the listing is left out.
    pub(super) fn create(&mut self, prefix: &str, limit: &Limit) -> Result<Step> {
        let contest = self.quest.contest;
        let create = Request::Create {
            path: self.full(prefix),
            data: self.session.settings.card.text(self.quest.note).into(),
            acl: self.acl(),
            mode: match contest.dialect.is_numbered(contest.role) {
                true => CreateMode::EphemeralSequential,
                false => CreateMode::Ephemeral,
            },
            stat: true,
        };
        let stamp = self.session.hub.stamp();
        // A permit lists with a watch, for which the node must be there already.
        let pipelined = contest.role != Role::Permit && !self.attempt.expects_nobody();
        let listing = pipelined.then(|| list(self.quest.dir));
        let ticket = self.post([create].into_iter().chain(listing));
        self.listing = None;
        let answered = match self.answer(ticket, limit) {
            Ok(answered) => answered,
            Err(GaveUp) => {
                // The request is under way: what it makes must be looked for.
                self.attempt.handle(Event::ReplyLost);
                return Ok(Step::Report(Event::Cancel));
            }
        };
        match answered {
            Ok(Reply::Created { path, stat }) => {
                self.proven = Some(stamp);
                self.listing = pipelined.then(|| ticket.next());
                let name = path::name(&path).to_owned();
                self.warn_half_way(&name);
                Ok(Step::Report(Event::Created(name, stat.map(born))))
            }
            Err(Failure::Lost) => {
                self.attempt.handle(Event::ReplyLost);
                self.reconnect(limit)
            }
            Err(Failure::Refused(ErrorCode::NO_NODE)) => Ok(Step::Report(Event::NoNode)),
            answered => self.trouble(answered, limit),
        }
    }

    pub(super) fn make_parents(&mut self, limit: &Limit) -> Result<Step> {
        let requests = self.session.parents(self.quest.dir, self.quest.lasting);
        let count = requests.len();
        let mut ticket = self.post(requests);
        let mut refusals = Refusals::default();
        for _ in 0..count {
            match self.answer(ticket, limit) {
                Err(GaveUp) => return Ok(Step::Report(Event::Cancel)),
                Ok(Ok(_)) => refusals.none(),
                Ok(Err(Failure::Refused(code))) => refusals.add(code),
                Ok(answered) => return self.trouble(answered, limit),
            }
            ticket = ticket.next();
        }
        match refusals.trouble() {
            Some(code) => Err(not_made(self.quest.dir, code)),
            None => Ok(Step::Report(Event::ParentsMade)),
        }
    }

    pub(super) fn sync(&mut self, limit: &Limit) -> Result<Step> {
        let request = sync(self.quest.dir, self.session.transport.abilities().sync);
        match self.ask(request, limit) {
            Err(GaveUp) => Ok(Step::Report(Event::Cancel)),
            // A refusal comes through the quorum just as well.
            Ok(Ok(_) | Err(Failure::Refused(_))) => Ok(Step::Report(Event::Synced)),
            Ok(answered) => self.trouble(answered, limit),
        }
    }

    pub(super) fn list(&mut self, limit: &Limit) -> Result<Step> {
        let answered = match self.listing.take() {
            Some(ticket) => self.answer(ticket, limit),
            None => self.ask(list(self.quest.dir), limit),
        };
        match answered {
            Err(GaveUp) => Ok(Step::Report(Event::Cancel)),
            Ok(Ok(Reply::Children { names, .. })) => {
                if log::log_enabled!(log::Level::Debug) {
                    for name in strangers(&names) {
                        log::debug!("{} is no contender of any dialect", self.full(name));
                    }
                }
                Ok(Step::Report(Event::Children(names)))
            }
            Ok(Err(Failure::Refused(ErrorCode::NO_NODE))) => Ok(Step::Report(Event::NoNode)),
            Ok(answered) => self.trouble(answered, limit),
        }
    }

    pub(super) fn list_and_watch(&mut self, queued: bool, limit: &Limit) -> Result<Step> {
        match self.list_watching(limit) {
            Err(GaveUp) => Ok(Step::Report(Event::Cancel)),
            Ok(Ok(Reply::Children { names, .. })) => {
                let count = names.len() + usize::from(!queued);
                let ahead = count.saturating_sub(self.quest.contest.permits);
                if ahead != 0 {
                    let behind = Behind {
                        ahead,
                        ..Behind::default()
                    };
                    self.tell(&behind);
                }
                Ok(Step::Report(Event::Children(names)))
            }
            Ok(answered) => self.not_watching(answered, limit),
        }
    }

    pub(super) fn inspect(&mut self, name: &str, limit: &Limit) -> Result<Step> {
        let request = Request::Exists {
            path: self.full(name),
            watch: false,
        };
        match self.ask(request, limit) {
            Err(GaveUp) => Ok(Step::Report(Event::Cancel)),
            Ok(Ok(Reply::Stat(stat))) => Ok(Step::Report(Event::Inspected(born(stat)))),
            Ok(Err(Failure::Refused(ErrorCode::NO_NODE))) => Ok(Step::Report(Event::NoNode)),
            Ok(answered) => self.trouble(answered, limit),
        }
    }

    pub(super) fn births(&mut self, names: &[String], limit: &Limit) -> Result<Step> {
        let look = |name: &String| Request::Exists {
            path: self.full(name),
            watch: false,
        };
        let requests: Vec<_> = names.iter().map(look).collect();
        let mut ticket = self.post(requests);
        let mut births = HashMap::new();
        for name in names {
            match self.answer(ticket, limit) {
                Err(GaveUp) => return Ok(Step::Report(Event::Cancel)),
                Ok(Ok(Reply::Stat(stat))) => {
                    births.insert(name.clone(), stat.czxid);
                }
                Ok(Err(Failure::Refused(ErrorCode::NO_NODE))) => {}
                Ok(answered) => return self.trouble(answered, limit),
            }
            ticket = ticket.next();
        }
        Ok(Step::Report(Event::Births(births)))
    }

    /// Whether the lock may be granted without another proof of our session.
    pub(super) fn is_proven(&self) -> bool {
        let hub = &self.session.hub;
        self.proven
            .is_some_and(|stamp| hub.supports_a_grant(stamp, self.proofs))
    }

    /// Does something about a holder that has held for too long.
    pub(super) fn hurry(&mut self, limit: &Limit) -> Result<Step> {
        let names = match self.ask(list(self.quest.dir), limit) {
            Err(GaveUp) => return Ok(Step::Report(Event::Cancel)),
            Ok(Ok(Reply::Children { names, .. })) => names,
            Ok(_) => return Ok(Step::Again),
        };
        let Some(head) = self.quest.contest.contenders(&names).first().copied() else {
            return Ok(Step::Again);
        };
        // What we wait for is no contender, or has just gone.
        if self.attempt.node() == Some(head.text) {
            return Ok(Step::Again);
        }
        let head = self.full(head.text);
        let look = Request::Exists {
            path: head.clone(),
            watch: false,
        };
        let stat = match self.ask(look, limit) {
            Err(GaveUp) => return Ok(Step::Report(Event::Cancel)),
            Ok(Ok(Reply::Stat(stat))) => stat,
            Ok(_) => return Ok(Step::Again),
        };
        let overdue = self.quest.overdue.as_mut();
        let request = match overdue.map(|overdue| overdue.saw(stat.czxid, Instant::now())) {
            None | Some(Verdict::Wait) => return Ok(Step::Again),
            Some(Verdict::Ask) => {
                log::warn!("{head} has held for too long: asking it to let go");
                self.session.revocation(&head)
            }
            Some(Verdict::Evict) => {
                log::warn!("{head} has not let go within its grace: evicting it");
                self.session.eviction(&head)
            }
        };
        match self.asker.insist(&request, limit)? {
            Err(GaveUp) => Ok(Step::Report(Event::Cancel)),
            Ok(Err(Failure::Refused(code))) if code != ErrorCode::NO_NODE => {
                Err(refused(&head, code))
            }
            Ok(_) => Ok(Step::Again),
        }
    }

    /// Makes sure that a quorum confirmed the session a moment ago, and that the session will
    /// live long enough for the next proof. A create has done so for those who did not wait
    /// for long, unless the client comes out of a silence: then the leader must hear of it
    /// first, for which this waits.
    pub(super) fn prove(&mut self, name: &str, limit: &Limit) -> Result<Step> {
        if self.is_proven() {
            return Ok(Step::Report(Event::Proved));
        }
        let hub = &self.session.hub;
        let better_at = self.proven.and_then(|stamp| hub.better_at(stamp));
        if let Some(pause) = better_at.and_then(pause_until) {
            return self.pause(pause, limit);
        }
        let abilities = self.session.transport.abilities();
        let stamp = hub.stamp();
        let Ok(answers) = self.asker.prove(&[self.full(name)], limit) else {
            return Ok(Step::Report(Event::Cancel));
        };
        match proof::judge(abilities, &answers) {
            Proof::Confirmed => {
                self.proven = Some(stamp);
                self.proofs += 1;
                Ok(Step::Again)
            }
            Proof::Gone(_) => Ok(Step::Report(Event::NoNode)),
            Proof::Unanswered => {
                let failed = answers.into_iter().find(|answered| answered.is_err());
                self.trouble(failed.unwrap_or(Err(Failure::Lost)), limit)
            }
        }
    }

    /// Lets time pass, unless something happens to the connection.
    fn pause(&mut self, time: Duration, limit: &Limit) -> Result<Step> {
        if self.asker.pause(time, limit).is_err() {
            return Ok(Step::Report(Event::Cancel));
        }
        Ok(self.changed()?.unwrap_or(Step::Again))
    }

    pub(super) fn warn_half_way(&self, name: &str) {
        if NodeName::parse(name).is_some_and(|name| HALF_WAY <= name.sequence) {
            log::warn!(
                "more than half of the sequence numbers under {} are used up: delete it when it is idle",
                self.quest.dir,
            );
        }
    }
}
