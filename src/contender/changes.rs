//! Waits for a change of a lock's contenders.
//!
//! There is one watch on each directory, or on its creation. All directories are listed again
//! whenever a watch fires or the client reconnects. No event is missed, because the request that
//! lists sets the watch.

use std::collections::BTreeSet;
use std::slice;
use std::sync::Arc;

use crate::contender::{Contender, reads};
use crate::error::{Error, Result};
use crate::guard::GuardEvent;
use crate::path::{name, parent};
use crate::session::Session;
use crate::session::call_error::CallError;
use crate::session::caller::Caller;
use crate::system::channel::{Receiver, Sender, Waitable, unbounded};
use crate::time::limit::{Limit, LimitReached};
use crate::transport::{Fired, Watch, WatchId};
use zklock_core::places::{Places, Spots};
use zklock_jute::Names;
use zklock_jute::{ErrorCode, Reply, Request};

/// One watch on each of several nodes; dropping it removes them.
struct Watcher<'a> {
    session: &'a Session,
    id: WatchId,
    to: Sender<Fired>,
    fired: Receiver<Fired>,
    nodes: Vec<String>,
}

impl Session {
    /// Returns the contenders once they differ from the `known` ones, or at the limit. Returns
    /// `None` if no server has listed them by then.
    pub(crate) fn wait_for_change(
        self: &Arc<Self>,
        path: &str,
        known: &[Contender],
        limit: &Limit,
    ) -> Result<Option<Vec<Contender>>> {
        // The `known` contenders, while the last answer in this call has confirmed them.
        let mut confirmed = None;
        let changed = self.watch_until(path, limit, |spots| {
            confirmed = None;
            if !is_known(spots, known) {
                let present = match self.contenders_behind(&[], path, || limit.clone()) {
                    Ok(present) => present,
                    Err(error) => return error.or(path, None),
                };
                // A new contender may have left before it was read.
                if !is_same(&present, known) {
                    return Ok(Some(present));
                }
            }
            confirmed = Some(known.to_vec());
            Ok(None)
        })?;
        Ok(changed.or(confirmed))
    }

    /// Returns the names of the readers that hold once they differ from the `known` ones; `None` at the limit.
    pub(crate) fn other_readers(
        &self,
        path: &str,
        known: Option<&BTreeSet<String>>,
        limit: &Limit,
    ) -> Result<Option<BTreeSet<String>>> {
        self.watch_until(path, limit, |spots| {
            let read = spots.own.iter().filter(|spot| reads(spot.role, spot.holds));
            let names: BTreeSet<_> = read.map(|spot| name(&spot.node).to_owned()).collect();
            Ok(Some(names).filter(|names| known != Some(names)))
        })
    }

    /// Looks at the nodes of a path, now and whenever they may have changed, until there is something to return;
    /// `None` at the limit.
    fn watch_until<T>(
        &self,
        path: &str,
        limit: &Limit,
        mut find: impl FnMut(&Spots) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let mut caller = self.caller();
        loop {
            let changes = caller.changes().clone();
            let mut watcher = Watcher::new(self);
            let spots = match watcher.look(path, &mut caller, limit) {
                Ok(spots) => spots,
                Err(error) => return error.or(path, None),
            };
            if let Some(found) = find(&spots)? {
                return Ok(Some(found));
            }
            if watcher.wait(&[&changes], limit).is_err() {
                return Ok(None);
            }
            let _ = changes.try_recv();
        }
    }

    /// Returns whether the node, or its directory if the node may not be read, may have changed, the node does
    /// not exist, or the guard had an event, before the limit was reached.
    pub(crate) fn touched(
        &self,
        node: &str,
        events: &Receiver<GuardEvent>,
        limit: &Limit,
    ) -> Result<bool> {
        let mut caller = self.caller();
        let changes = caller.changes().clone();
        let mut watcher = Watcher::new(self);
        match watcher.finds(node, &mut caller, limit) {
            Ok(true) => {
                let touched = watcher.wait(&[&changes, events], limit).is_ok();
                let _ = events.try_recv();
                Ok(touched)
            }
            Ok(false) => Ok(true),
            Err(error) => error.or(node, false),
        }
    }
}

