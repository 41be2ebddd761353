//! ZooKeeper and its clients, reduced to what the protocol relies on.
//!
//! - Requests are atomic, and those of a client take effect in the order in which they were sent: a
//!   create that nobody waits for any more comes before a later write. ZooKeeper ensures that
//!   across connections too: it closes a session's old connection, and rejects requests that come
//!   through a server that the session has left.
//! - A read may be answered by a server that lags, but never with a state older than the client has
//!   seen. A reply that arrives late adds no case: the client's next step may be late instead. So
//!   lag matters in one case only: the client's own create whose reply was lost. A listing that is
//!   sent in one write with the create comes after it.
//! - Watches fire once. When the connection breaks they are set again, or not.
//! - A session ends at the server first. Its nodes go later, even after the client has
//!   its next session. Once it has ended, none of its writes are carried out.

use zklock_core::attempt::{Action, OwnNode};
use zklock_core::dialect::Dialect;
use zklock_core::name::prefix;

use super::client::Client;
use super::directory::{Directory, Maker};
use super::mutant::Mutant;
use super::property::{Violation, id};
use super::setting::Setting;

/// How often each mishap may still happen.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub(crate) struct Budget {
    /// The connection breaks.
    pub(crate) faults: u8,
    /// A caller gives up, or its time limit passes.
    pub(crate) cancels: u8,
    /// A session expires although its client lives.
    pub(crate) expiries: u8,
    pub(crate) crashes: u8,
    /// A critical section panics.
    pub(crate) panics: u8,
    /// An operator deletes a contender's node.
    pub(crate) evictions: u8,
    /// A watched node is written.
    pub(crate) touches: u8,
    /// The empty directory is removed.
    pub(crate) vanishings: u8,
    /// A run of a job fails.
    pub(crate) failures: u8,
    /// A server shows a state that has changed since.
    pub(crate) lags: u8,
    /// The servers' clock goes on.
    pub(crate) ticks: u8,
    /// A holder leaves a hold in its place.
    pub(crate) holds: u8,
}

/// The behaviour of the clients and their servers.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Rules {
    pub(crate) transport: Transport,
    /// Whether the reply to a create tells the node's owner and birth.
    pub(crate) create_tells: bool,
    /// Whether an attempt that has no node yet may go on in a new session for a while before it is
    /// told of it.
    pub(crate) late_news: bool,
    pub(crate) mutant: Mutant,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Transport {
    /// The transport knows its session, and takes it to the next connection.
    Wire,
    /// The transport does not: each connection may be another session.
    Handle,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct World {
    pub(crate) directory: Directory,
    pub(crate) clients: Vec<Client>,
    pub(crate) budget: Budget,
    pub(crate) rules: Rules,
    /// The violations found on the way here, until they are taken out.
    pub(crate) violations: Vec<Violation>,
}

/// One thing that can happen next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Step {
    /// The attempt's action is carried out and answered.
    Run(usize),
    /// A create and a listing, sent in one write.
    Batch(usize),
    /// A proof from memory: the quorum confirmed the session a moment ago.
    Recall(usize),
    /// A server that lags answers the attempt's question.
    Lag(usize),
    /// The subscriber gets the event of its watch.
    Wake(usize),
    /// The subscriber is told of a new connection.
    WakeAfterReconnect(usize),
    /// A create takes effect that nobody waits for any more.
    Land(usize),
    /// The guard is dropped.
    Release(usize),
    /// The holder leaves a hold in its place.
    Hold(usize),
    /// A deletion's action is carried out and answered.
    Part(usize, usize),
    /// A server that lags answers a deletion's question.
    LagPart(usize, usize),
    /// The client hears that its session has ended, and has another.
    Hear(usize),
    /// The attempt is told of the new session.
    Tell(usize),
    /// The nodes of a closed session go, or a hold, which has none.
    Reap(i64),

    /// The connection breaks and is made anew; an open request was not carried out.
    LoseRequest(usize, Watches),
    /// The same, but an open request was carried out.
    LoseReply(usize),
    /// The transport stops waiting for the answer to a create, which may be too early.
    LosePatience(usize),
    /// The connection breaks while a deletion deletes.
    LoseFarewell {
        client: usize,
        nth: usize,
        applied: bool,
    },
    /// The caller gives up; no request is open.
    Cancel(usize),
    /// The caller gives up while a create is open.
    CancelCreate(usize),
    /// The server closes the session.
    Expire(usize),
    /// The process dies.
    Crash(usize),
    /// The process dies after its create was carried out.
    CrashAfterCreate(usize),
    Evict(usize),
    Touch(usize),
    Vanish,
}

