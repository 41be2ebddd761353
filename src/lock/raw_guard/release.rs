//! How a guard gives up its place: to the next thread of this client, or to the server.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::{Closing, RawGuard, Replaces};
use crate::error::{Error, LostReason, Result};
use crate::path;
use crate::session::call_error::refused;
use crate::session::cleaner::Released;
use crate::session::early_create::EarlyCreate;
use crate::system::channel::{Waitable, wait_any};
use crate::system::{clock, contained};
use crate::time::limit::{Limit, LimitReached, from_now, since_boot};
use crate::transport::{Mailbox, Slot};
use zklock_core::attempt::Orphan;
use zklock_core::deletions::{Deletion, Ended};
use zklock_core::release_note::Note;

/// How often a release that waits for its minimum time checks whether the lock is lost.
const LOOK: Duration = Duration::from_millis(500);

impl RawGuard {
    /// Hands the lock to the next thread of this client, if that is allowed; then there is nothing
    /// left to give up.
    pub(super) fn hand_off(&mut self) -> bool {
        let kept = self.closing.is_some() || self.at_least_until.is_some();
        if kept || *self.in_doubt.get_mut() || *self.has_left.get_mut() {
            return false;
        }
        let most = self.session.settings.local_handoffs;
        let heirs = self.heirs.clone().filter(|_| 0 < most);
        let (Some(watched), Some(turnstile)) = (self.watched, heirs) else {
            return false;
        };
        let cede = || {
            let lease = self.session.leases.succeed(watched)?;
            self.watched = None;
            let mut next = Self::watched_as(watched, &self.session, lease, self.token);
            next.heirs.clone_from(&self.heirs);
            next.waited = self.waited;
            Some(next)
        };
        let path = self.lease.clone();
        let handed = turnstile.hand_off(path.path(), most, cede);
        if handed {
            self.tell_end("handed on");
        }
        handed
    }

    /// Gives up the nodes and waits for the answer, at most until the lock is lost.
    pub(crate) fn release(mut self) -> Result<()> {
        self.may_release()?;
        if let Some(until) = self.at_least_until {
            self.hold_until(until);
            // A lock that is lost before that time may still have its nodes, which stay until then.
            self.at_least_until = Some(until).filter(|until| clock::now() < *until);
        }
        let held = self.check();
        if held.is_ok() && self.hand_off() {
            return Ok(());
        }
        let limit = Limit::after(self.valid_for());
        let endings = Mailbox::new();
        let count = self.nodes().len();
        self.give_up(Some(&endings.slot()));
        held?;
        for _ in 0..count {
            match self.session.transport.receive(&endings, &limit) {
                Ok(Ok(Ended::Deleted | Ended::Presumed | Ended::Unwritten(_))) => {}
                Ok(Ok(Ended::GoneBefore)) => return Err(self.found_gone()),
                Ok(Err(refused)) => return Err(refused),
                Err(LimitReached) => return Err(self.lease.lost()),
            }
        }
        Ok(())
    }

    /// Gives up the nodes, writes `data` into the directory over this version, and waits for the
    /// answer until the limit. Returns whether the data is certainly written; `None` at the limit,
    /// when it may still be written.
    ///
    /// The server decides: if the node is there, the lock was held up to this moment, even if the
    /// client could not know that.
    pub(crate) fn release_writing(
        mut self,
        data: Vec<u8>,
        version: i32,
        limit: &Limit,
    ) -> Result<Option<bool>> {
        self.may_release()?;
        self.closing = Some(Box::new(Closing::Data(data, version)));
        let endings = Mailbox::new();
        self.give_up(Some(&endings.slot()));
        let ended = self.session.transport.receive(&endings, limit).ok();
        match ended.transpose()? {
            Some(Ended::Unwritten(code)) => Err(refused(self.lease.path(), code)),
            ended => Ok(ended.map(|ended| ended == Ended::Deleted)),
        }
    }

    /// Fails in a forked child: a thread that does not exist there may have a mutex locked.
    fn may_release(&self) -> Result<()> {
        match self.session.is_inherited() {
            true => Err(Error::Closed),
            false => Ok(()),
        }
    }

