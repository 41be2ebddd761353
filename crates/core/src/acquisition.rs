//! One contender's way to the head of a queue.
//!
//! [`Attempt`] decides; [`Acquisition`] sends the requests for its actions and passes the answers on. What
//! an action needs may already be on its way, because it left in the same turn as an earlier request: the
//! listing with the create, the proof with the listing that an event has caused, the watches with the look
//! at a new node. `state` records what is on its way, and an action that finds its answer there sends
//! nothing. Nothing in flight outlives the connection.
//!
//! Two clients use it: the threads of the crate `zklock`, and the client without threads of `zklock-play`. They
//! differ in their [`Wire`].

mod answers;
mod doubt;
mod elsewhere;
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

use self::state::{Beside, Doubt, Elsewhere, Holds, Hurry, Step, Under, Watches};
pub use self::wire::{About, CallId, Note, Reached, Refused, Wire, may_read_less};
use crate::answer::{Answered, Failure};
use crate::attempt::{Action, Attempt, Event, Orphan, OwnNode, Patience};
use crate::dialect::Sharing;
use crate::path::node_in;
use crate::proof::GrantProof;
use crate::queue::{Blocked, Contest};
use crate::seen_ahead::SeenAhead;
use crate::skip_listing::LastGrant;
use crate::validity::Stamp;
use zklock_jute::{Data, ErrorCode, EventKind, Names, Reply, Request, Stat};

/// One contender's way to the head of a queue; see the module's documentation.
#[derive(Debug)]
pub struct Acquisition {
    path: Arc<str>,
    contest: Contest,
    patience: Patience,
    attempt: Attempt,
    /// Whether the node stood in the queue before. Then whoever created it decides whether to start over.
    stood: bool,
    /// Whether this contender ends before its create.
    only_looks: bool,
    /// Whether nothing is left to do: that node is gone with its session, the directory is missing and others create
    /// it, or a look finds nobody ahead.
    has_ended: bool,
    proof: GrantProof,
    /// The requests on their way, and what each is for.
    flight: Vec<(CallId, Step)>,
    /// The answers so far to requests that tell something only together.
    answers: Vec<(Step, Answered)>,
    /// A listing that arrived before the attempt asked for it.
    listing: Option<Names>,
    /// The reads that leave behind each listing, and the answers to those that left last.
    reads: Vec<Request>,
    read: Option<Vec<Result<Reply, ErrorCode>>>,
    seen: Option<SeenAhead>,
    holds: Holds,
    beside: Beside,
    hurry: Hurry,
    watches: Watches,
    doubt: Doubt,
    elsewhere: Elsewhere,
    under: Under,
    /// The data and stat that the watch on the nearest node returned.
    found: (Data, Stat),
    /// How many children of the directory have to go, according to the last listing that counts them all.
    crowd: usize,
    /// The events of watched nodes. The attempt takes them in when it waits.
    events: VecDeque<(String, EventKind)>,
    /// Whether the queue has moved since it was listed.
    has_moved: bool,
    /// Whether our node is gone, but the session is not.
    is_evicted: bool,
    refused: Option<Refused>,
    /// The nodes that earlier attempts left in the directory, or may have left.
    left: Vec<Orphan>,
    /// When to advance at the latest.
    rests_until: Option<Duration>,
    /// Whether a server has shown that others are ahead.
    is_taken: bool,
    has_waited: bool,
    is_cancelled: bool,
    /// Whether the client is still deleting what an earlier attempt left here.
    own_is_left: bool,
}

impl Acquisition {
    /// Creates a contender without a node; the `id` must be fresh. If it has released the lock since its `last`
    /// grant, that may spare it a listing.
    pub fn enter(
        (contest, patience): (Contest, Patience),
        (path, id): (&Arc<str>, &str),
        last: Option<LastGrant>,
        session: Option<i64>,
    ) -> Self {
        let attempt = Attempt::enter(contest, id, session, patience).after(last);
        Self::new((contest, patience), path, attempt)
    }

    /// Creates a contender that tries, and ends before it creates a node.
    pub fn look(contest: Contest, path: &Arc<str>) -> Self {
        let asks = (contest, Patience::Tries);
        Self {
            only_looks: true,
            ..Self::enter(asks, (path, ""), None, None)
        }
    }

