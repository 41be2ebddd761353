//! A mutex that its holder may lock again.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::guard::{NeverSend, guard_methods};
use crate::lock::raw_guard::Grant;
use crate::lock::request::LockRequest;
use crate::lock::{self, Locks, described};
use crate::mutex::Mutex;
use crate::options::LockOptions;
use crate::token::FencingToken;
use zklock_core::attempt::Patience;

/// A mutex that the thread holding it may lock again.
///
/// It and a [`Mutex`](crate::Mutex) on the same path exclude each other. Locking it again costs no
/// request, but fails if the lock has been lost. The mutex is released when the last of the
/// thread's guards is dropped.
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
#[doc(alias = "InterProcessMutex")]
#[derive(Clone)]
pub struct ReentrantMutex {
    locks: Arc<Locks>,
    mutex: Mutex,
}

described!(ReentrantMutex, it: path = it.path());

/// One of the guards of the thread that holds a [`ReentrantMutex`].
///
/// The guard cannot be sent to another thread, and has no `into_send`: the mutex recognises
/// its holder's second lock by the thread. For a guard that moves, use [`Mutex`](crate::Mutex); on
/// the same path, it and this lock exclude each other.
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
/// assert!(guard.is_valid());
/// # Ok(())
/// # }
/// ```
#[must_use = "the lock is released when the last guard is dropped"]
pub struct ReentrantMutexGuard {
    held: Arc<Grant>,
    not_send: PhantomData<NeverSend>,
}

impl ReentrantMutex {
    pub(crate) fn new(locks: &Arc<Locks>, path: &str) -> Result<Self> {
        Ok(Self {
            locks: locks.clone(),
            mutex: Mutex::new(locks, path)?,
        })
    }

    /// Acquires the mutex; at once and without I/O if this thread has it already.
    ///
    /// Blocks as [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Lost`](crate::Error::Lost) if this thread has guards of the mutex and
    /// the mutex was lost: drop them first. Otherwise as [`Mutex::lock`](crate::Mutex::lock);
    /// [`Error::WouldDeadlock`](crate::Error::WouldDeadlock) means that the thread holds another
    /// lock of this path, such as a plain [`Mutex`](crate::Mutex).
    #[doc(alias = "acquire")]
    pub fn lock(&self) -> Result<ReentrantMutexGuard> {
        lock::for_ever(|| self.lock_with(LockOptions::new()))
    }

    /// Acquires the mutex if no other client or thread has it or waits for it.
    ///
    /// Blocks as [`Mutex::try_lock`](crate::Mutex::try_lock).
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock), and as [`Mutex::try_lock`](crate::Mutex::try_lock) if no server has
    /// answered.
    pub fn try_lock(&self) -> Result<Option<ReentrantMutexGuard>> {
        self.enter(LockOptions::new().request(&self.locks.session, Patience::Tries)?)
    }

    /// Acquires the mutex, or returns `None` when `limit` has passed.
    ///
    /// Blocks for at most `limit`, whatever happens to the connection.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock), and with [`Error::ConnectTimeout`](crate::Error::ConnectTimeout) if
    /// no server has said by then that the lock is taken.
    pub fn try_lock_for(&self, limit: Duration) -> Result<Option<ReentrantMutexGuard>> {
        self.lock_with(LockOptions::within(limit))
    }

    /// Acquires the mutex, or returns `None` at the `deadline`.
    ///
    /// Blocks until then at most, whatever happens to the connection.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock), and with [`Error::ConnectTimeout`](crate::Error::ConnectTimeout) if
    /// no server has said by then that the lock is taken.
    pub fn try_lock_until(&self, deadline: Instant) -> Result<Option<ReentrantMutexGuard>> {
        self.lock_with(LockOptions::new().deadline(deadline))
    }

    /// Acquires the mutex as the `options` say.
    ///
    /// Blocks until it is this thread's turn. Returns `None` if a limit of the options is
    /// reached first.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock), and with [`Error::ConnectTimeout`](crate::Error::ConnectTimeout) if
    /// no server has said by then that the lock is taken.
    pub fn lock_with(&self, options: LockOptions<'_>) -> Result<Option<ReentrantMutexGuard>> {
        self.enter(options.request(&self.locks.session, Patience::Waits)?)
    }

    /// Returns the path of the lock's directory.
    pub fn path(&self) -> &str {
        self.mutex.path()
    }

    fn enter(&self, mut request: LockRequest<'_>) -> Result<Option<ReentrantMutexGuard>> {
        let not_send = PhantomData;
        if let Some(held) = self.locks.again(self.path()) {
            held.raw.check()?;
            return Ok(Some(ReentrantMutexGuard { held, not_send }));
        }
        request.tracking = None;
        let Some(guard) = self.mutex.enter(request)? else {
            return Ok(None);
        };
        let held = Arc::new(guard.into_grant());
        held.turn.share(&held);
        Ok(Some(ReentrantMutexGuard { held, not_send }))
    }
}

guard_methods!(ReentrantMutexGuard, held.raw, fencing_token);

impl ReentrantMutexGuard {
    /// Returns a number that grows with every grant of this lock; all guards of one grant share it.
    pub fn fencing_token(&self) -> FencingToken {
        self.held.raw.token()
    }

    /// Drops this guard; the last one releases the mutex and waits until the server confirms it.
    ///
    /// Blocks as [`MutexGuard::unlock`](crate::MutexGuard::unlock) for the last guard, and not at
    /// all for the others.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Lost`](crate::Error::Lost) if the mutex was lost before: another
    /// holder may have overlapped with this guard. Otherwise as
    /// [`LockGuard::unlock`](crate::LockGuard::unlock).
    pub fn unlock(self) -> Result<()> {
        let still = self.check();
        match Arc::try_unwrap(self.held) {
            Ok(grant) => grant.raw.release(),
            Err(_) => still,
        }
    }
}
