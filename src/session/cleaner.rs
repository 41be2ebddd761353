//! Deletes the nodes of guards and attempts that have ended.
//!
//! Every exit from a queue ends here: the release of a guard, a timeout, an error, a panic.
//! [`Deletions`] decides what is sent next, and when.

use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::call_error::refused;
use super::caller::Caller;
use super::early_create::{EarlyCreate, Sent, join};
use crate::error::{Error, Result};
use crate::metrics::Counters;
use crate::path;
use crate::system::channel::Sender;
use crate::system::sync::Mutex;
use crate::system::{clock, contained};
use crate::time::limit::{Limit, from_now};
use crate::transport::session_state::SessionState;
use crate::transport::status::Status;
use crate::transport::{Answer, Answered, Call, Failure, Mailbox, Slot, Transport};
use zklock_core::attempt::Orphan;
pub(crate) use zklock_core::deletions::Ended;
use zklock_core::deletions::{Deletion, Deletions, Progress, THE_NEXT};
use zklock_jute::ErrorCode;

/// See the module's documentation.
pub(crate) struct Cleaner {
    status: Arc<Status>,
    transport: Arc<dyn Transport>,
    counters: Arc<Counters>,
    entries: Mutex<Deletions<Interest>>,
    /// What servers have refused, for the log.
    refused: Mutex<Vec<(Failure, String)>>,
    /// Wakes the background thread, which calls [`push`](Self::push).
    wake: Sender<()>,
}

/// How long a `try_` call waits for the deletion of the nodes that earlier calls of its client have
/// left, which takes a few round trips.
const PASSING: Duration = Duration::from_secs(1);

/// With so many nodes that attempts have left in a directory, the next attempt waits for servers to delete some.
const MOST_LEFT: usize = 8;

/// How long such a wait is before the next look.
const LOOK: Duration = Duration::from_millis(5);

/// How a release ended, or that the client may not delete the node.
pub(crate) type Released = Result<Ended>;

/// Who is interested in a deletion.
struct Interest {
    /// Whether the node is from an attempt, not from a guard.
    from_attempt: bool,
    /// The create that a waiting thread wants sent with the deletion.
    next: Option<Arc<EarlyCreate>>,
    /// Receives how the deletion ended, if a thread waits for that release.
    waiter: Option<Slot<Released>>,
    /// Receive how it ended, too: tries in whose way the node is.
    tries: Vec<Slot<Released>>,
    /// Until when tries wait for it, once one does.
    passes_until: Option<Instant>,
}

impl Interest {
    fn new(from_attempt: bool) -> Self {
        Self {
            from_attempt,
            next: None,
            waiter: None,
            tries: Vec::new(),
            passes_until: None,
        }
    }

    fn tell(&mut self, ended: Ended) {
        let told = self.waiter.take().into_iter().chain(self.tries.drain(..));
        told.for_each(|one| one.put(Ok(ended)));
    }

    /// Reports that the client may not delete a node in `dir`, which hardly changes while a thread waits.
    fn may_not(&mut self, dir: &str) {
        if let Some(waiter) = self.waiter.take() {
            waiter.put(Err(refused(dir, ErrorCode::NO_AUTH)));
        }
    }
}

impl Drop for Interest {
    /// Reports a node that ended with its session as not deleted by this client.
    fn drop(&mut self) {
        self.tell(Ended::GoneBefore);
    }
}

