//! Carries out an attempt on the caller's thread.
//!
//! The protocol decides, and the driver acts: it sends what [`Attempt::action`] asks for, waits
//! for the answer, the limit or a change of the connection, and reports. However it ends, even
//! by a panic of the caller's closure, the cleaner gets what the attempt leaves in the directory.

mod evict_overdue;
mod holds;
mod holds_ahead;
mod idle_semaphore;
mod set_watches;
mod steps;
mod wait;
mod watched;

use std::collections::VecDeque;
use std::fmt;
use std::time::Instant;

use self::holds_ahead::HoldsAhead;
use self::watched::{Listing, Watched};
use super::fresh_id::fresh_id;
use super::prepared_create::{Early, Prepared};
use super::request::{LockRequest, Queue};
use crate::error::{Error, Result};
use crate::session::Session;
use crate::session::call_error::CallError;
use crate::session::caller::Caller;
use crate::session::lease::Lease;
use crate::system::clock;
use crate::time::limit::LimitReached;
use crate::transport::mailbox::Mailbox;
use crate::transport::session_state::SessionState;
use crate::transport::status::{Snapshot, Subscription};
use crate::transport::{Answered, CallId};
use crate::transport::{Failure, Fired};
use zklock_core::attempt::{Action, Attempt, Event, Origin, Outcome, OwnNode};
use zklock_core::grant_proof::GrantProof;
use zklock_core::queue::Blocked;
use zklock_core::skip_listing::LastGrant;
use zklock_core::validity::Stamp;
use zklock_jute::{Request, Stat};

/// The head of a queue, reached.
pub(crate) struct Reached {
    pub(crate) lease: Lease,
    pub(crate) mine: OwnNode,
    /// Others were ahead.
    pub(crate) waited: bool,
    /// A semaphore has directories here, whose clients use up no numbers of the queue.
    pub(crate) beside_semaphore: bool,
}

/// Goes through a queue; `None` if the lock is taken or the limit was reached. The request tells
/// afterwards whether a server has said that it is taken.
///
/// `last` is the caller's last grant; what was `prepared` may have been sent.
pub(super) fn acquire(
    session: &Session,
    queue: &Queue<'_>,
    request: &mut LockRequest<'_>,
    mut last: Option<LastGrant>,
    prepared: Option<Prepared>,
) -> Result<Option<Reached>> {
    let since = clock::now();
    let (mut caller, mut early) = match prepared {
        Some(Prepared { caller, early }) => (caller, Some(early)),
        None => (session.caller(), None),
    };
    loop {
        let Some(snapshot) = caller.connected(&request.limit)? else {
            return Ok(None);
        };
        if queue.is_pointless() {
            return Ok(None);
        }
        let contest = queue.contest(session);
        let resumes = session.transport.capabilities().resumes;
        let known = resumes.then_some(snapshot.session);
        let early = early
            .take()
            .and_then(|early| early.sent_in(snapshot.session));
        let id = early
            .as_ref()
            .map_or_else(fresh_id, |(early, _)| early.id.clone());
        let attempt = Attempt::enter(contest, &id, known, request.patience);
        let attempt = attempt.after(last.take());
        let mut driver = Driver::new(session, queue, request, attempt, &mut caller, snapshot);
        driver.since = since;
        driver.early = early;
        match driver.run()? {
            Progress::Reached(reached) => return Ok(Some(reached)),
            Progress::LimitReached => return Ok(None),
            Progress::Restart => request.loses_sight(),
        }
    }
}

/// Waits in a queue where a node of ours stands already, which was created through this
/// connection and at this moment.
pub(super) fn stand(
    session: &Session,
    queue: &Queue<'_>,
    request: &mut LockRequest<'_>,
    (mine, snapshot, stamp): (OwnNode, Snapshot, Stamp),
) -> Result<Progress> {
    let mut caller = session.caller();
    let contest = queue.contest(session);
    let attempt = Attempt::queued(contest, mine, request.patience);
    let mut driver = Driver::new(session, queue, request, attempt, &mut caller, snapshot);
    driver.proof.stamp = Some(stamp);
    driver.run()
}

