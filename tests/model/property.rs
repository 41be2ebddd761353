//! What must hold in every world.

use std::slice;

use zklock::protocol::attempt::{Action, Attempt, Event, Mine, Outcome, Patience};
use zklock::protocol::dialect::Role;

use super::client::Client;
use super::directory::Node;
use super::world::{Step, World};

/// What was violated, and how.
pub(crate) type Violation = (Property, String);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Property {
    /// Two that exclude each other never hold at once.
    Exclusion,
    /// Nobody gets the lock before somebody who queued earlier and still waits.
    Order,
    /// Wake any sleeper for no reason: it finds that it still has to wait.
    Sleep,
    /// A deletion wakes one contender, except readers, which can go on together.
    Herd,
    /// Nobody is told that it was evicted, or that the lock was taken, if that's not so.
    Truth,
    /// Whoever waits has something to wait for.
    Progress,
    /// When all is over, no node is left.
    Leftover,
    /// From everywhere, if nothing goes wrong any more, a way leads to the end.
    Liveness,
}

/// Whether two roles exclude each other; not the protocol's own table, but the promise.
pub(crate) fn excludes(one: Role, other: Role) -> bool {
    one != Role::Read || other != Role::Read
}

impl World {
    /// Looks at this world; `steps` are what can happen next.
    pub(crate) fn check(&self, steps: &[Step]) -> Result<(), Violation> {
        self.check_exclusion()?;
        for i in 0..self.clients.len() {
            self.check_sleep(i)?;
        }
        if steps.iter().any(|step| step.is_progress()) || self.is_finished() {
            return Ok(());
        }
        match self.clients.iter().position(|client| !client.is_done()) {
            Some(i) => fail(Property::Progress, format!("{} waits for ever", name(i))),
            None => {
                let nodes = self.directory.names(None);
                fail(Property::Leftover, format!("left behind: {nodes:?}"))
            }
        }
    }

    fn check_exclusion(&self) -> Result<(), Violation> {
        let holds = |client: &Client| client.hold.as_ref().is_some_and(|hold| hold.trusted);
        for (i, one) in self.clients.iter().enumerate() {
            for (j, other) in self.clients.iter().enumerate().skip(i + 1) {
                if holds(one) && holds(other) && excludes(one.wish.role, other.wish.role) {
                    let text = format!("{} and {} hold at once", name(i), name(j));
                    return fail(Property::Exclusion, text);
                }
            }
        }
        Ok(())
    }

    fn check_sleep(&self, i: usize) -> Result<(), Violation> {
        let client = &self.clients[i];
        let stirred = client.fired.is_some() || client.reconnected;
        if !client.is_asleep() || stirred || client.crashed || client.expired || client.untold {
            return Ok(());
        }
        let mut attempt = client.attempt.clone().expect("a sleeper has one");
        attempt.handle(Event::Woken);
        match self.decide(attempt) {
            Action::Watch(_) => Ok(()),
            // It cannot go on anyway, and learns why when somebody ahead goes.
            Action::Finish(Outcome::Evicted(_)) if client.evicted => Ok(()),
            action => {
                let text = format!("{} sleeps instead of {action:?}", name(i));
                fail(Property::Sleep, text)
            }
        }
    }

    /// Lets an attempt look at the queue as it is, until it has made up its mind.
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

    /// The client was given the lock on the strength of `mine`.
    pub(crate) fn check_order(&self, i: usize, mine: &Mine) -> Result<(), Violation> {
        let ahead = self.directory.nodes.iter();
        let mut ahead = ahead.filter(|node| node.born.czxid < mine.born.czxid);
        let role = self.clients[i].wish.role;
        match ahead.find(|node| excludes(node.maker.role, role) && self.is_waiting(node)) {
            Some(node) => {
                let text = format!("{} overtakes {}", name(i), node.name);
                fail(Property::Order, text)
            }
            None => Ok(()),
        }
    }

    fn is_waiting(&self, node: &Node) -> bool {
        let client = &self.clients[node.maker.client];
        let wants = client.attempt.is_some() && !client.cancelled && !client.crashed;
        let current = client.attempts == node.maker.attempt && client.session == node.born.owner;
        wants && current && !client.expired
    }

    /// The client was turned away without having given up.
    pub(crate) fn check_refusal(&self, i: usize) -> Result<(), Violation> {
        let client = &self.clients[i];
        let taken = self.directory.nodes.iter().any(|node| {
            let own = node.maker.client == i && node.maker.attempt == client.attempts;
            !own && excludes(node.maker.role, client.wish.role)
        });
        if client.cancelled || taken && client.wish.patience == Patience::Tries {
            return Ok(());
        }
        fail(Property::Truth, format!("{} is turned away", name(i)))
    }

    pub(crate) fn check_eviction(&self, i: usize) -> Result<(), Violation> {
        match self.clients[i].evicted {
            true => Ok(()),
            false => fail(Property::Truth, format!("nobody has evicted {}", name(i))),
        }
    }

    /// A deletion woke these. Whoever was evicted in its sleep does not count.
    pub(crate) fn check_herd(&self, mut woken: Vec<usize>) -> Result<(), Violation> {
        let queues = |name: &String| self.directory.find(name).is_some();
        woken.retain(|i| self.clients[*i].queued.as_ref().is_some_and(queues));
        let alone = |i: &usize| excludes(self.clients[*i].wish.role, Role::Read);
        if 1 < woken.len() && woken.iter().any(alone) {
            let names: Vec<_> = woken.iter().map(|i| name(*i)).collect();
            return fail(Property::Herd, format!("{names:?} are woken at once"));
        }
        Ok(())
    }
}

pub(crate) fn fail<T>(property: Property, text: String) -> Result<T, Violation> {
    Err((property, text))
}

/// The client's name in messages, and the first letter of its ids.
fn name(i: usize) -> String {
    String::from_utf8_lossy(slice::from_ref(&(b'a' + i as u8))).into_owned()
}
