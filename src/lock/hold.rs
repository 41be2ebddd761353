//! Creates a hold: in place of a lock that is held, or at the end of a queue.
//!
//! A contender that waits without a process would get the lock with nobody there. A client that
//! wants to leave a hold therefore waits as any other contender does, with a node of its session.
//! Once that node is first, one transaction creates the hold with the same number and deletes the
//! node: no other contender comes in between, and a process that dies before leaves nothing.
//!
//! A waiter behind a node that was alone ahead may take its deletion for its turn, without listing
//! the queue again ([`Kind::passes_on`]). The same transaction therefore writes such a node first.
//! A watch fires once: the waiter gets the event of the write, and lists the queue, which contains
//! the hold. Other nodes are not written: Curator's `LeaderLatch` looks again only at a deletion,
//! and would wait for ever.
//!
//! [`Kind::passes_on`]: zklock_core::dialect::Kind::passes_on

use std::mem;

use super::fresh_id::fresh_hold_id;
use super::raw_guard::RawGuard;
use crate::error::{Error, Result};
use crate::hold::Hold;
use crate::path;
use crate::session::Session;
use crate::session::call_error::CallError;
use crate::session::caller::Caller;
use crate::time::limit::{Limit, LimitReached};
use zklock_core::attempt::Orphan;
use zklock_core::dialect::Role;
use zklock_core::directories::Lasting;
use zklock_core::journal::Journal;
use zklock_core::name::{NodeName, prefix};
use zklock_core::path::node_in;
use zklock_core::queue::{Contest, Foreign, Place, own};
use zklock_jute::{CreateMode, ErrorCode, Names, Reply, Request};

impl RawGuard {
    /// Replaces the lock's node by a hold and returns the hold's node. The caller drops the guard
    /// next. Blocks until the write is confirmed, at most until the lock is lost.
    pub(crate) fn leave_hold(&self, hold: &Hold) -> Result<String> {
        self.check()?;
        let node = self.hold_node()?;
        let exchange = self.exchange(&node, hold);
        let (limit, path) = (Limit::after(self.valid_for()), self.lease().path());
        let mut caller = self.session().caller();
        self.stop_watching();
        match caller.call(&exchange, path, &limit) {
            // The name is fresh: if the node exists, an earlier request created it.
            Ok(_) | Err(CallError::Refused(ErrorCode::NODE_EXISTS)) => {
                self.mark_left();
                Ok(node)
            }
            Err(CallError::Refused(ErrorCode::NO_NODE)) => Err(self.found_gone()),
            Err(error) => Err(error.into_error(path, || {
                self.mark_in_doubt();
                Error::unconfirmed_write("the hold", limit.spent())
            })),
        }
    }

    /// Returns the path of the hold's node, of the same kind and number as the lock's.
    fn hold_node(&self) -> Result<String> {
        let session = self.session();
        let unsupported = || Error::Unsupported { what: "a hold" };
        if !session.transport.transacts() || self.nodes().len() != 1 {
            return Err(unsupported());
        }
        let name = NodeName::parse(path::name(self.node()));
        let name = name.filter(|name| matches!(name.kind.role(), Role::Exclusive | Role::Write));
        let name = name.ok_or_else(unsupported)?;
        let (dialect, role) = (session.settings.dialect, name.kind.role());
        let hold = name.in_its_place(&prefix(dialect, role, &fresh_hold_id()));
        let hold = hold.ok_or_else(|| Error::Exhausted {
            path: self.lease().path().to_owned(),
            reason: "a hold would lose its place",
        })?;
        Ok(node_in(path::parent(self.node()), &hold))
    }

    fn exchange(&self, node: &str, hold: &Hold) -> Request {
        let (session, mine) = (self.session(), self.node());
        let data = hold.written(&session.settings.card, Some(self.token().get()));
        let create = Request::create(node, data, session.acl(), CreateMode::Persistent);
        let roles = [Role::Exclusive, Role::Read, Role::Write];
        let passes_on = |name: &NodeName| roles.iter().any(|to| name.kind.passes_on(*to));
        let write = NodeName::parse(path::name(mine))
            .filter(passes_on)
            .map(|_| Request::set(mine, Vec::new(), -1));
        let delete = Request::delete(mine.to_owned());
        let ops = [Some(create), write, Some(delete)];
        Request::Multi(ops.into_iter().flatten().collect())
    }
}

