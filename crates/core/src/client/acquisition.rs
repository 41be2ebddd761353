//! One thread's way to the head of a queue.
//!
//! [`Attempt`] decides; this sends what it asks for, and gives it the answers as they arrive.
//! What an action needs may be on its way already, because it left in the same turn as
//! something before it: the listing with the create, the proof with the listing that an event
//! has caused, the watches with the look at a new node. `flight` says what is on its way, and an
//! action that finds its answer there sends nothing. Nothing in flight outlives the connection.

mod answers;
mod holds;
mod listings;
mod seen_holds;
mod sends;
mod several;

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;
use core::time::Duration;

use self::seen_holds::Holds;
use self::several::Births;
use super::ask::{Ticket, Time};
use super::calls::CallId;
use super::link::Link;
use super::names::{id_of, node_in};
use crate::answer::{Answered, Failure};
use crate::attempt::{Action, Attempt, Event, Orphan, Outcome, OwnNode, Patience};
use crate::dialect::Role;
use crate::grant_proof::{GrantProof, Next};
use crate::queue::{Contest, Foreign};
use crate::refusals::Refusals;
use crate::seen_ahead::SeenAhead;
use crate::skip_listing::LastGrant;
use crate::validity::Stamp;
use zklock_jute::{Data, ErrorCode, EventKind, Names, Stat};

/// How long a try waits for the deletion of what its client has left, which takes a few round trips.
const PASSING: Duration = Duration::from_secs(1);

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Acquisition {
    pub(super) ticket: Ticket,
    pub(super) path: Arc<str>,
    patience: Patience,
    pub(super) attempt: Attempt,
    proof: GrantProof,
    /// What is on its way, and what for.
    flight: Vec<(CallId, Step)>,
    /// A listing that arrived before the attempt asked for it.
    listing: Option<Names>,
    seen: SeenAhead,
    holds: Holds,
    parents: Refusals,
    births: Births,
    watches: Watches,
    /// What the watch on the nearest node has found.
    pub(super) found: (Data, Stat),
    /// The events of watched nodes, which the attempt takes in when it waits.
    events: VecDeque<(String, EventKind)>,
    /// The queue has moved since it was listed.
    has_moved: bool,
    /// Our node is gone, and not with its session.
    is_evicted: bool,
    refused: Option<ErrorCode>,
    /// There is something to do then.
    pub(super) rests_until: Option<Time>,
    /// A server has shown that others are ahead.
    pub(super) is_taken: bool,
    is_cancelled: bool,
    /// What an earlier attempt of this client has left here is being deleted.
    pub(super) own_is_left: bool,
    /// Until when that is waited for.
    finishes_by: Option<Time>,
}

/// What an answer is the answer to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Step {
    Create(Stamp),
    Parent,
    /// Of the requests after whose answers a listing is up to date.
    Sync,
    List,
    /// Our own node; leaves a watch.
    Own,
    /// The nearest node ahead; leaves a watch.
    Nearest,
    /// The one beyond it; leaves a watch.
    Beyond,
    /// A watch on the directory, as the nearest node may not be read.
    Around,
    Birth,
    /// A proof that counts, or does not.
    Proof(Stamp, bool),
    /// Our own node, which is gone: whether the session is.
    Evicted,
    /// A hold ahead.
    Hold,
    /// Of a hold that is over.
    Removal,
}

/// The nodes that are watched.
#[derive(Debug, Default)]
struct Watches {
    own: bool,
    nearest: Option<String>,
    beyond: Option<String>,
    /// The directory.
    around: bool,
}

/// How an acquisition ends.
#[derive(Debug)]
pub(super) enum Reached {
    Held(OwnNode, Stamp),
    GaveUp { taken: bool },
    Evicted(String),
    Foreign(Foreign),
    Refused(ErrorCode),
}

