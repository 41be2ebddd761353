//! One contender's way to the head of a queue.
//!
//! [`Attempt`] decides; this sends what it asks for, and gives it the answers as they arrive.
//! What an action needs may be on its way already, because it left in the same turn as
//! something before it: the listing with the create, the proof with the listing that an event
//! has caused, the watches with the look at a new node. `state` says what is on its way, and an
//! action that finds its answer there sends nothing. Nothing in flight outlives the connection.
//!
//! Two clients lead their contenders so: [`client::Core`](crate::client::Core), and the threads of the
//! crate `zklock`. What they differ in is their [`Wire`].

mod answers;
mod holds;
mod overdue;
mod progress;
mod semaphore;
mod sends;
mod state;
mod wire;

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;
use core::time::Duration;

use self::state::{Beside, Births, Holds, Hurry, Proofs, Step, Watches};
pub use self::wire::{About, CallId, Note, Reached, Refused, Wire};
use crate::answer::{Answered, Failure};
use crate::attempt::{Action, Attempt, Event, Orphan, OwnNode, Patience};
use crate::grant_proof::GrantProof;
use crate::queue::{Blocked, Contest};
use crate::refusals::Refusals;
use crate::seen_ahead::SeenAhead;
use crate::skip_listing::LastGrant;
use crate::validity::Stamp;
use zklock_jute::{Data, EventKind, Names, Stat};

/// See the module's documentation.
#[derive(Debug)]
pub struct Acquisition {
    path: Arc<str>,
    contest: Contest,
    patience: Patience,
    attempt: Attempt,
    /// Its node stood in the queue before. Whoever created it begins again, if that is to be.
    stood: bool,
    /// There is nothing more to do, as that node is gone with its session, or the directory is, which others
    /// make.
    has_ended: bool,
    proof: GrantProof,
    /// What is on its way, and what for.
    flight: Vec<(CallId, Step)>,
    /// A listing that arrived before the attempt asked for it.
    listing: Option<Names>,
    seen: Option<SeenAhead>,
    holds: Holds,
    beside: Beside,
    hurry: Hurry,
    parents: Refusals,
    births: Births,
    proofs: Proofs,
    watches: Watches,
    /// What the watch on the nearest node has found.
    found: (Data, Stat),
    /// How many children of the directory have to go, as the last listing of a crowd has shown.
    crowd: usize,
    /// The events of watched nodes, which the attempt takes in when it waits.
    events: VecDeque<(String, EventKind)>,
    /// The queue has moved since it was listed.
    has_moved: bool,
    /// Our node is gone, and not with its session.
    is_evicted: bool,
    refused: Option<Refused>,
    /// What former attempts have left in the directory.
    left: Vec<Orphan>,
    /// There is something to do then.
    rests_until: Option<Duration>,
    /// A server has shown that others are ahead.
    is_taken: bool,
    has_waited: bool,
    is_cancelled: bool,
    /// It has said that it waits for the leader to have heard of the session.
    is_held_back: bool,
    /// What an earlier attempt of this client has left here is being deleted.
    own_is_left: bool,
    /// Until when that is waited for.
    finishes_by: Option<Duration>,
}

impl Acquisition {
    /// A contender without a node. If it has released the lock since its `last` grant, that may spare it a
    /// listing.
    pub fn enter(
        (contest, patience): (Contest, Patience),
        path: &Arc<str>,
        last: Option<LastGrant>,
        wire: &mut dyn Wire,
    ) -> Self {
        let id = wire.fresh_id();
        Self::enter_as((contest, patience), (path, &id), last, wire.session())
    }

    /// The same with this id, which must be fresh.
    pub fn enter_as(
        (contest, patience): (Contest, Patience),
        (path, id): (&Arc<str>, &str),
        last: Option<LastGrant>,
        session: Option<i64>,
    ) -> Self {
        let attempt = Attempt::enter(contest, id, session, patience).after(last);
        Self::new((contest, patience), path, attempt)
    }

