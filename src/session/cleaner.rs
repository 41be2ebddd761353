//! Deletes the nodes of guards and attempts that have ended.
//!
//! Every exit from a queue ends here: the release of a guard, a timeout, an error, a panic.
//! An entry leaves when the server says that its nodes are gone, or when the session that
//! owns them ends, which deletes them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::cleanup_call::{close, event, request};
use super::early_create::{EarlyCreate, Left, Sent, join};
use crate::metrics::Counters;
use crate::path;
use crate::system::channel::Sender;
use crate::system::clock;
use crate::system::sync::Mutex;
use crate::time::limit::never_comes;
use crate::transport::mailbox_sender::Slot;
use crate::transport::session_state::SessionState;
use crate::transport::status::Status;
use crate::transport::{Answer, Answered};
use crate::transport::{Call, Failure, Transport};
use zklock_core::attempt::Orphan;
use zklock_core::cleanup::{Action, Cleanup};
use zklock_jute::{Reply, Request, failure};

/// How long to wait before a refused request is repeated.
const PAUSE: Duration = Duration::from_secs(1);
/// The same for a request to which the server will hardly ever give another answer.
const LONG_PAUSE: Duration = Duration::from_secs(600);

/// See the module's documentation.
pub(crate) struct Cleaner {
    status: Arc<Status>,
    transport: Arc<dyn Transport>,
    counters: Arc<Counters>,
    entries: Mutex<Entries>,
    /// Wakes the background thread, which calls [`push`](Self::push).
    wake: Sender<()>,
}

#[derive(Default)]
struct Entries {
    next: u64,
    open: BTreeMap<u64, PendingNode>,
}

struct PendingNode {
    dir: String,
    session: i64,
    cleanup: Cleanup,
    /// A request is under way.
    in_flight: bool,
    /// It comes from an attempt, not from a guard.
    from_attempt: bool,
    /// A request got no answer: if the node is gone, that request may have deleted it.
    retried: bool,
    not_before: Option<Instant>,
    /// `not_before` is a pause after a failed request, not the user's delay.
    pausing: bool,
    /// The listing of the directory is too long for a reply.
    crowded: bool,
    /// What is written into the directory in the transaction that deletes the node.
    closing: Option<(Vec<u8>, i32)>,
    /// What a waiting thread wants to have sent with the deletion.
    next: Option<Arc<EarlyCreate>>,
    /// Told how it ended, if a thread waits for that.
    waiter: Option<Slot<Ended>>,
}

/// How to release a guard's nodes.
pub(crate) struct Release<'a> {
    /// The session that owns them.
    pub(crate) session: i64,
    /// The thread that waits for the end, if any.
    pub(crate) waiter: Option<&'a Slot<Ended>>,
    /// What is written into the directory, over which version, in the transaction that deletes the
    /// node.
    pub(crate) closing: Option<(&'a [u8], i32)>,
    /// Not before this.
    pub(crate) not_before: Option<Instant>,
    /// What goes with the deletion of the only node, if nothing is written into the directory.
    pub(crate) next: Option<Arc<EarlyCreate>>,
}

/// How a release ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Ended {
    /// This client deleted the node, and wrote what was to be written with the deletion.
    Deleted,
    /// The node is gone after a request whose answer was lost, or what was to be written is not.
    Presumed,
    /// The node was gone already.
    GoneBefore,
}

impl PendingNode {
    fn new(dir: &str, session: i64, orphan: Orphan) -> Self {
        Self {
            dir: dir.to_owned(),
            session,
            cleanup: Cleanup::new(orphan),
            in_flight: false,
            from_attempt: false,
            retried: false,
            not_before: None,
            pausing: false,
            crowded: false,
            closing: None,
            next: None,
            waiter: None,
        }
    }

    /// Takes a failure; the background thread asks again. Returns what to log, if
    /// anything.
    fn postpone(&mut self, failure: Failure) -> Option<String> {
        if matches!(failure, Failure::Refused(_)) && self.closing.take().is_some() {
            // What may not be written must neither prevent nor delay the deletion.
            self.retried = true;
            return None;
        }
        let (pause, why) = match failure {
            Failure::Lost => {
                self.retried = true;
                return None;
            }
            Failure::NotSent | Failure::Closed => return None,
            Failure::TooLong(_) if !self.crowded => {
                self.crowded = true;
                return None;
            }
            Failure::TooLong(long) => (LONG_PAUSE, long.about(&self.dir).to_string()),
            Failure::Refused(code) if self.crowded => (LONG_PAUSE, code.to_string()),
            Failure::Refused(code) => (PAUSE, code.to_string()),
        };
        self.not_before = Some(clock::now() + pause);
        self.pausing = true;
        Some(format!("cannot clean up {}: {why}", self.dir))
    }

