//! What each action of an attempt means on the wire, and what its answer says.

use std::collections::HashMap;
use std::time::Duration;

use super::watched::Listing;
use super::{Driver, Step, origin};
use crate::error::Result;
use crate::jute::{CreateMode, ErrorCode, Reply, Request};
use crate::path;
use crate::recipe::attempt::Event;
use crate::recipe::dialect::Role;
use crate::recipe::name::{LAST_SEQUENCE, NodeName};
use crate::recipe::queue::{Blocked, strangers};
use crate::session::call_error::not_made;
use crate::session::grant_proof::pause_until;
use crate::session::proof::{self, Proof};
use crate::session::queries::Refusals;
use crate::time::limit::LimitReached;
use crate::transport::Failure;

/// From this number on a directory is worth a warning.
const HALF_WAY: i64 = LAST_SEQUENCE / 2;

impl Driver<'_, '_> {
    /// Creates the node and lists the directory in one write, so that a free lock costs
    /// one round trip. Where nobody is expected, the listing is left out.
    pub(super) fn create(&mut self, prefix: &str) -> Result<Step> {
        let contest = self.attempt.contest();
        let create = Request::Create {
            path: self.full(prefix),
            data: self
                .session
                .settings
                .card
                .text(self.request.note.as_deref())
                .into(),
            acl: self.acl(),
            mode: match contest.dialect.is_numbered(contest.role) {
                true => CreateMode::EphemeralSequential,
                false => CreateMode::Ephemeral,
            },
            stat: true,
        };
        let stamp = self.session.status.stamp();
        // A permit lists with a watch, for which the node must be there already.
        let pipelined = contest.role != Role::Permit && !self.attempt.expects_nobody();
        let listing = pipelined.then(|| Request::list(self.queue.dir));
        let call_id = self.post([create].into_iter().chain(listing));
        self.listing = None;
        let answered = match self.answer(call_id) {
            Ok(answered) => answered,
            Err(LimitReached) => {
                // The request is under way: what it makes must be looked for.
                self.attempt.handle(Event::ReplyLost);
                return Ok(Step::Report(Event::Cancel));
            }
        };
        match answered {
            Ok(Reply::Created { path, stat }) => {
                self.proven = Some(stamp);
                self.listing = pipelined.then(|| Listing::Asked(call_id.next()));
                let name = path::name(&path).to_owned();
                self.warn_half_way(&name);
                Ok(Step::Report(Event::Created(name, stat.map(origin))))
            }
            Err(Failure::Lost) => {
                self.attempt.handle(Event::ReplyLost);
                self.reconnect()
            }
            Err(Failure::Refused(ErrorCode::NO_NODE)) => Ok(Step::Report(Event::NoNode)),
            answered => self.trouble(answered),
        }
    }

    pub(super) fn make_parents(&mut self) -> Result<Step> {
        let requests = self.session.parents(self.queue.dir, self.queue.lasting);
        let count = requests.len();
        let mut call_id = self.post(requests);
        let mut refusals = Refusals::default();
        for _ in 0..count {
            match self.answer(call_id) {
                Err(LimitReached) => return Ok(Step::Report(Event::Cancel)),
                Ok(Ok(_)) => refusals.none(),
                Ok(Err(Failure::Refused(code))) => refusals.add(code),
                Ok(answered) => return self.trouble(answered),
            }
            call_id = call_id.next();
        }
        match refusals.trouble() {
            Some(code) => Err(not_made(self.queue.dir, code)),
            None => Ok(Step::Report(Event::ParentsMade)),
        }
    }

    pub(super) fn sync(&mut self) -> Result<Step> {
        let request = self.session.transport.capabilities().sync(self.queue.dir);
        match self.ask(request) {
            Err(LimitReached) => Ok(Step::Report(Event::Cancel)),
            // A refusal comes through the quorum just as well.
            Ok(Ok(_) | Err(Failure::Refused(_))) => Ok(Step::Report(Event::Synced)),
            Ok(answered) => self.trouble(answered),
        }
    }

    pub(super) fn list(&mut self) -> Result<Step> {
        let answered = match self.listing.take() {
            Some(Listing::Asked(call_id)) => self.answer(call_id),
            Some(Listing::Prefetching(number)) => self.prefetched(number),
            Some(Listing::Read(answered)) => Ok(answered),
            None => self.ask(Request::list(self.queue.dir)),
        };
        match answered {
            Err(LimitReached) => Ok(Step::Report(Event::Cancel)),
            Ok(Ok(Reply::Children { names, .. })) => {
                if log::log_enabled!(log::Level::Debug) {
                    for name in strangers(&names) {
                        log::debug!("{} is no contender of any dialect", self.full(name));
                    }
                }
                Ok(Step::Report(Event::Children(names)))
            }
            Ok(Err(Failure::Refused(ErrorCode::NO_NODE))) => Ok(Step::Report(Event::NoNode)),
            Ok(answered) => self.trouble(answered),
        }
    }

