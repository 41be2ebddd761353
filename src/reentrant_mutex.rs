//! A mutex that its holder may lock again.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::{self, Arc, Weak};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::guard::{FencingToken, GuardState, guard_methods};
use crate::local::turnstile::{Entry, Turn};
use crate::lock::raw_guard::{Queue, RawGuard};
use crate::options::LockOptions;
use crate::recipe::attempt::Patience;
use crate::recipe::dialect::Role;
use crate::session::Session;
use crate::time::limit::Limit;

/// A mutex that the thread which holds it may lock again.
///
/// As [`Mutex`](crate::Mutex), and it excludes with it on the same path. Locking it again
/// costs no request, but fails if the lock has been lost meanwhile. It is free when the
/// last of the thread's guards is gone.
///
/// # Example
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zklock::embedded::Server::start()?;
/// # let client = zklock::Client::connect(server.hosts())?;
/// let accounts = client.reentrant_mutex("/locks/accounts")?;
/// let outer = accounts.lock()?;
/// let inner = accounts.lock()?; // the same thread: at once
/// drop(inner);
/// outer.unlock()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ReentrantMutex {
    session: Arc<Session>,
    path: Arc<str>,
}

/// One of the guards of a thread that holds a [`ReentrantMutex`].
///
/// # Example
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zklock::embedded::Server::start()?;
/// # let client = zklock::Client::connect(server.hosts())?;
/// use zklock::ReentrantMutex;
///
/// fn book(accounts: &ReentrantMutex) -> zklock::Result<()> {
///     let guard = accounts.lock()?; // the same thread may hold it already
///     guard.check()
/// }
///
/// let accounts = client.reentrant_mutex("/locks/accounts")?;
/// let guard = accounts.lock()?;
/// book(&accounts)?;
/// assert!(guard.is_held());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "the lock is released when the last guard is dropped"]
pub struct ReentrantMutexGuard {
    held: Arc<Held>,
    not_send: PhantomData<sync::MutexGuard<'static, ()>>,
}

/// What the guards of one thread share.
#[derive(Debug)]
pub(crate) struct Held {
    // Fields drop in this order: leave the queue first, then let the next thread in.
    raw: RawGuard,
    turn: Turn,
}

/// The reentrant mutexes that a client holds, by path: one thread has each.
pub(crate) type Reentrant = parking_lot::Mutex<HashMap<String, Weak<Held>>>;

impl ReentrantMutex {
    pub(crate) fn new(session: &Arc<Session>, path: &str) -> Result<Self> {
        crate::path::check(path)?;
        Ok(Self {
            session: session.clone(),
            path: path.into(),
        })
    }

    /// Acquires the mutex; at once and without I/O if this thread has it already.
    ///
    /// Blocks as [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Lost`] if this thread has the mutex and has lost it: drop all
    /// its guards first. Otherwise as [`Mutex::lock`](crate::Mutex::lock);
    /// [`Error::WouldDeadlock`] is for a thread that has locked a plain
    /// [`Mutex`](crate::Mutex) on this path.
    pub fn lock(&self) -> Result<ReentrantMutexGuard> {
        loop {
            // Without a limit there is nothing to give up for.
            if let Some(guard) = self.lock_with(LockOptions::new())? {
                return Ok(guard);
            }
        }
    }