    /// How the release ends if this answer to the deletion ends it.
    fn ended_by(&self, answered: &Answered) -> Ended {
        let deleted = match answered {
            Ok(Reply::Multi(results)) if failure(results).is_none() => return Ended::Deleted,
            Ok(Reply::Multi(_)) | Err(_) => false,
            Ok(_) => true,
        };
        match self.retried {
            true => Ended::Presumed,
            false if deleted => Ended::Deleted,
            false => Ended::GoneBefore,
        }
    }
}

impl Drop for PendingNode {
    /// A node that ends with its session counts as not deleted by this client.
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter.take() {
            waiter.put(Ended::GoneBefore);
        }
    }
}

impl Cleaner {
    pub(crate) fn new(
        status: Arc<Status>,
        transport: Arc<dyn Transport>,
        counters: Arc<Counters>,
        wake: Sender<()>,
    ) -> Self {
        Self {
            status,
            transport,
            counters,
            entries: Mutex::default(),
            wake,
        }
    }

    /// Takes over the nodes of a guard, and sends their deletion if it is due, without
    /// waiting.
    pub(crate) fn release(self: &Arc<Self>, nodes: &[String], release: &Release<'_>) {
        let mut ids = Vec::with_capacity(nodes.len());
        for node in nodes {
            let name = path::name(node);
            let dir = &node[..node.len() - name.len() - 1];
            let mut entry = PendingNode::new(dir, release.session, Orphan::Node(name.to_owned()));
            let closing = release.closing;
            entry.closing = closing.map(|(data, version)| (data.to_vec(), version));
            entry.waiter = release.waiter.cloned();
            entry.not_before = release.not_before;
            entry.next = release.next.clone();
            ids.push(self.put(entry));
        }
        match release.not_before {
            Some(time) if clock::now() < time => {
                let _ = self.wake.try_send(());
            }
            _ => self.send(&ids),
        }
    }

    /// Takes over what an attempt left in `dir`, and sends what is due.
    pub(crate) fn add(self: &Arc<Self>, dir: &str, session: i64, orphans: Vec<Orphan>) {
        let put = |orphan| self.put_orphan(dir, session, orphan);
        let ids: Vec<_> = orphans.into_iter().map(put).collect();
        self.send(&ids);
    }

    /// The node belongs to `session`, or to a later one if the session changed unnoticed; the
    /// later one is assumed, because the nodes of the earlier one are gone.
    fn put_orphan(&self, dir: &str, session: i64, orphan: Orphan) -> u64 {
        let session = match self.status.snapshot().session {
            0 => session,
            current => current,
        };
        let mut entry = PendingNode::new(dir, session, orphan);
        entry.from_attempt = true;
        self.put(entry)
    }

    /// Sends what is due; returns when to come again, if something is due later.
    pub(crate) fn push(self: &Arc<Self>) -> Option<Instant> {
        let snapshot = self.status.snapshot();
        let resumes = self.transport.capabilities().resumes;
        let now = clock::now();
        let mut entries = self.entries.lock();
        if snapshot.is_over() {
            entries.open.clear();
        } else if snapshot.state == SessionState::Connected && resumes {
            // The end of a session deletes its nodes.
            entries
                .open
                .retain(|_, entry| entry.session == snapshot.session);
        }
        let idle = |entry: &&PendingNode| !entry.in_flight;
        let next = entries
            .open
            .values()
            .filter(idle)
            .filter_map(|entry| entry.not_before)
            .filter(|time| now < *time)
            .min();
        let due = |(id, entry): (&u64, &PendingNode)| {
            let due = !entry.in_flight && entry.not_before.is_none_or(|time| time <= now);
            due.then_some(*id)
        };
        let due: Vec<_> = entries.open.iter().filter_map(due).collect();
        drop(entries);
        if snapshot.state == SessionState::Connected {
            self.send(&due);
        }
        next
    }

