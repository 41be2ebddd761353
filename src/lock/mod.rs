//! The code that all locks share.
//!
//! ```text
//!  Locks ──► turnstile ──► RawGuard ──► driver ──► session
//!              (local)      mark, multi, downgrade
//! ```
//!
//! A call makes a [`LockRequest`](request::LockRequest), waits for the turn of its thread, and goes
//! through a [`Queue`](request::Queue) on the server with the driver. The result is a
//! [`RawGuard`](raw_guard::RawGuard), the only one of these that acts on drop.

mod downgrade;
mod driver;
pub(crate) mod fresh_id;
mod guarded_writes;
mod hand_over;
mod hold;
mod join_guards;
pub(crate) mod known_paths;
pub(crate) mod multi;
mod predecessor_mark;
pub(crate) mod raw_guard;
mod release_note;
pub(crate) mod request;
#[cfg(test)]
mod tests;
mod verify;

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use self::driver::Early;
use self::known_paths::KnownPaths;
use self::raw_guard::{Grant, RawGuard, Turn, Turnstile, Wish};
use self::request::{Ahead, InLine, LockRequest, Queue};
use crate::error::{Error, LostReason, Result};
use crate::guard::GuardState;
use crate::local::thread_set::{self, ThreadSet};
use crate::local::turnstile::Entry;
use crate::session::Session;
use crate::time::limit::Limit;
use crate::transport::handover::Handover;
use crate::transport::session_state::SessionState;
use crate::transport::status::Subscription;
use zklock_core::attempt::Patience;

pub(crate) use self::predecessor_mark::lasting;

/// The state that the locks of one client share.
pub(crate) struct Locks {
    pub(crate) session: Arc<Session>,
    threads: ThreadSet,
    turnstile: Turnstile,
    pub(crate) known: KnownPaths,
    _closes: Subscription,
}

impl Locks {
    pub(crate) fn new(session: Arc<Session>) -> Self {
        let turnstile = Turnstile::default();
        let closing = turnstile.clone();
        let _closes = session.status.on_change(move |snapshot| {
            if snapshot.is_over() {
                closing.close();
            }
        });
        Self {
            session,
            threads: ThreadSet::default(),
            turnstile,
            known: KnownPaths::default(),
            _closes,
        }
    }

    /// Waits for the turn of the calling thread, with which the lock may come; returns `None` at the
    /// limit. While the thread waits, the thread ahead of it sees its `wish`. Afterwards the request tells whether
    /// the lock is known to be taken.
    fn enter(
        &self,
        path: &Arc<str>,
        wish: impl FnOnce(&LockRequest<'_>) -> (bool, Wish),
        request: &mut LockRequest<'_>,
    ) -> Result<Option<(Turn, Option<RawGuard>)>> {
        // On the server, the thread would wait for its own read-write lock.
        if self.threads.has_me(path) {
            return Err(would_deadlock(path));
        }
        let mut on_wait = request.on_wait.take();
        let behind = Cell::new(0);
        let told = |ahead| {
            behind.set(ahead);
            if let Some(on_wait) = on_wait.as_mut() {
                on_wait(&Ahead::in_line(ahead));
            }
        };
        let entry = match request.patience {
            Patience::Waits => {
                let limit = InLine(request, &behind);
                self.turnstile.enter(path, &limit, || wish(request), told)
            }
            Patience::Tries => self.turnstile.try_enter(path),
        };
        request.on_wait = on_wait;
        match entry {
            Entry::Turn(turn, handed) => {
                request.taken |= turn.follows_an_answer();
                Ok(Some((turn, handed)))
            }
            Entry::OwnTurn => Err(would_deadlock(path)),
            Entry::Taken => self.gives_up_in_line(path, request).map(|()| None),
            Entry::Closed => Err(self.session.over()),
        }
    }

    /// Like [`enter`](Self::enter), for locks that a thread cannot inherit.
    pub(crate) fn turn(&self, path: &str, request: &mut LockRequest<'_>) -> Result<Option<Turn>> {
        let entered = self.enter(&path.into(), |_| Default::default(), request)?;
        Ok(entered.map(|(turn, _)| turn))
    }

    /// Enters the calling thread as one of those that read or write a path.
    pub(crate) fn enter_shared(&self, path: &str) -> Result<thread_set::Entered> {
        // On the server, the thread would wait for its own mutex.
        if self.turnstile.has_me(path) {
            return Err(would_deadlock(path));
        }
        self.threads.enter(path).ok_or_else(|| would_deadlock(path))
    }

    /// Notes that the lock is taken, because another thread of this client is ahead of the calling
    /// one. Without a connection, that thread may be waiting for a server itself. Unless it holds
    /// the lock, the calling thread then waits for a connection too.
    fn gives_up_in_line(&self, path: &str, request: &mut LockRequest<'_>) -> Result<()> {
        let is_taken = || {
            let connected = self.session.status.snapshot().state == SessionState::Connected;
            connected || self.session.leases.is_held(path)
        };
        if !is_taken() {
            self.session.caller().connected(&request.limit)?;
        }
        request.taken |= is_taken();
        Ok(())
    }

    /// Returns the grant that the calling thread has, and shares with itself.
    pub(crate) fn again(&self, path: &str) -> Option<Arc<Grant>> {
        self.turnstile.shared(path)
    }

    /// Waits for the turn of the calling thread, and then in the queue on the server unless the
    /// lock came with the turn. Returns `None` if the lock is taken or the caller cancelled.
    pub(crate) fn lock(
        &self,
        path: &Arc<str>,
        queue: &Queue<'_>,
        inherits: bool,
        request: &mut LockRequest<'_>,
    ) -> Result<Option<Grant>> {
        let mut prepared = None;
        let wish = |request: &LockRequest<'_>| {
            prepared = Early::prepare(&self.session, queue, request);
            let create = prepared.as_ref().map(|(_, early)| early.create.clone());
            (inherits, create)
        };
        let Some((turn, handed)) = self.enter(path, wish, request)? else {
            return request.refused(&self.session);
        };
        if let Some(mut raw) = handed {
            if raw.lease().state() == GuardState::Held {
                raw.inherited(request.limit.spent());
                return Ok(Some(Grant { raw, turn }));
            }
            raw.abandon();
        }
        match RawGuard::acquire(&self.session, queue, request, prepared)? {
            Some(raw) => Ok(Some(Grant { raw, turn })),
            None => self.refused(request, [&turn]),
        }
    }

