//! The properties that must hold in every world.

use zklock_core::attempt::{Action, Attempt, Event, OwnNode, Patience};
use zklock_core::dialect::Role;

use super::client::Client;
use super::directory::{NOBODY, Node};
use super::world::World;

/// A violation: which property, and how.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Violation {
    pub(crate) property: Property,
    pub(crate) text: String,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Property {
    /// Two clients that exclude each other never hold at once.
    Exclusion,
    /// No client gets the lock before one that queued earlier and still waits.
    Order,
    /// A subscriber that is woken for no reason finds that it still has to wait.
    Sleep,
    /// A deletion wakes one contender that waits for the node, and the next one behind that, to
    /// look at the queue. Only readers, which can go on together, may be more.
    Herd,
    /// A deletion deletes only what its own client is done with.
    Ownership,
    /// A run of a job begins only if it is due, and is done once, under a lock held all the time.
    Once,
    /// A slot of a job is begun no more often than allowed.
    Attempts,
    /// No client is told falsely that it was evicted, that the lock was taken, or that its turn has
    /// come.
    Truth,
    /// Every client that waits has something to wait for.
    Progress,
    /// When all clients are done, no node is left.
    Orphan,
    /// From every world, if nothing goes wrong any more, a way leads to the end.
    Liveness,
}

/// Returns whether two roles exclude each other, by the promise and not by the protocol's own
/// table.
pub(crate) fn excludes(one: Role, other: Role) -> bool {
    one != Role::Read || other != Role::Read
}

impl World {
    /// Checks this world; if it is `stuck`, nothing can happen any more but a mishap.
    pub(crate) fn look(&mut self, stuck: bool) {
        for i in 0..self.clients.len() {
            self.check_exclusion(i);
            self.check_sleep(i);
        }
        if stuck {
            self.check_end();
        }
    }

    fn check_exclusion(&mut self, i: usize) {
        let holds = |client: &Client| client.raw.as_ref().is_some_and(|raw| raw.trusted);
        let clash = |j: &usize| {
            let (one, other) = (&self.clients[*j], &self.clients[i]);
            holds(one) && holds(other) && excludes(one.wish.role, other.wish.role)
        };
        if let Some(j) = (0..i).find(clash) {
            let text = format!("{} and {} raw at once", name(j), name(i));
            self.blame(Property::Exclusion, text);
        }
        let client = &self.clients[i];
        let keeps_out = |node: &&Node| {
            node.origin.owner == NOBODY && excludes(node.maker.role, client.wish.role)
        };
        let hold = self.directory.nodes.iter().find(keeps_out);
        if let Some(hold) = hold.filter(|_| holds(client)) {
            let text = format!("{} holds in spite of {}", name(i), hold.name);
            self.blame(Property::Exclusion, text);
        }
    }

    fn check_sleep(&mut self, i: usize) {
        let client = &self.clients[i];
        let stirred = !client.events.is_empty() || client.reconnected;
        if !client.is_asleep() || stirred || client.crashed || client.expired || client.untold {
            return;
        }
        if client.watch.is_none() {
            self.blame(
                Property::Sleep,
                format!("{} sleeps without a watch", name(i)),
            );
            return;
        }
        let mut attempt = client.attempt.clone().expect("a subscriber has one");
        attempt.handle(Event::Woken);
        match self.decide(attempt) {
            Action::Watch(..) => {}
            action => {
                let text = format!("{} sleeps instead of {action:?}", name(i));
                self.blame(Property::Sleep, text);
            }
        }
    }

    /// Lets an attempt look at the queue as it is; returns its decision.
    fn decide(&self, mut attempt: Attempt) -> Action {
        loop {
            let event = match attempt.action() {
                Action::List => match self.directory.names(None) {
                    Some(names) => Event::Children(names),
                    None => Event::NoNode,
                },
                Action::Births(names) => self.births(&names),
                action => return action,
            };
            attempt.handle(event);
        }
    }

