//! Leads a user's thread to the head of a queue.
//!
//! The acquisition in `zklock_core` decides. The thread reports what happens, sends the requests
//! that follow, and sleeps. However it ends, even by a panic of the caller's closure, the cleaner
//! gets the nodes that the acquisition leaves in the directory.

mod wait;
mod wired;

use std::ops::ControlFlow;

pub(super) use self::wired::Early;
use self::wired::Wired;
use super::fresh_id::fresh_id;
use super::request::{LockRequest, Queue};
use crate::error::{Error, Result};
use crate::session::Session;
use crate::session::call_error::{not_made, refused};
use crate::session::caller::Caller;
use crate::session::lease::Lease;
use crate::transport::Failure;
use crate::transport::session_state::SessionState;
use crate::transport::status::{Snapshot, Subscription};
use zklock_core::acquisition::{About, Acquisition, Reached as Outcome, Refused};
use zklock_core::attempt::{Orphan, OwnNode, Patience};
use zklock_core::skip_listing::LastGrant;
use zklock_core::validity::Stamp;
use zklock_jute::Names;

/// The outcome of reaching the head of a queue.
pub(crate) struct Reached {
    pub(crate) lease: Lease,
    pub(crate) mine: OwnNode,
    /// The connection through which the wait for others ended, if there was one.
    pub(crate) waited: Option<u64>,
    /// Whether a semaphore has directories here; its clients use up no numbers of the queue.
    pub(crate) beside_semaphore: bool,
}

/// Goes through a queue. Returns `None` if the lock is taken, the limit was reached, or there is no
/// directory, which the caller then creates. Afterwards the request tells whether a server has said
/// that the lock is taken, or that the directory is missing.
///
/// `last` is the caller's last grant. The requests in `prepared` may have been sent.
pub(super) fn acquire(
    session: &Session,
    queue: &Queue<'_>,
    request: &mut LockRequest<'_>,
    last: Option<LastGrant>,
    prepared: Option<(Caller, Early)>,
) -> Result<Option<Reached>> {
    request.read = None;
    let (mut caller, early) = match prepared {
        Some((caller, early)) => (caller, Some(early)),
        None => (session.caller(), None),
    };
    let Some(snapshot) = caller.connected(&request.limit)? else {
        return Ok(None);
    };
    if queue.is_pointless() {
        return Ok(None);
    }
    let early = early.and_then(|early| early.sent_in(snapshot.session));
    let cleaner = &session.cleaner;
    if early.is_none() && !cleaner.await_backlog(queue.dir, &mut caller, &request.limit)? {
        return Ok(None);
    }
    let acquisition = enter(session, queue, request.patience, (snapshot, &early), last);
    let here = (&mut caller, snapshot);
    let mut driver = Driver::new(session, queue, request, acquisition, here);
    driver.wired.early = early.map(|(early, _)| early);
    match driver.run()? {
        ControlFlow::Break(reached) => Ok(reached),
        ControlFlow::Continue(()) => {
            request.lacks_directory = true;
            Ok(None)
        }
    }
}

/// Creates an acquisition whose create may have been sent early, by another thread.
fn enter(
    session: &Session,
    queue: &Queue<'_>,
    patience: Patience,
    (snapshot, early): (Snapshot, &Option<(Early, Stamp)>),
    last: Option<LastGrant>,
) -> Acquisition {
    let id = early
        .as_ref()
        .map_or_else(fresh_id, |(early, _)| early.id.clone());
    let known = snapshot.known_session();
    let (asks, dir) = ((queue.contest(session), patience), queue.dir.into());
    let mut acquisition = Acquisition::enter(asks, (&dir, &id), last, known);
    if queue.has_room {
        acquisition.note_room();
    }
    if let Some(node) = queue.under.and_then(|under| under.nodes().first()) {
        acquisition.note_under(node.clone());
    }
    if let Some((early, stamp)) = early {
        acquisition.note_create(early.call_id, *stamp);
        acquisition.note_listing(early.call_id.next());
    }
    acquisition
}