    /// Creates a contender whose node stands in the queue, as the proof with this stamp has shown.
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
            only_looks: false,
            has_ended: false,
            proof: GrantProof::default(),
            flight: Vec::new(),
            answers: Vec::new(),
            listing: None,
            reads: Vec::new(),
            read: None,
            seen: None,
            holds: Holds::default(),
            beside: Beside::default(),
            hurry: Hurry::default(),
            watches: Watches::default(),
            doubt: Doubt::default(),
            elsewhere: Elsewhere::default(),
            under: Under::default(),
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
            own_is_left: false,
        }
    }

    /// Notes that there was room for this contender when nobody else could enter any more. An attempt that
    /// looks before it enters takes this for a look that finds nobody.
    pub fn note_room(&mut self) {
        self.attempt.handle(Event::Children(Names::default()));
    }

    /// Notes that somebody else has sent the create of this contender's node, with this stamp.
    pub fn note_create(&mut self, create: CallId, stamp: Stamp) {
        self.flight.push((create, Step::Create(stamp)));
    }

    /// Notes that this listing of the queue was sent for this contender after that create.
    pub fn note_listing(&mut self, listing: CallId) {
        self.flight.push((listing, Step::List));
    }

    /// Provides the listing of the queue that was made through this connection, after the node was created if there
    /// is one; `None` if there is no such listing.
    pub fn provide_listing(&mut self, names: Option<Names>) {
        self.listing = names;
    }

    /// Records from now on which contenders are ahead, in addition to these.
    pub fn record_seen(&mut self, seen: SeenAhead) {
        self.seen = Some(seen);
    }

    /// Takes the record of the contenders seen ahead, if there is one.
    pub fn take_seen(&mut self) -> Option<SeenAhead> {
        self.seen.take()
    }

    /// Returns the directory of the queue.
    pub fn path(&self) -> &Arc<str> {
        &self.path
    }

    /// Returns whether this contender gives up rather than wait for others.
    pub fn tries(&self) -> bool {
        self.patience == Patience::Tries
    }

    /// Returns whether this contender sleeps until something happens, and has nothing to send.
    pub fn is_waiting(&self) -> bool {
        self.attempt.is_waiting()
    }

    /// Returns whether every request sent so far is answered.
    pub fn is_quiet(&self) -> bool {
        self.flight.is_empty()
    }

    /// Returns whether a server has shown that others are ahead.
    pub fn is_taken(&self) -> bool {
        self.is_taken
    }

    /// Returns whether this contender has waited for others. If so, an event may have shown that they are
    /// gone, and only the server that sent the event is sure to know that.
    pub fn has_waited(&self) -> bool {
        self.has_waited
    }

    /// Returns the name of this contender's node, while that stands in the queue.
    pub fn node(&self) -> Option<&str> {
        self.attempt.node()
    }

    /// Returns what is ahead of this contender's node, while the contender waits for that to go.
    pub fn blocked(&self) -> Option<&Blocked> {
        self.attempt.blocked()
    }

    /// Returns how long the last write took that this contender's node was in: its create, or a proof of it.
    pub fn write_took(&self) -> Duration {
        self.proof.took
    }

    /// Returns how many children of the directory have to go, while the contender waits for that.
    pub fn crowd(&self) -> Option<usize> {
        (self.is_waiting() && self.crowd != 0).then_some(self.crowd)
    }

    /// Returns what the watch on the nearest node has found there.
    pub fn found(&self) -> &(Data, Stat) {
        &self.found
    }

    /// Takes the time when [`advance`](Self::advance) is due at the latest.
    pub fn rests_until(&mut self) -> Option<Duration> {
        self.rests_until.take()
    }

    /// Returns whom this contender can hold the lock beside.
    pub fn sharing(&self) -> Sharing {
        self.contest.role.sharing()
    }

    /// Returns whether this contender waits for its client to delete what earlier attempts left; see
    /// [`note_own_left`](Self::note_own_left).
    pub fn lets_own_go(&self) -> bool {
        self.own_is_left && self.attempt.action() == Action::CatchUp
    }

    /// Notes whether to wait until the client has deleted what an earlier attempt left here, which would look like
    /// another client's node.
    pub fn note_own_left(&mut self, is_left: bool) {
        self.own_is_left = is_left;
    }

    /// Takes what this contender has left in the directory so far. Until that is deleted, it may stand
    /// ahead of the next node.
    pub fn left(&mut self) -> Vec<Orphan> {
        mem::take(&mut self.left)
    }

    /// Returns what this contender leaves in the directory. The list is complete once the acquisition has ended.
    pub fn orphans(&mut self) -> Vec<Orphan> {
        let mut left = self.left();
        left.extend(self.attempt.orphans());
        left
    }

    /// Cancels the acquisition.
    pub fn cancel(&mut self, wire: &mut dyn Wire) {
        let create =
            |(call, step): &(CallId, Step)| matches!(step, Step::Create(_)).then_some(*call);
        let create = self.flight.iter().find_map(create);
        // The create is under way. Unless the client handles the node in its answer, the attempt looks for
        // the node.
        if create.is_some_and(|create| !wire.abandon(create)) {
            self.attempt.handle(Event::ReplyLost);
        }
        self.is_cancelled = true;
        self.attempt.handle(Event::Cancel);
    }

    /// Notes that the connection broke: the requests on their way have failed, and the watches are gone.
    pub fn broke(&mut self) {
        self.flight.clear();
        self.answers.clear();
        self.listing = None;
        self.read = None;
        self.watches = Watches::default();
        self.elsewhere.broke();
        self.events.clear();
        self.rests_until = None;
        self.forget_holds();
        self.beside.look = None;
        self.hurry.broke();
    }

    /// Notes that there is a connection again, with the same session if `resumed`.
    pub fn connected(&mut self, resumed: bool, wire: &mut dyn Wire) {
        match resumed {
            true => self.attempt.handle(Event::Woken),
            // The acquisition has ended, whether or not its client has noticed.
            false if self.is_cancelled || self.refused.is_some() => {}
            false => self.restart(wire),
        }
    }

    /// Notes that a watch has fired: the one on the directory if `name` is empty, or one on a node in another queue
    /// if it is a full path.
    pub fn happened(&mut self, name: &str, kind: EventKind) {
        if self.elsewhere.stirs(name) {
            return;
        }
        if self.attempt.node() == Some(name) {
            self.watches.own = false;
        }
        self.hurry.stir();
        self.events.push_back((name.into(), kind));
    }

    /// Takes in the answer to a request of this acquisition.
    pub fn answered(&mut self, call: CallId, answered: Answered, wire: &mut dyn Wire) {
        let Some(at) = self.flight.iter().position(|(other, _)| *other == call) else {
            return;
        };
        let (_, step) = self.flight.swap_remove(at);
        let is_create = matches!(step, Step::Create(_));
        // An answer that came through another session says nothing about our node. The answer to a create does: it
        // names the owner.
        let answered = match is_create || wire.is_same_session() {
            true => answered,
            false => Err(Failure::Lost),
        };
        // The node of the last grant may still be there, and a transaction that was in doubt under it may still be
        // carried out.
        if is_create && self.attempt.last.is_some() && wire.is_deleting_in(&self.path) {
            self.attempt.last = None;
        }
        let Err(failure) = self.report(step, answered, wire) else {
            return;
        };
        match failure {
            // The attempt asks again. Whether our own node is watched is unknown, so that watch is set again, too.
            Failure::Lost | Failure::NotSent | Failure::Closed if step == Step::Own => {
                self.watches.own = false;
                self.unwatch(wire);
            }
            Failure::Lost | Failure::NotSent | Failure::Closed => {}
            Failure::Refused(_) | Failure::TooLong(_) => {
                let about = match step {
                    Step::Parent => About::Parents,
                    Step::Head => self.hurry.about(&self.path),
                    Step::Own | Step::Proof(..) => self.about_own(),
                    _ => About::Queue,
                };
                self.refused = Some(Refused { failure, about });
                self.attempt.handle(Event::Cancel);
            }
        }
    }

    fn about_own(&self) -> About {
        let node = self.attempt.node();
        node.map_or(About::Queue, |name| About::Node(node_in(&self.path, name)))
    }

    fn is_on_its_way(&self, what: impl Fn(&Step) -> bool) -> bool {
        self.flight.iter().any(|(_, step)| what(step))
    }
}

#[cfg(test)]
mod tests;