/// One attempt on its way.
struct Driver<'a, 'q> {
    session: &'a Session,
    queue: &'a Queue<'a>,
    request: &'a mut LockRequest<'q>,
    attempt: Attempt,
    caller: &'a mut Caller,
    snapshot: Snapshot,
    since: Instant,
    proof: GrantProof,
    /// The listing that was sent in the same write as the create, or when the queue moved.
    listing: Option<Listing>,
    /// The create that another thread has sent, and when.
    early: Option<(Early, Stamp)>,
    /// The watches that were asked for after that listing, before the attempt asks for them.
    looked: Option<(Blocked, CallId)>,
    watched: Watched,
    /// Counts what was prefetched.
    prefetches: u64,
    /// What the last read of the nearest node has brought.
    seen: (Vec<u8>, Stat),
    fired: Mailbox<Fired>,
    /// What was heard while the driver waited for a prefetch.
    heard_early: VecDeque<Fired>,
    /// Reports changes of the connection in the same place.
    listening: Option<Subscription>,
    told: Option<(String, usize)>,
    holds: HoldsAhead,
    /// A semaphore has directories here, and `Some(true)` if nobody used it while our node stood.
    semaphore: Option<bool>,
}

/// How an attempt ended.
pub(crate) enum Progress {
    Reached(Reached),
    LimitReached,
    Restart,
}

/// The outcome of a step.
enum Step {
    /// This is for the attempt to take in.
    Report(Event),
    /// None: repeat the step.
    Again,
}

impl<'a, 'q> Driver<'a, 'q> {
    fn new(
        session: &'a Session,
        queue: &'a Queue<'a>,
        request: &'a mut LockRequest<'q>,
        attempt: Attempt,
        caller: &'a mut Caller,
        snapshot: Snapshot,
    ) -> Self {
        Self {
            session,
            queue,
            request,
            attempt,
            caller,
            snapshot,
            since: clock::now(),
            proof: GrantProof::default(),
            listing: None,
            early: None,
            looked: None,
            watched: Watched::default(),
            prefetches: 0,
            seen: Default::default(),
            fired: Mailbox::new(),
            heard_early: VecDeque::new(),
            listening: None,
            told: None,
            holds: HoldsAhead::default(),
            semaphore: None,
        }
    }

    fn run(mut self) -> Result<Progress> {
        let mut listed = false;
        loop {
            let action = self.attempt.action();
            match &action {
                // What a listing has shown, whether or not the server can catch up.
                Action::CatchUp | Action::Wait | Action::Watch(_) | Action::WatchAround(..) => {
                    self.request.is_taken();
                }
                Action::Finish(Outcome::Gone) if listed => self.request.is_taken(),
                _ => {}
            }
            if let Action::Finish(outcome) = action {
                return self.finish(outcome);
            }
            let Step::Report(event) = self.step(action)? else {
                continue;
            };
            let event = self.in_session(event);
            if let Step::Report(event) = self.past_holds(event)? {
                listed = matches!(event, Event::Births(_) | Event::Children(_));
                self.see(&event);
                self.attempt.handle(event);
            }
        }
    }

    /// Notes who is ahead, if the caller wants to know how they leave.
    fn see(&mut self, event: &Event) {
        if let (Some(seen), Event::Children(names)) = (&mut self.request.seen, event) {
            seen.look(self.attempt.contest(), names, self.attempt.node());
        }
    }

    /// An answer that came through another session says nothing about our node.
    fn in_session(&self, event: Event) -> Event {
        match event {
            // These tell the owner, end the attempt, or are no answers.
            Event::Cancel | Event::Created(..) | Event::NewSession | Event::ReplyLost => event,
            _ if self.session.status.snapshot().session != self.snapshot.session => {
                Event::NewSession
            }
            event => event,
        }
    }

    fn finish(self, outcome: Outcome) -> Result<Progress> {
        match outcome {
            Outcome::Held(mine) => Ok(Progress::Reached(self.reached(mine))),
            Outcome::Gone => Ok(Progress::LimitReached),
            Outcome::Restart => Ok(Progress::Restart),
            Outcome::Evicted(name) => self.evicted(&name),
            Outcome::Foreign(foreign) => Err(self.session.foreign(self.queue.dir, foreign)),
        }
    }

    /// Tells a node that somebody deleted from one that went with its session.
    ///
    /// When a session ends, the server first sends the event of the node and then ends the
    /// connection: a client that gets an answer in the same session afterwards still has it.
    fn evicted(mut self, name: &str) -> Result<Progress> {
        let node = self.full(name);
        self.unwatch_own(&node);
        let look = Request::exists(&node);
        match self.caller.call(&look, &node, &self.request.limit) {
            Err(CallError::LimitReached) => Ok(Progress::LimitReached),
            Err(CallError::Over(error)) => Err(error),
            _ if self.session.status.snapshot().session != self.snapshot.session => {
                Ok(Progress::Restart)
            }
            _ => Err(Error::Evicted { node }),
        }
    }