    /// Waits until this time, or until the lock is lost.
    fn hold_until(&self, until: Instant) {
        let changes = self.session.status.changes();
        let events = self.lease.events();
        while self.check().is_ok() && clock::now() < until {
            let next = from_now(self.valid_for().min(LOOK)).min(until);
            let mut channels: Vec<&dyn Waitable> = vec![changes.receiver()];
            // An unread event would end the wait at once and is no news. The next one goes
            // unnoticed, which is why `LOOK` bounds the wait.
            if events.is_empty() {
                channels.push(events);
            }
            // The loop checks again, whatever ended the wait.
            let _ = wait_any(&channels, Some(next));
            let _ = changes.receiver().try_recv();
        }
    }

    pub(super) fn give_up(&mut self, waiter: Option<&Slot<Released>>) {
        let Some(watched) = self.watched.take() else {
            return;
        };
        self.lease.tell(&self.session.counters);
        let end = match self.check() {
            Ok(()) => "released",
            Err(_) => "left",
        };
        self.leave(watched, waiter);
        self.tell_end(end);
    }

    /// Deletes the nodes, whose lease has this id.
    fn leave(&mut self, watched: u64, waiter: Option<&Slot<Released>>) {
        if *self.has_left.get_mut() {
            self.session.leases.end(watched);
            if let Some(waiter) = waiter {
                waiter.put(Ok(Ended::Deleted));
            }
            return;
        }
        self.give_up_claim();
        let (panics, lost) = (thread::panicking(), self.check().is_err());
        let closing = self.closing.as_ref();
        let closing = closing.and_then(|closing| closing.data(panics, lost));
        let replaces = self.noted.get().filter(|_| !panics && !lost);
        let note = |over: &Replaces| {
            Some((
                Note::default().with(path::name(self.node()))?,
                (*over.get()?)?,
            ))
        };
        let note = replaces.and_then(note);
        let note = note.as_ref().map(|(text, over)| (&text[..], *over));
        let (session, writes) = (self.lease.session(), closing.or(note));
        let kept = self.at_least_until.filter(|_| !self.is_gone());
        let not_before = kept.map(since_boot);
        let deletions = self.nodes().iter().map(|node| {
            let deletion = Deletion::of_guard(node, session).closing(writes);
            deletion.not_before(not_before)
        });
        let next = (!lost).then(|| self.next_create()).flatten();
        self.session.leases.end(watched);
        let cleaner = &self.session.cleaner;
        cleaner.release(deletions, waiter, next.as_ref());
    }

    /// Gives up the claim, before the lock: the next holder must find the claim free.
    pub(in crate::lock) fn give_up_claim(&self) {
        let Some(claim) = self.lease.claim() else {
            return;
        };
        self.stop_watching();
        let (session, cleaner) = (self.lease.session(), &self.session.cleaner);
        match claim.node.get() {
            Some(node) => cleaner.release([Deletion::of_guard(node, session)], None, None),
            None => {
                let orphan = Orphan::Prefix(claim.prefix.clone());
                cleaner.add(&claim.dir, session, vec![orphan]);
            }
        }
    }

    /// Returns whether the node is gone, so that nothing keeps others out any more.
    fn is_gone(&self) -> bool {
        let Err(Error::Lost { why, .. }) = self.check() else {
            return false;
        };
        matches!(
            why,
            LostReason::Evicted | LostReason::NodeGone | LostReason::SessionExpired
        )
    }

    /// Returns the create that the next thread in line wants sent with the release.
    fn next_create(&self) -> Option<Arc<EarlyCreate>> {
        let writes = self.closing.is_some() || self.noted.get().is_some();
        let plain = !writes && self.at_least_until.is_none();
        let heirs = self.heirs.as_ref();
        let turnstile = heirs.filter(|_| plain && self.waited.is_some())?;
        turnstile.next_wish(self.lease.path())?
    }

    /// Counts and logs how long the lock was held, if it counts as a grant of its own.
    fn tell_end(&mut self, end: &str) {
        let Some(since) = self.since.take() else {
            return;
        };
        let time = clock::now().saturating_duration_since(since);
        let path = self.lease.path();
        self.session.counters.held(path, time);
        contained(|| log::debug!("{end} {path} after {time:?}: {}", self.nodes().join(", ")));
    }
}