    /// A contender whose node stands in the queue, and was proven so.
    pub fn stand(
        (contest, patience): (Contest, Patience),
        path: &Arc<str>,
        (mine, stamp): (OwnNode, Stamp),
    ) -> Self {
        let attempt = Attempt::queued(contest, mine, patience);
        let mut acquisition = Self::new((contest, patience), path, attempt);
        acquisition.proof = GrantProof::on(stamp);
        acquisition.stood = true;
        acquisition
    }

    fn new((contest, patience): (Contest, Patience), path: &Arc<str>, attempt: Attempt) -> Self {
        Self {
            path: path.clone(),
            contest,
            patience,
            attempt,
            stood: false,
            has_ended: false,
            proof: GrantProof::default(),
            flight: Vec::new(),
            listing: None,
            seen: None,
            holds: Holds::default(),
            beside: Beside::default(),
            hurry: Hurry::default(),
            parents: Refusals::default(),
            births: Births::default(),
            proofs: Proofs::default(),
            watches: Watches::default(),
            found: Default::default(),
            crowd: 0,
            events: VecDeque::new(),
            has_moved: false,
            is_evicted: false,
            refused: None,
            left: Vec::new(),
            rests_until: None,
            is_taken: false,
            has_waited: false,
            is_cancelled: false,
            is_held_back: false,
            own_is_left: false,
            finishes_by: None,
        }
    }

    /// There was room for it when nobody else could come any more: if it is to look first, that is as good
    /// as a look which finds nobody.
    pub fn has_room(&mut self) {
        self.attempt.handle(Event::Children(Names::default()));
    }

    /// A create for it was sent by somebody else, with this stamp.
    pub fn is_created_by(&mut self, create: CallId, stamp: Stamp) {
        self.flight.push((create, Step::Create(stamp)));
    }

    /// The queue was listed for it after that.
    pub fn is_listed_by(&mut self, listing: CallId) {
        self.flight.push((listing, Step::List));
    }

    /// The queue was listed for it since its node stands there, through this connection.
    pub fn is_listed_as(&mut self, names: Names) {
        self.listing = Some(names);
    }

    /// Notes from now on whom it sees ahead, besides these.
    pub fn sees(&mut self, seen: SeenAhead) {
        self.seen = Some(seen);
    }

    /// Whom it has seen ahead, if it notes that.
    pub fn seen(&mut self) -> Option<SeenAhead> {
        self.seen.take()
    }

    /// The directory of its queue.
    pub fn path(&self) -> &Arc<str> {
        &self.path
    }

    /// Whether it does not wait for others.
    pub fn tries(&self) -> bool {
        self.patience == Patience::Tries
    }

    /// Whether it sleeps until something happens, and has nothing to send.
    pub fn is_waiting(&self) -> bool {
        self.attempt.is_waiting()
    }

    /// Whether all that it has sent is answered.
    pub fn is_quiet(&self) -> bool {
        self.flight.is_empty()
    }

    /// Whether a server has shown that others are ahead.
    pub fn is_taken(&self) -> bool {
        self.is_taken
    }

    /// Whether it has waited for others: an event, which no server need have but the one that has sent it,
    /// may have shown that they are gone.
    pub fn has_waited(&self) -> bool {
        self.has_waited
    }

    /// Whether the request is its create.
    pub fn creates_by(&self, call: CallId) -> bool {
        let is_create = |step: &Step| matches!(step, Step::Create(_));
        self.flight
            .iter()
            .any(|(other, step)| *other == call && is_create(step))
    }

    /// Its node, while it stands in the queue.
    pub fn node(&self) -> Option<&str> {
        self.attempt.node()
    }

    /// What is ahead of its node, while it waits for that to go.
    pub fn blocked(&self) -> Option<&Blocked> {
        self.attempt.blocked()
    }

    /// How many children of the directory have to go, while it waits for that.
    pub fn crowd(&self) -> Option<usize> {
        (self.is_waiting() && self.crowd != 0).then_some(self.crowd)
    }

    /// What its watch has found at the nearest node.
    pub fn found(&self) -> &(Data, Stat) {
        &self.found
    }

