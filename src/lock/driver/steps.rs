//! What each action of an attempt means on the wire, and what its answer says.

use std::collections::BTreeMap;

use super::watched::Listing;
use super::{Driver, Step, origin};
use crate::error::Result;
use crate::lock::request::creation;
use crate::path;
use crate::session::confirm_grant::{Asked, ask};
use crate::session::queries::Lasting;
use crate::time::limit::LimitReached;
use crate::transport::{CallId, Failure};
use zklock_core::attempt::{Event, Patience};
use zklock_core::dialect::Role;
use zklock_core::name::{LAST_SEQUENCE, NodeName};
use zklock_core::queue::{Blocked, Place, strangers};
use zklock_core::validity::Stamp;
use zklock_jute::{ErrorCode, Reply, Request};

/// From this number on a directory is worth a warning.
const HALF_WAY: i64 = LAST_SEQUENCE / 2;

impl Driver<'_, '_> {
    /// Creates the node and lists the directory in one write, so that a free lock costs
    /// one round trip. If nobody is expected, the listing is left out.
    pub(super) fn create(&mut self, prefix: &str) -> Result<Step> {
        let contest = self.attempt.contest();
        // A permit lists with a watch, for which the node must be there already.
        let lists = contest.role != Role::Permit && !self.attempt.expects_nobody();
        let early = self.early.take();
        let pipelined = lists || early.is_some();
        let (call_id, stamp) = match &early {
            Some((early, stamp)) => (early.call_id, *stamp),
            None => self.post_create(prefix, pipelined),
        };
        self.listing = None;
        let answered = match self.answer(call_id) {
            Ok(answered) => answered,
            // The other thread may not have sent it yet: the one that hears the answer cleans up.
            Err(LimitReached) if early.is_some() => return Ok(Step::Report(Event::Cancel)),
            Err(LimitReached) => {
                // The request is under way: its node must be looked for.
                self.attempt.handle(Event::ReplyLost);
                return Ok(Step::Report(Event::Cancel));
            }
        };
        if let Some((early, _)) = early {
            early.finish();
        }
        match answered {
            Ok(Reply::Created { path, stat }) => {
                self.proof.stamp = Some(stamp);
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

    fn post_create(&mut self, prefix: &str, lists: bool) -> (CallId, Stamp) {
        let (contest, note) = (self.attempt.contest(), self.request.note.as_deref());
        let create = creation(self.session, self.queue, contest, note, prefix);
        let listing = lists.then(|| Request::list(self.queue.dir));
        let stamp = self.session.status.stamp();
        (self.post([create].into_iter().chain(listing)), stamp)
    }

    pub(super) fn make_parents(&mut self) -> Result<Step> {
        // Before a permit's directory is made again, its client has to look whether the path has
        // become another lock's.
        if let (Role::Permit, Lasting::WhileUsedIn(_)) = (self.queue.role, self.queue.lasting) {
            return Ok(Step::Report(Event::Cancel));
        }
        let (dirs, limit) = ([self.queue.dir.to_owned()], &self.request.limit);
        let lasting = self.queue.lasting;
        let made = self
            .session
            .make_directories(self.caller, &dirs, lasting, limit)?;
        Ok(Step::Report(match made {
            Ok(()) => Event::ParentsMade,
            Err(LimitReached) => Event::Cancel,
        }))
    }

    /// Has the server catch up once what earlier calls of this client have left is gone, which would look
    /// like somebody else's node.
    pub(super) fn catch_up(&mut self) -> Result<Step> {
        let (cleaner, limit) = (&self.session.cleaner, &self.request.limit);
        cleaner.finish(self.queue.dir, limit);
        self.sync()
    }

    /// Has the server catch up, and lists the directory in the same write.
    pub(super) fn sync(&mut self) -> Result<Step> {
        let sync = self.session.transport.capabilities().sync(self.queue.dir);
        let call_id = self.post([sync, Request::list(self.queue.dir)]);
        match self.answer(call_id) {
            Err(LimitReached) => Ok(Step::Report(Event::Cancel)),
            // A refusal passes through the quorum too.
            Ok(Ok(_) | Err(Failure::Refused(_))) => {
                self.listing = Some(Listing::Asked(call_id.next()));
                Ok(Step::Report(Event::Synced))
            }
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
                self.without_idle_semaphore(names)
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
                    self.tell(&blocked)?;
                }
                Ok(Step::Report(Event::Children(names)))
            }
            Ok(answered) => self.not_watching(answered),
        }
    }

    pub(super) fn inspect(&mut self, name: &str) -> Result<Step> {
        let answered = match self.looks_ahead(name) {
            Some(call_id) => self.answer(call_id),
            None => self.ask(Request::exists(&self.full(name))),
        };
        if !matches!(answered, Ok(Ok(_))) {
            self.looked = None;
        }
        match answered {
            Err(LimitReached) => Ok(Step::Report(Event::Cancel)),
            Ok(Ok(Reply::Stat(stat))) => Ok(Step::Report(Event::Inspected(origin(stat)))),
            Ok(Err(Failure::Refused(ErrorCode::NO_NODE))) => Ok(Step::Report(Event::NoNode)),
            Ok(answered) => self.trouble(answered),
        }
    }

    /// If the listing that was sent with the create shows others ahead of this node, asks for the
    /// watches together with the node.
    fn looks_ahead(&mut self, name: &str) -> Option<CallId> {
        if self.request.patience == Patience::Tries {
            return None;
        }
        let Some(Listing::Asked(call_id)) = self.listing else {
            return None;
        };
        let answered = self.answer(call_id).ok()?;
        let place = match &answered {
            Ok(Reply::Children { names, .. }) => self.attempt.contest().place(names, name),
            _ => Place::Missing,
        };
        self.listing = Some(Listing::Read(answered));
        let Place::Blocked(blocked) = place else {
            return None;
        };
        if !blocked.watches_around() {
            return None;
        }
        let call_id = self.look_around(&blocked, name);
        self.looked = Some((blocked, call_id));
        Some(call_id)
    }

    pub(super) fn births(&mut self, names: &[String]) -> Result<Step> {
        let look = |name: &String| Request::Exists {
            path: self.full(name),
            watch: false,
        };
        let requests: Vec<_> = names.iter().map(look).collect();
        let mut call_id = self.post(requests);
        let mut births = BTreeMap::new();
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
        self.session.status.grants_on(&self.proof)
    }

    /// Makes sure that a quorum confirmed the session a moment ago, and that the session will
    /// live long enough for the next proof. Without a long wait, the create has proven that.
    pub(super) fn prove(&mut self, name: &str) -> Result<Step> {
        if self.is_proven() {
            return Ok(Step::Report(Event::Proved));
        }
        let (nodes, limit) = ([self.full(name)], &self.request.limit);
        match ask(&mut self.proof, self.session, self.caller, &nodes, limit) {
            Err(LimitReached) => Ok(Step::Report(Event::Cancel)),
            Ok(Asked::Again) => Ok(self.changed()?.unwrap_or(Step::Again)),
            Ok(Asked::Gone(_)) => Ok(Step::Report(Event::NoNode)),
            Ok(Asked::Unanswered(failure)) => self.trouble(Err(failure)),
        }
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
