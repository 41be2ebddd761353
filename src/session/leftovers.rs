//! Nodes that must go, and somebody who sees to it.
//!
//! Every exit from a queue ends here: the release of a guard, a timeout, an error, a
//! panic. An entry leaves when the server has said that its nodes are gone, or when the
//! session that owns them is over, which takes them along.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use parking_lot::Mutex;

use super::ask::Answered;
use super::hub::{Hub, SessionState};
use super::transport::{Call, Failure, Transport};
use crate::path;
use crate::proto::{ErrorCode, Reply, Request};
use crate::protocol::attempt::Leftover;
use crate::protocol::farewell::{Action, Event, Farewell};

/// How long to wait before a request that was turned down is repeated.
const PAUSE: Duration = Duration::from_secs(1);

/// See the module's documentation.
pub(crate) struct Leftovers {
    hub: Arc<Hub>,
    transport: Arc<dyn Transport>,
    entries: Mutex<Entries>,
    /// Wakes the keeper, which calls [`push`](Self::push).
    wake: Sender<()>,
}

#[derive(Default)]
struct Entries {
    next: u64,
    open: HashMap<u64, Entry>,
}

struct Entry {
    dir: String,
    session: i64,
    farewell: Farewell,
    asked: bool,
    /// Asked before, without an answer: a node that is gone may be so because of us.
    again: bool,
    not_before: Option<Instant>,
    /// Who wants to know how it ended.
    waiter: Option<Sender<Ended>>,
}

/// How it ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Ended {
    /// We deleted the node.
    Deleted,
    /// The node was gone before.
    GoneBefore,
}

impl Leftovers {
    pub(crate) fn new(hub: Arc<Hub>, transport: Arc<dyn Transport>, wake: Sender<()>) -> Self {
        Self {
            hub,
            transport,
            entries: Mutex::default(),
            wake,
        }
    }

    /// Takes over nodes of guards and sends their deletion at once, without waiting.
    pub(crate) fn release(
        self: &Arc<Self>,
        nodes: &[String],
        session: i64,
        waiter: Option<&Sender<Ended>>,
    ) {
        let mut ids = Vec::with_capacity(nodes.len());
        for node in nodes {
            let name = path::name(node);
            let dir = &node[..node.len() - name.len() - 1];
            let leftover = Leftover::Node(name.to_owned());
            ids.push(self.put(dir, session, leftover, waiter.cloned()));
        }
        self.send(&ids);
    }

    /// Takes over what an attempt left in `dir`.
    pub(crate) fn add(self: &Arc<Self>, dir: &str, session: i64, leftovers: Vec<Leftover>) {
        let put = |leftover| self.put(dir, session, leftover, None);
        let ids: Vec<_> = leftovers.into_iter().map(put).collect();
        self.send(&ids);
    }

    /// Sends what is due; returns when to come again, if something has to wait.
    pub(crate) fn push(self: &Arc<Self>) -> Option<Instant> {
        let link = self.hub.link();
        let resumes = self.transport.abilities().resumes;
        let now = Instant::now();
        let mut entries = self.entries.lock();
        if link.is_over() {
            entries.open.clear();
        } else if link.state == SessionState::Connected && resumes {
            // Nodes of a session that is over go with it.
            entries
                .open
                .retain(|_, entry| entry.session == link.session);
        }
        let idle = |entry: &&Entry| !entry.asked;
        let next = entries
            .open
            .values()
            .filter(idle)
            .filter_map(|entry| entry.not_before)
            .min();
        let due = |(id, entry): (&u64, &Entry)| {
            let due = !entry.asked && entry.not_before.is_none_or(|time| time <= now);
            due.then_some(*id)
        };
        let due: Vec<_> = entries.open.iter().filter_map(due).collect();
        drop(entries);
        if link.state == SessionState::Connected {
            self.send(&due);
        }
        next.filter(|time| now < *time)
    }