impl<'a> Watcher<'a> {
    fn new(session: &'a Session) -> Self {
        let (to, fired) = unbounded();
        Self {
            session,
            id: session.leases.next_watch(),
            to,
            fired,
            nodes: Vec::new(),
        }
    }

    /// Sets the watches and lists the contenders.
    fn look(&mut self, path: &str, caller: &mut Caller, limit: &Limit) -> Result<Spots, CallError> {
        Places::of(path).spots(|dir, counts| match counts {
            true => self.list(dir, caller, limit),
            false => Ok(None),
        })
    }

    /// Sets a watch on a directory and lists it; returns `None` if the directory does not exist.
    fn list(
        &mut self,
        dir: &str,
        caller: &mut Caller,
        limit: &Limit,
    ) -> Result<Option<Names>, CallError> {
        let list = Request::list(dir).and_watch();
        let await_it = Request::exists(dir).and_watch();
        loop {
            for request in [&list, &await_it] {
                match self.ask(request.clone(), dir, caller, limit)? {
                    Some(Reply::Children { names, .. }) => return Ok(Some(names)),
                    None if *request == await_it => return Ok(None),
                    // The directory was deleted or created between the two requests: list it again.
                    _ => {}
                }
            }
        }
    }

    /// Sets a watch on a node; returns whether the node exists.
    fn finds(&mut self, node: &str, caller: &mut Caller, limit: &Limit) -> Result<bool, CallError> {
        let read = Request::get(node).and_watch();
        match self.ask(read, node, caller, limit) {
            // A client that may not read a node gets no event of it, not even of its deletion.
            Err(
                CallError::Refused(ErrorCode::NO_AUTH)
                | CallError::Over(Error::ReplyTooLong { .. }),
            ) => {
                let names = self.list(parent(node), caller, limit)?;
                Ok(names.is_some_and(|names| names.contains(name(node))))
            }
            answered => Ok(answered?.is_some()),
        }
    }

    /// Repeats a request with a watch until it is answered; returns `None` if the node does not exist.
    fn ask(
        &mut self,
        request: Request,
        node: &str,
        caller: &mut Caller,
        limit: &Limit,
    ) -> Result<Option<Reply>, CallError> {
        if !self.nodes.iter().any(|known| known == node) {
            self.nodes.push(node.to_owned());
        }
        let watch = Watch::new(self.id, self.to.clone());
        let request = (slice::from_ref(&request), Some(&watch));
        let replies = caller.send(request, true, node, limit)?;
        match replies.and_then(|mut replies| replies.pop()) {
            Some(Err(ErrorCode::NO_NODE)) | None => Ok(None),
            Some(answered) => answered.map(Some).map_err(CallError::Refused),
        }
    }

    /// Waits until a watch fires or one of the channels has a message, which its reader must take.
    fn wait(&self, others: &[&dyn Waitable], limit: &Limit) -> Result<(), LimitReached> {
        let fired: [&dyn Waitable; 1] = [&self.fired];
        let wait = || limit.wait_any(&[&fired, others].concat());
        self.session.transport.while_attended(wait).map(|_| ())
    }
}

impl Drop for Watcher<'_> {
    fn drop(&mut self) {
        for node in &self.nodes {
            self.session.transport.unwatch(node, self.id);
        }
    }
}

/// Returns whether the contenders are the known ones, holders included: with the same nodes,
/// another contender may hold. A contender that was listed behind a holder that left before it was
/// read is known as a waiter.
fn is_known(spots: &Spots, known: &[Contender]) -> bool {
    let present = spots.all().map(|spot| (spot.node.as_str(), spot.holds));
    let known = known.iter().map(|one| (one.node(), one.holds()));
    present.collect::<BTreeSet<_>>() == known.collect()
}

fn is_same(present: &[Contender], known: &[Contender]) -> bool {
    let key = |one: &Contender| (one.node().to_owned(), one.token(), one.holds());
    present.iter().map(key).eq(known.iter().map(key))
}