    pub(super) fn list_and_watch(&mut self, queued: bool) -> Result<Step> {
        match self.list_watching() {
            Err(LimitReached) => Ok(Step::Report(Event::Cancel)),
            Ok(Ok(Reply::Children { names, .. })) => {
                let count = names.len() + usize::from(!queued);
                let ahead = count.saturating_sub(self.attempt.contest().permits);
                if ahead != 0 {
                    let blocked = Blocked {
                        ahead,
                        ..Blocked::default()
                    };
                    self.tell(&blocked);
                }
                Ok(Step::Report(Event::Children(names)))
            }
            Ok(answered) => self.not_watching(answered),
        }
    }

    pub(super) fn inspect(&mut self, name: &str) -> Result<Step> {
        let request = Request::Exists {
            path: self.full(name),
            watch: false,
        };
        match self.ask(request) {
            Err(LimitReached) => Ok(Step::Report(Event::Cancel)),
            Ok(Ok(Reply::Stat(stat))) => Ok(Step::Report(Event::Inspected(origin(stat)))),
            Ok(Err(Failure::Refused(ErrorCode::NO_NODE))) => Ok(Step::Report(Event::NoNode)),
            Ok(answered) => self.trouble(answered),
        }
    }

    pub(super) fn births(&mut self, names: &[String]) -> Result<Step> {
        let look = |name: &String| Request::Exists {
            path: self.full(name),
            watch: false,
        };
        let requests: Vec<_> = names.iter().map(look).collect();
        let mut call_id = self.post(requests);
        let mut births = HashMap::new();
        for name in names {
            match self.answer(call_id) {
                Err(LimitReached) => return Ok(Step::Report(Event::Cancel)),
                Ok(Ok(Reply::Stat(stat))) => {
                    births.insert(name.clone(), stat.czxid);
                }
                Ok(Err(Failure::Refused(ErrorCode::NO_NODE))) => {}
                Ok(answered) => return self.trouble(answered),
            }
            call_id = call_id.next();
        }
        Ok(Step::Report(Event::Births(births)))
    }

    /// Whether the lock may be granted without another proof of our session.
    pub(super) fn is_proven(&self) -> bool {
        let status = &self.session.status;
        self.proven
            .is_some_and(|stamp| status.supports_a_grant(stamp, self.proofs))
    }

    /// Makes sure that a quorum confirmed the session a moment ago, and that the session will
    /// live long enough for the next proof. A create has done so for those who did not wait
    /// for long, unless the client comes out of a silence: then the leader must hear of it
    /// first, for which this waits.
    pub(super) fn prove(&mut self, name: &str) -> Result<Step> {
        if self.is_proven() {
            return Ok(Step::Report(Event::Proved));
        }
        let status = &self.session.status;
        let better_at = self.proven.and_then(|stamp| status.better_at(stamp));
        if let Some(pause) = better_at.and_then(pause_until) {
            return self.pause(pause);
        }
        let capabilities = self.session.transport.capabilities();
        let stamp = status.stamp();
        let Ok(answers) = self.caller.prove(&[self.full(name)], &self.request.limit) else {
            return Ok(Step::Report(Event::Cancel));
        };
        match proof::judge(capabilities, &answers) {
            Proof::Confirmed => {
                self.proven = Some(stamp);
                self.proofs += 1;
                Ok(Step::Again)
            }
            Proof::Gone(_) => Ok(Step::Report(Event::NoNode)),
            Proof::Unanswered => {
                let failed = answers.into_iter().find(|answered| answered.is_err());
                self.trouble(failed.unwrap_or(Err(Failure::Lost)))
            }
        }
    }

    /// Lets time pass, unless something happens to the connection.
    fn pause(&mut self, time: Duration) -> Result<Step> {
        if self.caller.pause(time, &self.request.limit).is_err() {
            return Ok(Step::Report(Event::Cancel));
        }
        Ok(self.changed()?.unwrap_or(Step::Again))
    }

    pub(super) fn warn_half_way(&self, name: &str) {
        if NodeName::parse(name).is_some_and(|name| HALF_WAY <= name.sequence) {
            log::warn!(
                "more than half of the sequence numbers under {} are used up: delete it when it is idle",
                self.queue.dir,
            );
        }
    }
}