    fn reached(&self, mine: OwnNode) -> Reached {
        let waited = self.listening.is_some();
        if waited {
            self.session.counters.waited(self.queue.path);
        }
        let nodes = vec![self.full(&mine.name)];
        let session = self.snapshot.session;
        let bounds = self.session.status.bounds(session);
        let stamp = self.proof.stamp.unwrap_or(Stamp::NEVER);
        let lease = Lease::new(self.queue.path, nodes, session, bounds, stamp);
        Reached {
            lease,
            mine,
            waited,
            beside_semaphore: self.semaphore.is_some(),
        }
    }

    fn step(&mut self, action: Action) -> Result<Step> {
        match action {
            Action::Create(prefix) => self.create(&prefix),
            Action::MakeParents => self.make_parents(),
            Action::Sync => self.sync(),
            Action::CatchUp => self.catch_up(),
            Action::List => self.list(),
            Action::ListAndWatch(queued) => self.list_and_watch(queued),
            Action::Inspect(name) => self.inspect(&name),
            Action::Births(names) => self.births(&names),
            Action::Watch(blocked) => self.watch(&blocked),
            Action::WatchAround(blocked, mine) => self.watch_around(&blocked, &mine),
            Action::Wait => self.wait(),
            Action::Prove(name) => self.prove(&name),
            // `run` handles this action.
            Action::Finish(_) => Ok(Step::Again),
        }
    }

    /// Deals with an answer that no step expects.
    fn trouble(&mut self, answered: Answered) -> Result<Step> {
        let failure = answered.err().unwrap_or(Failure::Lost);
        match CallError::of(failure, self.queue.dir, &self.session.status) {
            Some(error) => error.or(self.queue.dir, Step::Report(Event::Cancel)),
            None => self.reconnect(),
        }
    }

    /// Waits for the connection to come back after a request that failed with it.
    fn reconnect(&mut self) -> Result<Step> {
        let limit = &self.request.limit;
        let late = self.caller.is_steady(&self.snapshot) && self.caller.breathe(limit).is_err();
        if late || self.caller.connected(limit)?.is_none() {
            return Ok(Step::Report(Event::Cancel));
        }
        Ok(self.changed()?.unwrap_or(Step::Again))
    }

    /// Returns what the attempt has to hear of the connection, if anything.
    fn changed(&mut self) -> Result<Option<Step>> {
        let snapshot = self.session.status.snapshot();
        if snapshot.is_over() {
            return Err(self.session.status.ending());
        }
        if snapshot.state != SessionState::Connected || snapshot.connects == self.snapshot.connects
        {
            return Ok(None);
        }
        let resumed = snapshot.session == self.snapshot.session;
        self.snapshot = snapshot;
        self.listing = None;
        self.looked = None;
        match resumed {
            true => {
                self.unwatch();
                Ok(Some(Step::Report(Event::Woken)))
            }
            false => {
                // At the server, the watches of a session end with it.
                self.unwatch();
                self.watched = Watched::default();
                Ok(Some(Step::Report(Event::NewSession)))
            }
        }
    }

    fn ask(&mut self, request: Request) -> std::result::Result<Answered, LimitReached> {
        let call_id = self.post([request]);
        self.answer(call_id)
    }

    fn post(&mut self, requests: impl IntoIterator<Item = Request>) -> CallId {
        let requests = requests.into_iter().map(|request| (request, None));
        self.caller.post(requests)
    }

    fn answer(&mut self, call_id: CallId) -> std::result::Result<Answered, LimitReached> {
        self.caller.wait(call_id, &self.request.limit)
    }

    fn full(&self, name: &str) -> String {
        format!("{}/{name}", self.queue.dir)
    }
}

impl Drop for Driver<'_, '_> {
    fn drop(&mut self) {
        self.unwatch();
        // Changes nothing if the attempt has finished.
        self.attempt.handle(Event::Cancel);
        let cleaner = self.attempt.orphans();
        if !cleaner.is_empty() {
            self.session
                .cleaner
                .add(self.queue.dir, self.snapshot.session, cleaner);
        }
    }
}

pub(super) fn origin(stat: Stat) -> Origin {
    Origin {
        owner: stat.ephemeral_owner,
        czxid: stat.czxid,
    }
}

impl fmt::Debug for Driver<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver")
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}