impl Acquisition {
    pub(super) fn new(
        (ticket, patience): (Ticket, Patience),
        path: &Arc<str>,
        last: Option<LastGrant>,
        link: &mut Link,
    ) -> Self {
        Self {
            ticket,
            path: path.clone(),
            patience,
            attempt: enter(patience, link).after(last),
            proof: GrantProof::default(),
            flight: Vec::new(),
            listing: None,
            seen: SeenAhead::default(),
            holds: Holds::default(),
            parents: Refusals::default(),
            births: Births::default(),
            watches: Watches::default(),
            found: Default::default(),
            events: VecDeque::new(),
            has_moved: false,
            is_evicted: false,
            refused: None,
            rests_until: None,
            is_taken: false,
            is_cancelled: false,
            own_is_left: false,
            finishes_by: None,
        }
    }

    /// Goes on as far as possible: sends what is to be sent next, unless it is on its way.
    pub(super) fn advance(&mut self, link: &mut Link) -> Option<Reached> {
        loop {
            let action = self.attempt.action();
            match &action {
                Action::CatchUp | Action::Wait | Action::Watch(_) | Action::WatchAround(..) => {
                    self.is_taken = true;
                }
                _ => {}
            }
            let goes_on = match action {
                Action::Finish(Outcome::Restart) => {
                    self.restart(link);
                    true
                }
                Action::Finish(Outcome::Evicted(name))
                    if !self.is_evicted && !self.is_cancelled =>
                {
                    self.asks_why(&name, link);
                    false
                }
                Action::Finish(outcome) => return Some(self.reached(outcome)),
                Action::Wait => self.waits(link),
                _ if !link.is_connected() => false,
                Action::CatchUp if self.lets_finish(link) => false,
                action => self.step(action, link),
            };
            if !goes_on {
                return None;
            }
        }
    }

    /// Whether it does not wait for others.
    pub(super) fn tries(&self) -> bool {
        self.patience == Patience::Tries
    }

    /// Whether it is to wait for what its client has left, which would look like somebody else's node.
    fn lets_finish(&mut self, link: &Link) -> bool {
        let by = *self.finishes_by.get_or_insert(link.now + PASSING);
        let waits = self.own_is_left && link.now < by;
        if waits {
            self.rests_until = Some(by);
        }
        waits
    }

    /// What the attempt leaves in the directory.
    pub(super) fn orphans(&mut self) -> Vec<Orphan> {
        self.attempt.orphans()
    }

    /// The thread gives up. Nobody reads the answer to a create that is on its way.
    pub(super) fn cancel(&mut self, link: &mut Link) {
        let create =
            |(call, step): &(CallId, Step)| matches!(step, Step::Create(_)).then_some(*call);
        if let Some(call) = self.flight.iter().find_map(create) {
            link.calls.abandon(call);
        }
        self.is_cancelled = true;
        self.attempt.handle(Event::Cancel);
    }

    /// The connection broke: what was on its way has failed, and the watches are gone.
    pub(super) fn broke(&mut self) {
        self.flight.clear();
        self.listing = None;
        self.watches = Watches::default();
        self.events.clear();
        self.rests_until = None;
        self.forget_holds();
    }

    /// There is a connection again, with the same session or another.
    pub(super) fn connected(&mut self, resumed: bool, link: &mut Link) {
        match resumed {
            true => self.attempt.handle(Event::Woken),
            // The nodes of the former went with it.
            false => self.restart(link),
        }
    }

    /// A watch has fired, on the directory if `name` is empty.
    pub(super) fn happened(&mut self, name: &str, kind: EventKind) {
        if self.attempt.node() == Some(name) {
            self.watches.own = false;
        }
        self.events.push_back((name.into(), kind));
    }