    /// The number of open entries.
    pub(crate) fn len(&self) -> usize {
        self.entries.lock().open.len()
    }

    /// When the last delayed release is due.
    pub(crate) fn held_until(&self) -> Option<Instant> {
        let entries = self.entries.lock();
        entries
            .open
            .values()
            .filter(|entry| !entry.pausing)
            .filter_map(|entry| entry.not_before)
            .filter(|until| !never_comes(*until))
            .max()
    }

    fn put(&self, entry: PendingNode) -> u64 {
        let mut entries = self.entries.lock();
        entries.next += 1;
        let id = entries.next;
        entries.open.insert(id, entry);
        id
    }

    fn send(self: &Arc<Self>, ids: &[u64]) {
        let calls: Vec<_> = ids.iter().flat_map(|id| self.calls(*id)).collect();
        if !calls.is_empty() {
            self.transport.send(calls);
        }
    }

    fn calls(self: &Arc<Self>, id: u64) -> Vec<Call> {
        let mut entries = self.entries.lock();
        let Some(entry) = entries.open.get_mut(&id) else {
            return Vec::new();
        };
        if std::mem::replace(&mut entry.in_flight, true) {
            // The background thread was faster. With two requests under way the answer to
            // one would be taken for the answer to the other.
            return Vec::new();
        }
        let action = entry.cleanup.action();
        if let (Action::Delete(name), Some(next)) = (&action, entry.next.take()) {
            let sent = Sent {
                stamp: self.status.stamp(),
                session: entry.session,
            };
            debug_assert!(entry.closing.is_none(), "it would not be written");
            if let Some(calls) = next.take(sent) {
                let (node, left) = (format!("{}/{name}", entry.dir), self.left(entry));
                return join(node, calls, next, (self.answer(id), left));
            }
        }
        let capabilities = self.transport.capabilities();
        let (dir, closing) = (&entry.dir, &entry.closing);
        let request = match (&action, closing) {
            (Action::Delete(name), Some((data, version))) => Some(close(dir, name, data, *version)),
            // Since ZooKeeper 3.6, a session can ask for its own nodes.
            (Action::List, _) if entry.crowded => {
                Some(Request::GetEphemerals { below: dir.clone() })
            }
            _ => request(&action, dir, capabilities),
        };
        let call = |request| Call {
            request,
            watch: None,
            answer: self.answer(id),
        };
        request.map(call).into_iter().collect()
    }

    /// Takes over what a create left; the background thread deletes it.
    fn left(self: &Arc<Self>, of: &PendingNode) -> Left {
        let (cleaner, dir, session) = (self.clone(), of.dir.clone(), of.session);
        Box::new(move |orphan| {
            cleaner.put_orphan(&dir, session, orphan);
            let _ = cleaner.wake.try_send(());
        })
    }

    fn answer(self: &Arc<Self>, id: u64) -> Answer {
        let cleaner = self.clone();
        Box::new(move |answered| cleaner.answered(id, answered))
    }

    /// Runs on the transport's thread.
    fn answered(&self, id: u64, answered: Answered) {
        let mut entries = self.entries.lock();
        let Some(entry) = entries.open.get_mut(&id) else {
            return;
        };
        entry.in_flight = false;
        let ended = entry.ended_by(&answered);
        match event(&entry.cleanup.action(), &entry.dir, answered) {
            Ok(event) => entry.cleanup.handle(event),
            Err(Failure::Closed) => {
                // Wakes the waiter, even if the background thread has ended.
                entries.open.remove(&id);
                return;
            }
            Err(failure) => {
                let trouble = entry.postpone(failure);
                drop(entries);
                let _ = self.wake.try_send(());
                if let Some(trouble) = trouble {
                    log::warn!("{trouble}; trying again");
                }
                return;
            }
        }
        if entry.cleanup.action() != Action::Done {
            let _ = self.wake.try_send(());
            return;
        }
        let Some(mut entry) = entries.open.remove(&id) else {
            return;
        };
        drop(entries);
        if entry.from_attempt {
            self.counters.leftover_deleted();
        }
        if let Some(waiter) = entry.waiter.take() {
            waiter.put(ended);
        }
    }
}

impl fmt::Debug for Cleaner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cleaner")
            .field("open", &self.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