    /// When it is to [`advance`](Self::advance) at the latest, said once.
    pub fn rests_until(&mut self) -> Option<Duration> {
        self.rests_until.take()
    }

    /// Whether it waits for its client to delete what earlier attempts have left; see
    /// [`own_is_left`](Self::own_is_left).
    pub fn lets_own_go(&self) -> bool {
        self.own_is_left && self.attempt.action() == Action::CatchUp
    }

    /// Says whether what an earlier attempt of this client has left here is being deleted. A try waits for
    /// that, for a moment.
    pub fn own_is_left(&mut self, is_left: bool) {
        self.own_is_left = is_left;
    }

    /// What it has left in the directory so far. Until that is deleted, it may stand ahead of its next node.
    pub fn left(&mut self) -> Vec<Orphan> {
        mem::take(&mut self.left)
    }

    /// What it leaves in the directory; complete once it has ended.
    pub fn orphans(&mut self) -> Vec<Orphan> {
        let mut left = self.left();
        left.extend(self.attempt.orphans());
        left
    }

    /// Whether its number may spare it a listing.
    pub fn may_skip_listing(&self) -> bool {
        self.attempt.last.is_some()
    }

    /// Lists the queue whatever its number says: what its client has left there may still be there.
    pub fn lists(&mut self) {
        self.attempt.last = None;
    }

    /// It is given up.
    pub fn cancel(&mut self, wire: &mut dyn Wire) {
        let create =
            |(call, step): &(CallId, Step)| matches!(step, Step::Create(_)).then_some(*call);
        let create = self.flight.iter().find_map(create);
        // The request is under way: its node must be looked for, unless its answer tells.
        if create.is_some_and(|create| !wire.abandon(create)) {
            self.attempt.handle(Event::ReplyLost);
        }
        self.is_cancelled = true;
        self.attempt.handle(Event::Cancel);
    }

    /// The connection broke: what was on its way has failed, and the watches are gone.
    pub fn broke(&mut self) {
        self.flight.clear();
        self.listing = None;
        self.watches = Watches::default();
        self.events.clear();
        self.rests_until = None;
        self.proofs = Proofs::default();
        self.forget_holds();
        self.beside.broke();
        self.hurry.broke();
    }

    /// There is a connection again, with the same session or another.
    pub fn connected(&mut self, resumed: bool, wire: &mut dyn Wire) {
        match resumed {
            true => self.attempt.handle(Event::Woken),
            // It has ended, whether or not its client has taken that in.
            false if self.is_cancelled || self.refused.is_some() => {}
            false => self.restart(wire),
        }
    }

    /// A watch has fired, on the directory if `name` is empty.
    pub fn happened(&mut self, name: &str, kind: EventKind) {
        if self.attempt.node() == Some(name) {
            self.watches.own = false;
        }
        self.hurry.stir();
        self.events.push_back((name.into(), kind));
    }

    /// An answer to one of its requests.
    pub fn answered(&mut self, call: CallId, answered: Answered, wire: &mut dyn Wire) {
        let Some(at) = self.flight.iter().position(|(other, _)| *other == call) else {
            return;
        };
        let (_, step) = self.flight.swap_remove(at);
        let Err(failure) = self.report(step, answered, wire) else {
            return;
        };
        match failure {
            // It is asked again. Whether our own node is watched is not known, so that is, too.
            Failure::Lost | Failure::NotSent | Failure::Closed if step == Step::Own => {
                self.watches.own = false;
                self.unwatch(wire);
            }
            Failure::Lost | Failure::NotSent | Failure::Closed => {}
            Failure::Refused(_) | Failure::TooLong(_) => {
                let about = match step {
                    Step::Parent => About::Parents,
                    Step::Head => self.hurry.about(&self.path),
                    _ => About::Queue,
                };
                self.refused = Some(Refused { failure, about });
                self.attempt.handle(Event::Cancel);
            }
        }
    }

    fn is_on_its_way(&self, what: impl Fn(&Step) -> bool) -> bool {
        self.flight.iter().any(|(_, step)| what(step))
    }
}

#[cfg(test)]
mod tests;