    /// An answer to one of its requests.
    pub(super) fn answered(&mut self, call: CallId, answered: Answered, link: &mut Link) {
        let Some(at) = self.flight.iter().position(|(other, _)| *other == call) else {
            return;
        };
        let (_, step) = self.flight.swap_remove(at);
        match self.report(step, answered, link) {
            Ok(()) | Err(Failure::Lost | Failure::NotSent | Failure::Closed) => {}
            Err(Failure::Refused(code)) => self.is_refused(code),
            Err(Failure::TooLong(_)) => self.is_refused(ErrorCode::MARSHALLING_ERROR),
        }
    }

    fn is_refused(&mut self, code: ErrorCode) {
        self.refused = Some(code);
        self.attempt.handle(Event::Cancel);
    }

    fn is_on_its_way(&self, what: impl Fn(&Step) -> bool) -> bool {
        self.flight.iter().any(|(_, step)| what(step))
    }

    /// Takes in what happened while it waits; `false` if nothing did.
    fn waits(&mut self, link: &mut Link) -> bool {
        while let Some((name, kind)) = self.events.pop_front() {
            if let Some(event) = self.event(&name, kind) {
                self.attempt.handle(event);
                return true;
            }
        }
        if self.is_last() {
            self.stays_proven(link);
        }
        let due = self.is_hold_due(link);
        if due {
            self.attempt.handle(Event::Woken);
        }
        due
    }

    /// What an event of a watched node says to the attempt.
    fn event(&mut self, name: &str, kind: EventKind) -> Option<Event> {
        let gone = kind == EventKind::Deleted;
        if self.attempt.node() == Some(name) {
            // A server that closes our session sends this first: the listing tells.
            return Some(Event::Woken);
        }
        if name.is_empty() && mem::take(&mut self.watches.around) {
            return Some(Event::Woken);
        }
        let nearest = &mut self.watches.nearest;
        if nearest.take_if(|nearest| nearest == name).is_some() {
            self.has_moved |= gone;
            return Some(match gone {
                true => Event::Deleted,
                false => Event::Woken,
            });
        }
        self.watches.beyond.take_if(|beyond| beyond == name)?;
        self.has_moved |= gone;
        Some(match gone {
            true => Event::BeyondDeleted,
            false => Event::Woken,
        })
    }

    /// Once the node that it waits for is gone, nothing can be ahead.
    fn is_last(&self) -> bool {
        self.attempt.blocked().is_some_and(|blocked| blocked.last)
    }

    /// Whether the lock may be granted on what the quorum has confirmed.
    fn is_proven(&self, link: &Link) -> bool {
        self.proof.next(&link.lifetime, link.now) == Next::Grant
    }

    /// Another session, or the node of another: begins again, at the end of the queue.
    fn restart(&mut self, link: &mut Link) {
        self.broke();
        self.seen.lose_sight();
        self.attempt = enter(self.patience, link);
        self.proof = GrantProof::default();
        self.is_evicted = false;
    }

    fn reached(&mut self, outcome: Outcome) -> Reached {
        match (outcome, self.refused.take()) {
            (_, Some(code)) => Reached::Refused(code),
            (Outcome::Held(mine), None) => {
                Reached::Held(mine, self.proof.stamp.unwrap_or(Stamp::NEVER))
            }
            (Outcome::Evicted(name), None) if !self.is_cancelled => {
                Reached::Evicted(node_in(&self.path, &name))
            }
            // Of its own accord, only an attempt that does not wait ends so.
            (Outcome::Gone | Outcome::Evicted(_) | Outcome::Restart, None) => Reached::GaveUp {
                taken: self.is_taken || !self.is_cancelled,
            },
            (Outcome::Foreign(foreign), None) => Reached::Foreign(foreign),
        }
    }
}

fn enter(patience: Patience, link: &mut Link) -> Attempt {
    let contest = Contest {
        dialect: link.settings.dialect,
        role: Role::Exclusive,
        permits: 0,
    };
    let id = id_of(link.fresh_id());
    let session = Some(link.session).filter(|session| *session != 0);
    Attempt::enter(contest, &id, session, patience)
}