/// Waits in a queue in which a node of the caller stands already, created through this connection
/// and with this stamp. If the queue was listed since then through another connection, it is listed
/// again. Breaks with the lock, or without it at the limit; continues if the node has gone with its
/// session. Fails if the node is deleted, or one of those that the caller has `elsewhere`.
pub(super) fn stand(
    session: &Session,
    queue: &Queue<'_>,
    request: &mut LockRequest<'_>,
    (mine, snapshot, stamp): (OwnNode, Snapshot, Stamp),
    (listing, elsewhere): (Option<Names>, Vec<String>),
) -> Result<ControlFlow<Option<Reached>>> {
    let asks = (queue.contest(session), request.patience);
    let mut acquisition = Acquisition::stand(asks, &queue.dir.into(), (mine, stamp));
    acquisition.provide_listing(listing);
    acquisition.note_elsewhere(elsewhere);
    let here = (&mut session.caller(), snapshot);
    Driver::new(session, queue, request, acquisition, here).run()
}

/// Looks whether a queue is taken, which this connection may have listed already. Breaks if it is, or at the limit;
/// continues if nobody is there.
pub(super) fn look(
    session: &Session,
    queue: &Queue<'_>,
    request: &mut LockRequest<'_>,
    snapshot: Snapshot,
    listing: Option<Names>,
) -> Result<ControlFlow<Option<Reached>>> {
    let mut acquisition = Acquisition::look(queue.contest(session), &queue.dir.into());
    acquisition.provide_listing(listing);
    let here = (&mut session.caller(), snapshot);
    Driver::new(session, queue, request, acquisition, here).run()
}

/// An acquisition in progress.
struct Driver<'a, 'q> {
    session: &'a Session,
    queue: &'a Queue<'a>,
    request: &'a mut LockRequest<'q>,
    acquisition: Acquisition,
    wired: Wired<'a>,
    /// The node that holds the lock by now, or that is left to the cleaner.
    node: Option<String>,
    /// Reports changes of the connection on the channel of the watches' events.
    listening: Option<Subscription>,
    told: Option<(String, usize)>,
    /// The transport carries no request, of a forked child's for example.
    is_closed: bool,
}