/// What happens to watches when the connection is made anew.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Watches {
    SetAgain,
    Lost,
}

impl World {
    pub(crate) fn new(setting: &Setting) -> Self {
        let clients = setting.wishes.iter().enumerate();
        let clients = clients.map(|(seat, wish)| Client::new(seat, *wish));
        let mut world = Self {
            directory: Directory::new(setting.there, setting.counter, setting.overflow),
            clients: clients.collect(),
            budget: setting.budget,
            rules: setting.rules,
            violations: Vec::new(),
        };
        for i in 0..world.clients.len() {
            match world.clients[i].wish.queued {
                true => world.enter_queued(i),
                false => world.enter(i),
            }
        }
        world
    }

    fn enter_queued(&mut self, i: usize) {
        let role = self.clients[i].wish.role;
        let prefix = prefix(Dialect::Curator, role, &id(i, u8::MAX));
        let maker = Maker {
            attempt: 1,
            ..self.maker(i)
        };
        let made = self
            .directory
            .create(&prefix, self.clients[i].session, maker);
        let (name, origin) = made.expect("the directory is there");
        self.clients[i].enter_queued(OwnNode { name, origin });
    }

    pub(crate) fn go(&mut self, step: Step) {
        match step {
            Step::Run(i) => self.run(i),
            Step::Batch(i) => {
                self.run(i);
                // A client that comes back as the next in line needs no listing.
                if self.clients[i].action() == Some(Action::List) {
                    self.run(i);
                }
            }
            Step::Recall(i) => self.recall(i),
            Step::Lag(i) => self.run_lagging(i),
            Step::Wake(i) | Step::WakeAfterReconnect(i) => self.wake(i, step),
            Step::Land(i) => self.land(i),
            Step::Release(i) => self.release(i),
            Step::Hold(i) => self.hold(i),
            Step::Part(i, nth) => self.part(i, nth),
            Step::LagPart(i, nth) => self.part_lagging(i, nth),
            Step::Hear(i) => self.hear(i),
            Step::Tell(i) => self.tell(i),
            Step::Reap(session) => self.reap(session),
            mishap => self.go_wrong(mishap),
        }
    }

    /// Begins an attempt.
    pub(crate) fn enter(&mut self, i: usize) {
        let knows_session = self.rules.transport == Transport::Wire;
        let last = self.remembered(i);
        let client = &mut self.clients[i];
        let attempts = match self.rules.mutant {
            Mutant::UsesOneId => 0,
            _ => client.attempts,
        };
        client.enter(&id(i, attempts), knows_session, last);
    }

    /// Ends a round: the caller has its result, and may ask again.
    pub(crate) fn end_round(&mut self, i: usize) {
        let client = &mut self.clients[i];
        client.attempt = None;
        client.raw = None;
        client.forget_attempt();
        client.wish.rounds -= 1;
        match client.wish.rounds {
            0 => client.last = None,
            _ => self.enter(i),
        }
    }

    pub(crate) fn maker(&self, i: usize) -> Maker {
        let client = &self.clients[i];
        Maker {
            client: i,
            attempt: client.attempts,
            role: client.wish.role,
        }
    }

    pub(crate) fn is_live(&self, session: i64) -> bool {
        let mut live = self.clients.iter().filter(|c| !c.crashed && !c.expired);
        live.any(|client| client.session == session)
    }
}