    /// How many entries are open.
    pub(crate) fn len(&self) -> usize {
        self.entries.lock().open.len()
    }

    fn put(
        &self,
        dir: &str,
        session: i64,
        leftover: Leftover,
        waiter: Option<Sender<Ended>>,
    ) -> u64 {
        let mut entries = self.entries.lock();
        entries.next += 1;
        let id = entries.next;
        let entry = Entry {
            dir: dir.to_owned(),
            session,
            farewell: Farewell::new(leftover),
            asked: false,
            again: false,
            not_before: None,
            waiter,
        };
        entries.open.insert(id, entry);
        id
    }

    fn send(self: &Arc<Self>, ids: &[u64]) {
        let calls: Vec<_> = ids.iter().filter_map(|id| self.call(*id)).collect();
        if !calls.is_empty() {
            self.transport.send(calls);
        }
    }

    fn call(self: &Arc<Self>, id: u64) -> Option<Call> {
        let sync = self.transport.abilities().sync;
        let mut entries = self.entries.lock();
        let entry = entries.open.get_mut(&id)?;
        entry.asked = true;
        let request = request(&entry.farewell.action(), &entry.dir, sync)?;
        let leftovers = self.clone();
        Some(Call {
            request,
            watch: None,
            answer: Box::new(move |answered| leftovers.answered(id, answered)),
        })
    }

    /// Runs on the transport's thread.
    fn answered(&self, id: u64, answered: Answered) {
        let mut entries = self.entries.lock();
        let Some(entry) = entries.open.get_mut(&id) else {
            return;
        };
        entry.asked = false;
        let ended = match &answered {
            Ok(_) => Ended::Deleted,
            Err(_) if entry.again => Ended::Deleted,
            Err(_) => Ended::GoneBefore,
        };
        match event(&entry.farewell.action(), answered) {
            Ok(event) => entry.farewell.handle(event),
            // Sent again by the keeper when the connection is back.
            Err(Failure::Lost) => entry.again = true,
            Err(Failure::NotSent | Failure::Closed) => {}
            Err(Failure::Refused(code)) => {
                log::warn!("cannot clear up {}: {code}; trying again", entry.dir);
                entry.not_before = Some(Instant::now() + PAUSE);
            }
        }
        if entry.farewell.action() != Action::Done {
            let _ = self.wake.try_send(());
            return;
        }
        let entry = entries.open.remove(&id);
        if let Some(waiter) = entry.and_then(|entry| entry.waiter) {
            let _ = waiter.try_send(ended);
        }
    }
}

/// The request that carries out an action.
fn request(action: &Action, dir: &str, sync: bool) -> Option<Request> {
    Some(match action {
        Action::Sync => super::sync(dir, sync),
        Action::List => super::list(dir),
        Action::Delete(name) => Request::Delete {
            path: format!("{dir}/{name}"),
            version: -1,
        },
        Action::Done => return None,
    })
}

/// What the answer to an action says.
fn event(action: &Action, answered: Answered) -> Result<Event, Failure> {
    match (action, answered) {
        (Action::List, Ok(Reply::Children { names, .. })) => Ok(Event::Children(names)),
        (Action::Sync, Ok(_)) => Ok(Event::Synced),
        // A refusal comes through the quorum just as well.
        (Action::Sync, Err(Failure::Refused(code))) if !super::is_passing(code) => {
            Ok(Event::Synced)
        }
        (Action::Delete(_), Ok(_)) => Ok(Event::Gone),
        (_, Err(Failure::Refused(ErrorCode::NO_NODE))) => Ok(Event::Gone),
        (_, Err(Failure::Refused(code))) if super::is_passing(code) => Err(Failure::Lost),
        (_, Err(failure)) => Err(failure),
        (_, Ok(_)) => Err(Failure::Lost),
    }
}

impl fmt::Debug for Leftovers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leftovers")
            .field("open", &self.len())
            .finish_non_exhaustive()
    }
}