/// How to release a guard's nodes.
#[derive(Default)]
pub(crate) struct Release<'a> {
    /// The session that owns the nodes.
    pub(crate) session: i64,
    /// The thread that waits for the end, if any.
    pub(crate) waiter: Option<&'a Slot<Released>>,
    /// The data to write into the directory, and the version to replace, in the transaction that
    /// deletes the node.
    pub(crate) closing: Option<(&'a [u8], i32)>,
    /// The time since boot before which nothing is deleted.
    pub(crate) not_before: Option<Duration>,
    /// The create to send with the deletion of the only node, if nothing is written into the directory.
    pub(crate) next: Option<Arc<EarlyCreate>>,
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
            refused: Mutex::default(),
            wake,
        }
    }

    /// Takes over the nodes of a guard, and sends their deletion if it is due, without waiting.
    pub(crate) fn release(self: &Arc<Self>, nodes: &[String], release: &Release<'_>) {
        let mut ids = Vec::with_capacity(nodes.len());
        for node in nodes {
            let name = Orphan::Node(path::name(node).to_owned());
            let deletion = Deletion::new(path::parent(node), release.session, name)
                .closing(release.closing)
                .not_before(release.not_before);
            let mut interest = Interest::new(false);
            interest.next = release.next.clone();
            interest.waiter = release.waiter.cloned();
            ids.push(self.entries.lock().begin(deletion, interest));
        }
        match release.not_before {
            Some(time) if clock::since_boot() < time => {
                let _ = self.wake.try_send(());
            }
            _ => self.send(&ids),
        }
    }

    /// Takes over the nodes that an attempt left in `dir`, and sends what is due.
    pub(crate) fn add(self: &Arc<Self>, dir: &str, session: i64, orphans: Vec<Orphan>) {
        let put = |orphan| self.put_orphan(dir, session, orphan);
        let ids: Vec<_> = orphans.into_iter().map(put).collect();
        self.send(&ids);
    }

    /// Waits a moment at most until the nodes that this client's attempts have left in `dir` are
    /// gone. After that, they count like other clients' nodes.
    pub(crate) fn finish(&self, dir: &str, limit: &Limit) {
        let mut entries = self.entries.lock();
        let (now, passing) = (from_now(Duration::ZERO), from_now(PASSING));
        let is_left = |one: &&mut Interest| one.from_attempt;
        let passes = |one: &mut &mut Interest| now < *one.passes_until.get_or_insert(passing);
        let mut left: Vec<_> = entries.in_directory(dir).filter(is_left).collect();
        left.retain_mut(passes);
        let until = left.iter().filter_map(|one| one.passes_until).max();
        if until.is_none() {
            return;
        }
        let (endings, count) = (Mailbox::new(), left.len());
        left.iter_mut()
            .for_each(|one| one.tries.push(endings.slot()));
        drop(entries);
        let limit = limit.clone().until(until);
        // The caller looks again, whatever ended the wait.
        let _ = (0..count).try_for_each(|_| self.transport.receive(&endings, &limit).map(drop));
    }

    /// Waits while the servers have yet to delete many nodes that attempts of this client have left in
    /// `dir`, for a moment at most. Returns whether that ended before the limit.
    ///
    /// Each call that gives up before a server has answered leaves a node. Many such calls would create
    /// more nodes than the servers delete, and each call lists them all.
    pub(crate) fn await_backlog(&self, dir: &str, caller: &mut Caller, limit: &Limit) -> bool {
        let passing = limit.clone().until(Some(from_now(PASSING)));
        let left = || {
            let entries = self.entries.lock();
            entries.sought_in(dir, |interest| interest.from_attempt)
        };
        while MOST_LEFT <= left() {
            if caller.pause(LOOK, &passing).is_err() {
                return !limit.is_over();
            }
        }
        true
    }

    /// Begins the deletion of what an attempt left. The node belongs to `session`, or to a later
    /// session if the session changed unnoticed. The later one is assumed, because the nodes of the
    /// earlier one are gone. A create may be carried out in the next session just before the status
    /// shows that session.
    fn put_orphan(&self, dir: &str, session: i64, orphan: Orphan) -> u64 {
        let session = match (self.status.snapshot().session, &orphan) {
            (0, Orphan::Node(_)) => session,
            (0, _) => THE_NEXT,
            (current, _) => current,
        };
        let deletion = Deletion::new(dir, session, orphan);
        self.entries.lock().begin(deletion, Interest::new(true))
    }

    /// Tells the logger and the recorder what the thread that reads for all has left to tell: they may be
    /// slow, or call this client.
    pub(crate) fn tell(&self) {
        let refused = mem::take(&mut *self.refused.lock());
        for (failure, dir) in refused {
            contained(|| tell(failure, &dir));
        }
        #[cfg(feature = "metrics")]
        {
            let (connects, expiries) = (self.status.snapshot().connects, self.status.expiries());
            self.counters.tell(connects.saturating_sub(1), expiries);
        }
    }

    /// Sends what is due; returns when to call this again, if something is due later.
    pub(crate) fn push(self: &Arc<Self>) -> Option<Instant> {
        let snapshot = self.status.snapshot();
        let connected = snapshot.state == SessionState::Connected;
        let now = clock::since_boot();
        let mut entries = self.entries.lock();
        if snapshot.is_over() {
            entries.clear();
        } else if connected && snapshot.resumes {
            let until = now + snapshot.timeout;
            let given_up = self.status.given_up().map(|session| (session, until));
            entries.serves(snapshot.session, given_up);
        }
        if connected {
            entries.connected(snapshot.connects, now, || Interest::new(true));
        }
        let (due, next) = (entries.due(now), entries.next_tick(now));
        drop(entries);
        if connected {
            self.send(&due);
        }
        next.map(|next| from_now(next - now))
    }

    /// Returns the nodes that attempts have left, and those that may still appear because attempts have asked for
    /// them, with their directories; `None` while a guard's nodes are to be deleted.
    pub(crate) fn leftovers(&self) -> Option<Vec<(String, Orphan)>> {
        let (mut entries, now) = (self.entries.lock(), clock::since_boot());
        if entries.find(|one| !one.from_attempt).is_some() {
            return None;
        }
        let left = entries.left(now);
        Some(left.map(|(dir, left)| (dir.to_owned(), left)).collect())
    }

    /// Returns whether anything in this directory is not known to be deleted.
    pub(crate) fn is_deleting_in(&self, dir: &str) -> bool {
        self.entries.lock().in_directory(dir).next().is_some()
    }

    /// Returns the time until the last delayed release is due, if there is one.
    pub(crate) fn delayed_for(&self) -> Option<Duration> {
        let until = self.entries.lock().delayed_until()?;
        Some(until.saturating_sub(clock::since_boot()))
    }

    fn send(self: &Arc<Self>, ids: &[u64]) {
        let calls: Vec<_> = ids.iter().flat_map(|id| self.calls(*id)).collect();
        if !calls.is_empty() {
            self.transport.send(calls);
        }
    }

    /// Returns the calls of an entry, unless the background thread has sent them already.
    fn calls(self: &Arc<Self>, id: u64) -> Vec<Call> {
        let mut entries = self.entries.lock();
        let Some((deletion, interest)) = entries.get(id) else {
            return Vec::new();
        };
        let node = interest.next.as_ref().and_then(|_| deletion.node());
        let Some(request) = deletion.ask() else {
            return Vec::new();
        };
        if let Some((node, next)) = node.and_then(|node| Some((node, interest.next.take()?))) {
            let sent = Sent {
                stamp: self.status.stamp(),
                session: deletion.session(),
            };
            if let Some(calls) = next.take(sent) {
                let left = self.left(deletion);
                return join(node, calls, next, (self.answer(id), left));
            }
        }
        vec![Call {
            request,
            watch: None,
            answer: self.answer(id),
        }]
    }

    /// Returns a closure that takes over the node of a create; the background thread deletes it.
    fn left(self: &Arc<Self>, of: &Deletion) -> impl FnOnce(Orphan) + Send + use<> {
        let (cleaner, dir, session) = (self.clone(), of.dir().to_owned(), of.session());
        move |orphan| {
            cleaner.put_orphan(&dir, session, orphan);
            let _ = cleaner.wake.try_send(());
        }
    }

    fn answer(self: &Arc<Self>, id: u64) -> Answer {
        let cleaner = self.clone();
        Box::new(move |answered| cleaner.answered(id, answered))
    }

    /// Handles an answer, on the transport's thread.
    fn answered(&self, id: u64, answered: Answered) {
        let mut entries = self.entries.lock();
        if answered == Err(Failure::Closed) {
            // The waiter must wake, even if the background thread has ended.
            entries.take(id);
            return;
        }
        let Some((deletion, interest)) = entries.get(id) else {
            return;
        };
        let now = clock::since_boot();
        match deletion.answered(now, answered) {
            Progress::GoesOn(failure) => {
                let failed = failure.map(|failure| (failure, deletion.dir().to_owned()));
                if let Some((Failure::Refused(ErrorCode::NO_AUTH), dir)) = &failed {
                    interest.may_not(dir);
                }
                drop(entries);
                self.refused.lock().extend(failed);
                let _ = self.wake.try_send(());
            }
            Progress::Ended(ended) => {
                let found = deletion.missed().is_none();
                let interest = entries.ended(id, now, self.status.snapshot().timeout);
                drop(entries);
                if let Some(interest) = interest {
                    self.ended(interest, ended, found);
                }
            }
        }
    }

    fn ended(&self, mut interest: Interest, ended: Ended, found: bool) {
        if interest.from_attempt && found {
            self.counters.leftover_deleted();
            if cfg!(feature = "metrics") {
                let _ = self.wake.try_send(());
            }
        }
        interest.tell(ended);
    }
}

fn tell(failure: Failure, dir: &str) {
    let why = match failure {
        Failure::TooLong(long) => Error::too_long(long, dir).to_string(),
        Failure::Refused(code) => code.to_string(),
        _ => return,
    };
    log::warn!("cannot clean up {dir}: {why}; trying again");
}

#[cfg(test)]
mod tests;
