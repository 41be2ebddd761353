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
use crate::system::channel::Sender;
use crate::system::sync::Mutex;
use crate::system::{clock, contained};
use crate::time::limit::{Limit, from_now};
use crate::transport::session_state::SessionState;
use crate::transport::status::Status;
use crate::transport::{Answer, Answered, Call, Failure, Mailbox, Slot, Transport};
use zklock_core::attempt::Orphan;
use zklock_core::deletions::{Deletion, Deletions, Ended, PASSING, Progress};
use zklock_core::dialect::Sharing;
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

/// How long a wait for servers is before the next look at what earlier calls have left.
const LOOK: Duration = Duration::from_millis(5);

/// How a release ended, or that the client may not delete the node.
pub(crate) type Released = Result<Ended>;

/// Who is interested in a deletion.
#[derive(Default)]
struct Interest {
    /// The create that a waiting thread wants sent with the deletion.
    next: Option<Arc<EarlyCreate>>,
    /// Receive how the deletion ended: the thread that waits for that release, or tries in whose way the node is.
    waiters: Vec<Slot<Released>>,
}

impl Interest {
    fn tell(&mut self, released: &Released) {
        let told = self.waiters.drain(..);
        told.for_each(|one| one.put(released.clone()));
    }
}

impl Drop for Interest {
    /// Reports a node that ended with its session as not deleted by this client.
    fn drop(&mut self) {
        self.tell(&Ok(Ended::GoneBefore));
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
            refused: Mutex::default(),
            wake,
        }
    }

    /// Takes over the deletions of a guard's nodes, and sends what is due, without waiting. The `waiter` is told how
    /// each ends. The create `next` is sent with the only one, which writes nothing into the directory then.
    pub(crate) fn release(
        self: &Arc<Self>,
        deletions: impl IntoIterator<Item = Deletion>,
        waiter: Option<&Slot<Released>>,
        next: Option<&Arc<EarlyCreate>>,
    ) {
        let (mut due, now) = (Vec::new(), clock::since_boot());
        for deletion in deletions {
            let is_due = deletion.is_due(now);
            let interest = Interest {
                next: next.cloned(),
                waiters: waiter.cloned().into_iter().collect(),
            };
            let id = self.entries.lock().begin(deletion, interest);
            match is_due {
                true => due.push(id),
                false => drop(self.wake.try_send(())),
            }
        }
        self.send(&due);
    }

    /// Takes over the nodes that an attempt left in `dir`, and sends what is due.
    pub(crate) fn add(self: &Arc<Self>, dir: &str, session: i64, orphans: Vec<Orphan>) {
        let put = |orphan| self.put_orphan(dir, session, orphan);
        let ids: Vec<_> = orphans.into_iter().map(put).collect();
        self.send(&ids);
    }

    /// Waits a moment at most until the nodes are gone that this client's attempts have left in a directory, in the way
    /// of a try there.
    pub(crate) fn finish(&self, try_in: (&str, Sharing), limit: &Limit) {
        let (endings, now, mut count) = (Mailbox::new(), clock::since_boot(), 0);
        let until = self.entries.lock().awaited(try_in, now, |one| {
            one.waiters.push(endings.slot());
            count += 1;
        });
        let limit = limit
            .clone()
            .until(until.map(|until| from_now(until - now)));
        // The caller looks again, whatever ended the wait.
        let _ = (0..count).try_for_each(|_| self.transport.receive(&endings, &limit).map(drop));
    }

    /// Waits while the servers have yet to delete many nodes that attempts of this client have left in
    /// `dir`, for a moment at most. Returns whether that ended before the limit.
    ///
    /// Each call that gives up before a server has answered leaves a node. Many such calls would create
    /// more nodes than the servers delete, and each call lists them all.
    ///
    /// # Errors
    ///
    /// As [`may_delete_in`](Self::may_delete_in).
    pub(crate) fn await_backlog(
        &self,
        dir: &str,
        caller: &mut Caller,
        limit: &Limit,
    ) -> Result<bool> {
        self.may_delete_in(dir)?;
        let passing = limit.clone().until(Some(from_now(PASSING)));
        while self.entries.lock().are_many_sought_in(dir) {
            if caller.pause(LOOK, &passing).is_err() {
                return Ok(!limit.is_over());
            }
        }
        Ok(true)
    }

    /// Looks whether this client has been refused the deletion of a node that it has left in `dir`.
    ///
    /// # Errors
    ///
    /// [`Error::NoAuth`] if so: that node stands in everybody's way until the session ends, and so would a further one.
    pub(crate) fn may_delete_in(&self, dir: &str) -> Result<()> {
        let is_forbidden = self.entries.lock().is_forbidden_in(dir);
        if is_forbidden {
            // It may be due earlier now.
            let _ = self.wake.try_send(());
        }
        forbidden_if(is_forbidden, dir)
    }

    /// Looks whether this client has been refused the deletion of this node, which it has left in `dir`.
    ///
    /// # Errors
    ///
    /// [`Error::NoAuth`] if so: who waits for that node waits for this client's own session to end.
    pub(crate) fn may_delete(&self, dir: &str, name: &str) -> Result<()> {
        forbidden_if(self.entries.lock().is_forbidden(dir, name), dir)
    }

    /// Returns a directory in which this client has been refused the deletion of a node that it has left.
    pub(crate) fn forbidden(&self) -> Option<String> {
        self.entries.lock().forbidden().map(str::to_owned)
    }

    fn put_orphan(&self, dir: &str, session: i64, orphan: Orphan) -> u64 {
        let sessions = (session, self.status.snapshot().session);
        let deletion = Deletion::of_attempt(dir, sessions, orphan);
        self.entries.lock().begin(deletion, Interest::default())
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
            entries.connected(snapshot.connects, now);
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
        let entries = self.entries.lock();
        let left = entries.left(clock::since_boot())?;
        Some(left.map(|(dir, left)| (dir.to_owned(), left)).collect())
    }

    /// Returns whether anything in this directory is not known to be deleted.
    pub(crate) fn is_deleting_in(&self, dir: &str) -> bool {
        self.entries.lock().are_in(dir)
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
        let Some(request) = deletion.ask() else {
            return Vec::new();
        };
        if let Some(next) = interest.next.take() {
            let sent = Sent {
                stamp: self.status.stamp(),
                session: deletion.session(),
            };
            if let Some(calls) = next.take(sent) {
                let left = self.left(deletion);
                return join(request, calls, next, (self.answer(id), left));
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
        let (now, was_forbidden) = (clock::since_boot(), deletion.is_forbidden());
        match deletion.answered(now, answered) {
            Progress::GoesOn(failure) => {
                let failed = failure.map(|failure| (failure, deletion.dir().to_owned()));
                let mut is_news = false;
                // This hardly changes while a thread waits.
                if let Some((Failure::Refused(code @ ErrorCode::NO_AUTH), dir)) = &failed {
                    interest.tell(&Err(refused(dir, *code)));
                    is_news = !was_forbidden;
                }
                drop(entries);
                if is_news {
                    self.status.remind();
                }
                self.refused.lock().extend(failed);
                let _ = self.wake.try_send(());
            }
            Progress::Ended(ended) => {
                if deletion.is_leftover() && deletion.missed().is_none() {
                    self.counters.leftover_deleted();
                    if cfg!(feature = "metrics") {
                        let _ = self.wake.try_send(());
                    }
                }
                interest.tell(&Ok(ended));
                entries.ended(id, now, self.status.snapshot().timeout);
            }
        }
    }
}

fn forbidden_if(is_forbidden: bool, dir: &str) -> Result<()> {
    match is_forbidden {
        true => Err(refused(dir, ErrorCode::NO_AUTH)),
        false => Ok(()),
    }
}

fn tell(failure: Failure, dir: &str) {
    let why = match failure {
        Failure::TooLong(long) => Error::too_long(long, dir).to_string(),
        Failure::Refused(ErrorCode::NO_AUTH) => return tell_of_rights(dir),
        Failure::Refused(code) => code.to_string(),
        _ => return,
    };
    log::warn!("cannot clean up {dir}: {why}; trying again");
}

fn tell_of_rights(dir: &str) {
    log::warn!(
        "cannot delete what this client has left in {dir}, which stays until the session ends: the access control list of {dir} does not give this client the rights DELETE and READ; trying again"
    );
}

#[cfg(test)]
mod tests;