    /// Acquires the mutex if nobody else has it or waits for it.
    ///
    /// Blocks as [`Mutex::try_lock`](crate::Mutex::try_lock).
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock). That the mutex is taken is not an error.
    pub fn try_lock(&self) -> Result<Option<ReentrantMutexGuard>> {
        let limit = Limit::after(self.session.status.snapshot().timeout);
        let entry = self.session.turnstile.try_enter(&self.path);
        self.enter(entry, Patience::Tries, LockOptions::new(), &limit)
    }

    /// Acquires the mutex, or returns `None` when `limit` has passed.
    ///
    /// Blocks for `limit` at most, whatever happens to the connection.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock).
    pub fn try_lock_for(&self, limit: Duration) -> Result<Option<ReentrantMutexGuard>> {
        self.lock_with(LockOptions::within(limit))
    }

    /// Acquires the mutex, or returns `None` at the `deadline`.
    ///
    /// Blocks until then at most, whatever happens to the connection.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock).
    pub fn try_lock_until(&self, deadline: Instant) -> Result<Option<ReentrantMutexGuard>> {
        self.lock_with(LockOptions::new().deadline(deadline))
    }

    /// Acquires the mutex as the `options` say.
    ///
    /// Blocks until it is our turn, or until a limit of the options is reached, which
    /// gives `None`.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock).
    pub fn lock_with(&self, options: LockOptions<'_>) -> Result<Option<ReentrantMutexGuard>> {
        let limit = options.limit();
        let inherits = options.are_plain();
        let turnstile = &self.session.turnstile;
        let entry = turnstile.enter(&self.path, inherits, &limit, &self.session.status);
        self.enter(entry, Patience::Waits, options, &limit)
    }

    /// Returns the path of the lock's directory.
    pub fn path(&self) -> &str {
        &self.path
    }

    fn enter(
        &self,
        entry: Entry,
        patience: Patience,
        mut options: LockOptions<'_>,
        limit: &Limit,
    ) -> Result<Option<ReentrantMutexGuard>> {
        let (turn, inherited) = match entry {
            Entry::Turn(turn, raw) => (turn, raw),
            Entry::OwnTurn => return self.again().map(Some),
            Entry::Closed => return Err(self.session.over()),
            Entry::Taken => return Ok(None),
        };
        if let Some(mut raw) = inherited {
            if raw.state() == GuardState::Held {
                raw.inherited(limit.begun.elapsed());
                return Ok(Some(self.guard(*raw, turn)));
            }
            raw.abandon();
        }
        let queue = Queue::of(&self.path, Role::Exclusive);
        let raw = RawGuard::take(&self.session, &queue, patience, &mut options, limit)?;
        Ok(raw.map(|mut raw| {
            raw.share();
            self.guard(raw, turn)
        }))
    }

    fn guard(&self, raw: RawGuard, turn: Turn) -> ReentrantMutexGuard {
        let held = Arc::new(Held { raw, turn });
        let mut all = self.session.reentrant.lock();
        all.retain(|_, held| held.strong_count() != 0);
        all.insert(self.path.to_string(), Arc::downgrade(&held));
        ReentrantMutexGuard {
            held,
            not_send: PhantomData,
        }
    }

    /// The calling thread has its turn already.
    fn again(&self) -> Result<ReentrantMutexGuard> {
        let held = self
            .session
            .reentrant
            .lock()
            .get(&*self.path)
            .and_then(Weak::upgrade);
        let Some(held) = held else {
            return Err(Error::WouldDeadlock {
                path: self.path.to_string(),
            });
        };
        held.raw.check()?;
        Ok(ReentrantMutexGuard {
            held,
            not_send: PhantomData,
        })
    }
}

guard_methods!(ReentrantMutexGuard, held.raw);

impl ReentrantMutexGuard {
    /// Returns a number that grows with every grant of this lock; the same for all guards
    /// of one grant.
    pub fn fencing_token(&self) -> FencingToken {
        self.held.raw.token()
    }

    /// Returns the full path of the node that stands for the lock.
    pub fn node(&self) -> &str {
        self.held.raw.node()
    }

    /// Gives this guard up; the last one releases the mutex and waits until the server has
    /// confirmed it.
    ///
    /// Blocks as [`MutexGuard::unlock`](crate::MutexGuard::unlock) for the last guard, and
    /// not at all for the others.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Lost`] if the mutex was lost before: what was done under this
    /// guard may have overlapped with another holder.
    pub fn unlock(self) -> Result<()> {
        let still = self.check();
        match Arc::try_unwrap(self.held) {
            Ok(Held { raw, turn }) => {
                let released = raw.release();
                drop(turn);
                released
            }
            Err(_) => still,
        }
    }
}