    /// Returns the result for a thread that ends without the lock, and has these turns.
    pub(crate) fn refused<'t, T>(
        &self,
        request: &LockRequest<'_>,
        turns: impl IntoIterator<Item = &'t Turn>,
    ) -> Result<Option<T>> {
        if !request.taken {
            turns.into_iter().for_each(Turn::unanswered);
        }
        request.refused(&self.session)
    }

    /// Takes over a lock that another process has handed over; see [`Session::take_over`].
    pub(crate) fn take_over(&self, handover: &Handover, limit: &Limit) -> Result<Grant> {
        let taken = match self.turnstile.try_enter(&handover.path().into()) {
            Entry::Turn(turn, _) => self
                .session
                .take_over(handover, limit)
                .map(|raw| (raw, turn)),
            _ => Err(self.session.over()),
        };
        let (mut raw, turn) = taken.map_err(|error| match error {
            Error::Lost { .. } => error,
            // Perhaps the client has ended with the session.
            _ if self.session.status.expiries() != 0 => Error::Lost {
                path: handover.path().to_owned(),
                why: LostReason::SessionExpired,
            },
            _ => error,
        })?;
        self.share(&mut raw);
        Ok(Grant { raw, turn })
    }

    /// Formats a lock of this client for [`fmt::Debug`].
    pub(crate) fn describe(
        &self,
        name: &str,
        what: &[(&str, &dyn fmt::Debug)],
        f: &mut fmt::Formatter<'_>,
    ) -> fmt::Result {
        let snapshot = self.session.status.snapshot();
        let mut told = f.debug_struct(name);
        for (name, value) in what {
            told.field(name, value);
        }
        told.field("state", &snapshot.state);
        told.field("session", &format_args!("{:#x}", snapshot.session));
        told.finish()
    }

    /// Lets the threads of this client that wait for the same lock inherit it.
    pub(crate) fn share(&self, raw: &mut RawGuard) {
        raw.share(&self.turnstile);
    }
}

/// Implements `Debug` for a noun of a client, by these values of it.
macro_rules! described {
    ($noun:ident, $it:ident: $($name:ident = $value:expr),+) => {
        impl ::std::fmt::Debug for $noun {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                let ($it, noun) = (self, stringify!($noun));
                $it.locks.describe(noun, &[$((stringify!($name), &$value)),+], f)
            }
        }
    };
}

pub(crate) use described;

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.describe("Client", &[("waiting", &self.turnstile.waiting())], f)
    }
}

/// Repeats a call until it gets the lock: without a limit there is no reason to give up.
pub(crate) fn for_ever<T>(mut lock: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    loop {
        if let Some(guard) = lock()? {
            return Ok(guard);
        }
    }
}

fn would_deadlock(path: &str) -> Error {
    Error::WouldDeadlock {
        path: path.to_owned(),
    }
}