impl<'a, 'q> Driver<'a, 'q> {
    fn new(
        session: &'a Session,
        queue: &'a Queue<'a>,
        request: &'a mut LockRequest<'q>,
        mut acquisition: Acquisition,
        (caller, snapshot): (&'a mut Caller, Snapshot),
    ) -> Self {
        // A lagging server still shows nodes that this client has left, which look like others' nodes.
        acquisition.note_own_left(acquisition.tries());
        acquisition.hurry_by(request.overdue.take(), queue.held);
        if let Some(seen) = request.seen.take() {
            acquisition.record_seen(seen);
        }
        acquisition.read_behind(queue.reads.to_vec());
        let note = request.note.clone();
        Self {
            session,
            queue,
            request,
            acquisition,
            wired: Wired::new(session, queue, note, (caller, snapshot)),
            node: None,
            listening: None,
            told: None,
            is_closed: false,
        }
    }

    /// Breaks with the lock, or without it at the limit; continues if the caller must start over, because its
    /// node has gone with its session, or there is no directory, or if a look finds nobody.
    fn run(mut self) -> Result<ControlFlow<Option<Reached>>> {
        loop {
            self.look_at_connection()?;
            let left = self.acquisition.left();
            self.clean_up(left);
            let reached = self.acquisition.advance(&mut self.wired);
            // Another attempt of the same call may have started with a new limit.
            if self.acquisition.is_taken() {
                self.request.note_taken();
            }
            if let Some(reached) = reached {
                return self.finish(reached);
            }
            if self.acquisition.lets_own_go() {
                self.wired.reading = None;
                let try_in = (self.queue.dir, self.acquisition.sharing());
                let limit = &self.request.limit;
                self.session.cleaner.finish(try_in, limit);
                self.acquisition.note_own_left(false);
                continue;
            }
            let rests_until = self.acquisition.rests_until();
            self.take_in(rests_until)?;
        }
    }

    /// Reports a change of the connection to the acquisition, once everything sent through the
    /// previous one is answered.
    fn look_at_connection(&mut self) -> Result<()> {
        let snapshot = self.session.status.snapshot();
        if snapshot.is_over() || self.is_closed {
            return Err(self.session.over());
        }
        let here = snapshot.connects == self.wired.snapshot.connects;
        let connected = snapshot.state == SessionState::Connected;
        self.wired.connected = here && connected;
        if here || !connected || !self.acquisition.is_quiet() {
            return Ok(());
        }
        let resumed = snapshot.session == self.wired.snapshot.session;
        self.wired.unwatch_others(None);
        self.wired.snapshot = snapshot;
        self.wired.connected = true;
        self.acquisition.broke();
        self.acquisition.connected(resumed, &mut self.wired);
        if !resumed {
            self.acquisition.note_own_left(self.acquisition.tries());
        }
        if self.queue.is_pointless() {
            self.acquisition.cancel(&mut self.wired);
        }
        Ok(())
    }

    fn clean_up(&self, left: Vec<Orphan>) {
        if !left.is_empty() {
            let session = self.wired.snapshot.session;
            self.session.cleaner.add(self.queue.dir, session, left);
        }
    }

    fn finish(mut self, outcome: Outcome) -> Result<ControlFlow<Option<Reached>>> {
        match outcome {
            Outcome::Held(mine, stamp) => Ok(ControlFlow::Break(Some(self.reached(mine, stamp)))),
            Outcome::GaveUp => Ok(ControlFlow::Break(None)),
            Outcome::Restart => Ok(ControlFlow::Continue(())),
            Outcome::Evicted(node) => Err(Error::Evicted { node }),
            Outcome::Foreign(foreign) => Err(self.session.foreign(self.queue.dir, foreign)),
            Outcome::Refused(refused) => Err(self.refused(refused)),
        }
    }

    fn refused(&self, Refused { failure, about }: Refused) -> Error {
        let dir = self.queue.dir;
        let path = match &about {
            About::Parents | About::Queue => dir,
            About::Node(node) => node,
        };
        match (failure, &about) {
            (Failure::Refused(code), About::Parents) => not_made(dir, code),
            (Failure::Refused(code), _) => refused(path, code),
            (Failure::TooLong(long), _) => Error::too_long(long, path),
            _ => self.session.status.ending(),
        }
    }

    /// Notes the caller's node, so that its watch is kept: the watch goes with the node.
    fn leaves_its_node(&mut self) {
        if let Some(name) = self.acquisition.node() {
            self.node = Some(format!("{}/{name}", self.queue.dir));
        }
    }

    fn reached(&mut self, mine: OwnNode, stamp: Stamp) -> Reached {
        let waited = self.acquisition.has_waited();
        if waited {
            // The recorder is the user's code.
            self.wired.reading = None;
            self.session.counters.waited(self.queue.path);
        }
        let read = self.acquisition.take_read();
        self.request.read = read.filter(|_| self.wired.caller.is_steady(&self.wired.snapshot));
        let node = format!("{}/{}", self.queue.dir, mine.name);
        self.node = self.wired.watches().then(|| node.clone());
        let session = self.wired.snapshot.session;
        let bounds = self.session.status.bounds(session);
        let lease = Lease::new(self.queue.path, vec![node], session, bounds, stamp);
        Reached {
            lease,
            mine,
            waited: waited.then_some(self.wired.snapshot.connects),
            beside_semaphore: self.acquisition.is_beside_semaphore(),
        }
    }
}

impl Drop for Driver<'_, '_> {
    fn drop(&mut self) {
        self.leaves_its_node();
        self.wired.unwatch_others(self.node.as_deref());
        // This changes nothing if the acquisition has ended.
        self.acquisition.cancel(&mut self.wired);
        let left = self.acquisition.orphans();
        self.clean_up(left);
        self.request.overdue = self.acquisition.hurried();
        self.request.seen = self.acquisition.take_seen();
    }
}