    /// Checks the end, when nothing can happen any more: all clients are done, and no node is left.
    fn check_end(&mut self) {
        match self.clients.iter().position(|client| !client.is_done()) {
            Some(i) => self.blame(Property::Progress, format!("{} waits for ever", name(i))),
            None => {
                let nodes = self.directory.names(None).unwrap_or_default();
                self.blame(Property::Orphan, format!("left blocked: {nodes:?}"));
            }
        }
    }

    /// Checks the grant of the lock to the client, because of `mine`.
    pub(crate) fn check_order(&mut self, i: usize, mine: &OwnNode) {
        let role = self.clients[i].wish.role;
        let overtaken = self.directory.nodes.iter().find(|node| {
            let ahead = node.origin.czxid < mine.origin.czxid;
            ahead && excludes(node.maker.role, role) && self.is_waiting(node)
        });
        if let Some(node) = overtaken {
            let text = format!("{} overtakes {}", name(i), node.name);
            self.blame(Property::Order, text);
        }
    }

    /// Checks the grant of the lock to the client: its node was there when its turn came.
    pub(crate) fn check_turn(&mut self, i: usize) {
        if self.clients[i].deluded {
            let text = format!("{} takes a turn that it has lost", name(i));
            self.blame(Property::Truth, text);
        }
    }

    fn is_waiting(&self, node: &Node) -> bool {
        let client = &self.clients[node.maker.client];
        let wants = client.attempt.is_some() && !client.cancelled && !client.crashed;
        let current = client.attempts == node.maker.attempt && client.session == node.origin.owner;
        wants && current && !client.expired
    }

    /// Checks a client that is turned away: it has given up, or found the lock taken.
    pub(crate) fn check_refusal(&mut self, i: usize) {
        let client = &self.clients[i];
        let taken = self.directory.nodes.iter().any(|node| {
            let own = node.maker.client == i && node.maker.attempt == client.attempts;
            !own && excludes(node.maker.role, client.wish.role)
        });
        let finds = taken && client.wish.patience == Patience::Tries;
        if !(client.cancelled || finds) {
            self.blame(Property::Truth, format!("{} is turned away", name(i)));
        }
    }

    /// Checks a client that is told that its node was deleted.
    pub(crate) fn check_eviction(&mut self, i: usize) {
        if !self.clients[i].evicted {
            self.blame(Property::Truth, format!("nobody has evicted {}", name(i)));
        }
    }

    /// Checks a deletion of the client's that is about to delete the node.
    pub(crate) fn check_ownership(&mut self, i: usize, node: &str) {
        let client = &self.clients[i];
        let holds = client.raw.as_ref().is_some_and(|raw| raw.node.name == node);
        let maker = self
            .directory
            .find(node)
            .map_or(i, |node| node.maker.client);
        if maker != i || holds || client.queued.as_deref() == Some(node) {
            let text = format!("{} deletes {node}, which is in use", name(i));
            self.blame(Property::Ownership, text);
        }
    }

    /// Checks the clients that a deletion woke: the node was the nearest for all of them, or the
    /// one beyond for all. A client that was evicted in its sleep does not count.
    pub(crate) fn check_herd(&mut self, mut woken: Vec<usize>) {
        let queues = |name: &String| self.directory.find(name).is_some();
        woken.retain(|i| self.clients[*i].queued.as_ref().is_some_and(queues));
        let alone = |i: &usize| excludes(self.clients[*i].wish.role, Role::Read);
        if 1 < woken.len() && woken.iter().any(alone) {
            let names: Vec<_> = woken.iter().map(|i| name(*i)).collect();
            self.blame(Property::Herd, format!("{names:?} are woken at once"));
        }
    }

    pub(crate) fn blame(&mut self, property: Property, text: String) {
        self.violations.push(Violation { property, text });
    }
}

/// Returns an id for a node, as clients make up.
pub(crate) fn id(client: usize, attempt: u8) -> String {
    format!("{client:08x}-0000-8000-8000-{attempt:012x}")
}

/// Returns the client's name in messages.
pub(crate) fn name(i: usize) -> char {
    char::from(b'a' + i as u8)
}