impl Session {
    /// Creates a hold at the end of the queue at a path and returns its node. Fails if the queue
    /// has contenders that would not wait for the hold. Readers and writers of other libraries wait
    /// for a writer only.
    pub(crate) fn plant_hold(&self, path: &str, hold: &Hold) -> Result<String> {
        let limit = Self::query_limit();
        let mut caller = self.caller();
        let mut refusal = None;
        for role in [Role::Exclusive, Role::Write] {
            let contest = Contest {
                dialect: self.settings.dialect,
                role,
                permits: 0,
            };
            // A node that will be deleted again must not keep others from the path meanwhile.
            let names = self.names(&mut caller, path, &limit)?;
            let foreign = match contest.is_taken(&names) {
                Err(foreign) => foreign,
                Ok(_) => {
                    let name = self.plant(&mut caller, path, (contest, hold), &limit)?;
                    match self.is_refused(&mut caller, path, (contest, &name), &limit) {
                        Ok(None) => return Ok(format!("{path}/{name}")),
                        Ok(Some(foreign)) => foreign,
                        Err(error) => return Err(self.leaves_hold(path, (name, error), &limit)),
                    }
                }
            };
            refusal.get_or_insert(foreign);
        }
        match refusal {
            Some(foreign) => Err(self.foreign(path, foreign)),
            None => Err(Error::Unsupported { what: "a hold" }),
        }
    }

    /// Looks for a contender that would not wait for the hold with this name; deletes the hold if there is one.
    fn is_refused(
        &self,
        caller: &mut Caller,
        path: &str,
        (contest, name): (Contest, &str),
        limit: &Limit,
    ) -> Result<Option<Foreign>> {
        let names = self.names(caller, path, limit)?;
        let Place::Foreign(foreign) = contest.place(&names, name) else {
            return Ok(None);
        };
        // Without an answer, the hold may still be there.
        while !self.delete_once(&format!("{path}/{name}"), -1, limit)? {}
        Ok(Some(foreign))
    }

    /// Hands a hold that may have to go to the cleaner, and returns the error.
    fn leaves_hold(&self, path: &str, (name, error): (String, Error), limit: &Limit) -> Error {
        let session = self.status.snapshot().session;
        self.cleaner.add(path, session, vec![Orphan::Node(name)]);
        match error {
            Error::ConnectTimeout { .. } => Self::unconfirmed(limit),
            error => error,
        }
    }

    /// Deletes a directory that was created for a hold and has not been used since.
    pub(crate) fn tidy_after_hold(&self, path: &str) -> Result<()> {
        let Some(Reply::Data { data, stat }) = self.read(&Request::get(path), path)? else {
            return Ok(());
        };
        let unused = (stat.version, stat.num_children) == (0, 0);
        if !unused || Vec::from(data) != Journal::EMPTY {
            return Ok(());
        }
        match self.delete_once(path, 0, &Self::query_limit()) {
            // Another client came in between.
            Err(Error::Refused { code, .. }) if code == ErrorCode::NOT_EMPTY.0 => Ok(()),
            deleted => deleted.map(drop),
        }
    }

    /// Creates the node of a hold and, if needed, its directory; returns the node's name.
    fn plant(
        &self,
        caller: &mut Caller,
        path: &str,
        (contest, hold): (Contest, &Hold),
        limit: &Limit,
    ) -> Result<String> {
        let fresh = || prefix(contest.dialect, contest.role, &fresh_hold_id());
        let mut prefix = fresh();
        loop {
            let create = self.creation_of_hold(&format!("{path}/{prefix}"), hold);
            match caller.call_once(&create, path, limit) {
                Ok(Some(Reply::Created { path, .. })) => return Ok(path::name(&path).to_owned()),
                // The answer was lost, and the server that is asked next may lag.
                Ok(_) => {
                    let caught_up = self.catch_up(path, limit);
                    let names = caught_up.and_then(|()| self.names(caller, path, limit));
                    let mine = names.as_ref().map(|names| own(names, &prefix));
                    if let Some(name) = mine.ok().as_deref().and_then(<[_]>::first) {
                        return Ok(name.text.to_owned());
                    }
                    // The lost create may still be carried out, and there must not be two holds.
                    let asked = Orphan::Prefix(mem::replace(&mut prefix, fresh()));
                    let session = self.status.snapshot().session;
                    self.cleaner.add(path, session, vec![asked]);
                    names.map_err(|_| Self::unconfirmed(limit))?;
                }
                Err(CallError::Refused(ErrorCode::NO_NODE)) => {
                    let dirs = [path.to_owned()];
                    // A job does not use a directory that the server may remove, while other locks
                    // can use a job's directory.
                    let lasting = Lasting::Always(Journal::EMPTY);
                    let made = self.make_directories(&dirs, lasting, limit)?;
                    made.map_err(|LimitReached| Self::unconfirmed(limit))?;
                }
                Err(error) => return Err(error.into_error(path, || Self::unconfirmed(limit))),
            }
        }
    }

    fn creation_of_hold(&self, node: &str, hold: &Hold) -> Request {
        let data = hold.written(&self.settings.card, None);
        Request::create(node, data, self.acl(), CreateMode::PersistentSequential)
    }

    /// Lists a queue; a missing queue is empty.
    fn names(&self, caller: &mut Caller, path: &str, limit: &Limit) -> Result<Names> {
        match caller.call(&Request::list(path), path, limit) {
            Ok(Reply::Children { names, .. }) => Ok(names),
            Ok(_) | Err(CallError::Refused(ErrorCode::NO_NODE)) => Ok(Names::default()),
            Err(error) => Err(error.into_error(path, || self.unanswered())),
        }
    }
}
