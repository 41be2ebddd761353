//! A mutex for a whole cluster.

mod hand_over;

use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::guard::finish_with;
use crate::guard::{NotSend, guard_methods};
use crate::lock::known_paths::Known;
use crate::lock::raw_guard::{Grant, RawGuard};
use crate::lock::request::{LockRequest, Queue};
use crate::lock::{self, Locks, described};
use crate::options::LockOptions;
use crate::token::FencingToken;
use zklock_core::attempt::Patience;
use zklock_core::dialect::Role;
use zklock_core::directories::Lasting;
use zklock_core::journal::Journal;
use zklock_jute::Request;

/// A mutual exclusion lock that works across processes and machines.
///
/// All clients that lock the same path on the same ensemble exclude each other, in order of arrival, and so do the
/// threads of one client. These threads have one node at a time on the server and the share of one contender: when
/// one leaves, the next joins at the end of the queue. A thread that locks the mutex twice through one client, or has
/// the path as a read-write lock, gets [`Error::WouldDeadlock`](crate::Error::WouldDeadlock); through two clients, it
/// waits for itself.
///
/// Keep the mutex, or a clone, for as long as you use it: it remembers when it was last locked,
/// which saves a look at the queue if no other client has come since.
///
/// # In place of `parking_lot::Mutex`
///
/// This mutex holds no data, and locking it can fail. If a hundred call sites say `value.lock()`, a
/// type of your own keeps them unchanged, and panics if the lock cannot be acquired:
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zklock::embedded::Server::start()?;
/// # let client = zklock::Client::connect(server.hosts())?;
/// use std::ops::{Deref, DerefMut};
///
/// struct Mutex<T>(zklock::Mutex, parking_lot::Mutex<T>);
/// struct Guard<'a, T>(parking_lot::MutexGuard<'a, T>, #[allow(dead_code)] zklock::MutexGuard);
///
/// impl<T> Mutex<T> {
///     fn lock(&self) -> Guard<'_, T> {
///         let held = self.0.lock().unwrap_or_else(|error| panic!("{error}"));
///         Guard(self.1.lock(), held)
///     }
/// }
/// # impl<T> Deref for Guard<'_, T> { type Target = T; fn deref(&self) -> &T { &self.0 } }
/// # impl<T> DerefMut for Guard<'_, T> { fn deref_mut(&mut self) -> &mut T { &mut self.0 } }
/// // .. and `Deref` and `DerefMut` for `Guard`, to the first field.
///
/// let pages = Mutex(client.mutex("/locks/pages")?, parking_lot::Mutex::new(0));
/// *pages.lock() += 1; // a call site, as it was
/// # assert_eq!(*pages.lock(), 1);
/// # Ok(())
/// # }
/// ```
///
/// # Example
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zklock::embedded::Server::start()?;
/// # let client = zklock::Client::connect(server.hosts())?;
/// let zk_mutex = client.mutex("/locks/nightly-report")?;
/// let guard = zk_mutex.lock()?;
/// // No other client in the cluster is here.
/// guard.unlock()?;
/// # Ok(())
/// # }
/// ```
#[doc(alias = "InterProcessMutex")]
#[doc(alias = "InterProcessSemaphoreMutex")]
#[derive(Clone)]
pub struct Mutex {
    locks: Arc<Locks>,
    path: Arc<str>,
    known: Arc<Known>,
}

described!(Mutex, it: path = it.path);

/// A guard of a [`Mutex`]: while it lives, the mutex is held, unless the guard reports that it is
/// lost.
///
/// Dropping it sends the release and does not wait for the answer. [`unlock`](Self::unlock) waits,
/// and reports whether the mutex was held to the end.
///
/// Beware of `let _ = mutex.lock()?`, which drops the guard at once: write `let _guard`.
///
/// # Example
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zklock::embedded::Server::start()?;
/// # let client = zklock::Client::connect(server.hosts())?;
/// let guard = client.mutex("/locks/nightly-report")?.lock()?;
/// for page in 1..=3 {
///     guard.check()?; // no I/O; fails once another client may have the lock
///     println!("page {page}, written with token {}", guard.fencing_token());
/// }
/// guard.verify()?; // asks the quorum
/// guard.unlock()?;
/// # Ok(())
/// # }
/// ```
#[must_use = "the lock is released when the guard is dropped"]
pub struct MutexGuard {
    grant: Grant,
    abandoned: Option<FencingToken>,
    /// The guard stays on its thread, so that the mutex knows which thread would wait for itself.
    not_send: PhantomData<NotSend>,
}

/// A guard of a [`Mutex`] that can be sent to another thread; see [`MutexGuard::into_send`].
///
/// # Example
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zklock::embedded::Server::start()?;
/// # let client = zklock::Client::connect(server.hosts())?;
/// let guard = client.mutex("/locks/nightly-report")?.lock()?.into_send();
/// let worker = std::thread::spawn(move || {
///     // The lock is this thread's now.
///     guard.check()?;
///     guard.unlock()
/// });
/// worker.join().expect("it does not panic")?;
/// # Ok(())
/// # }
/// ```
#[must_use = "the lock is released when the guard is dropped"]
pub struct SendMutexGuard {
    grant: Grant,
    abandoned: Option<FencingToken>,
}

impl UnwindSafe for Mutex {}
impl RefUnwindSafe for Mutex {}

impl Mutex {
    pub(crate) fn new(locks: &Arc<Locks>, path: &str) -> Result<Self> {
        crate::path::check(path)?;
        let path = path.into();
        Ok(Self {
            locks: locks.clone(),
            known: locks.known.of(&path),
            path,
        })
    }

    /// Acquires the mutex.
    ///
    /// Blocks until it is this thread's turn, first behind the other threads of this client, then
    /// in the queue on the server. A lost connection does not end the wait. The waiter keeps its
    /// place in the queue as long as the session lasts; if the session expires, the client queues
    /// again, at the end.
    ///
    /// # Errors
    ///
    /// Fails if this thread holds the mutex already
    /// ([`Error::WouldDeadlock`](crate::Error::WouldDeadlock)), if a contender in the queue
    /// would not wait for this client
    /// ([`Error::ForeignContender`](crate::Error::ForeignContender)), if another client deleted
    /// the waiter's node ([`Error::Evicted`](crate::Error::Evicted)), if the server refuses a
    /// request, and if the client is closed. Nothing is left in the queue then.
    #[doc(alias = "acquire")]
    pub fn lock(&self) -> Result<MutexGuard> {
        lock::for_ever(|| self.lock_with(LockOptions::new()))
    }

    /// Acquires the mutex if no other client or thread has it or waits for it.
    ///
    /// Blocks for two round trips, for at most a second without a connection, and for the session
    /// timeout T if a server does not answer. After a reconnect or a silence, a free mutex may be
    /// granted later, by 3/5 T at most (`docs/guarantees.md`). If the mutex is taken, the servers
    /// refuse one write, which changes nothing. A release that some server has confirmed counts:
    /// that write makes a lagging server catch up, and the client asks it again.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock), and [`Error::ConnectTimeout`] if no server says that it is taken.
    pub fn try_lock(&self) -> Result<Option<MutexGuard>> {
        self.enter(LockOptions::new().request(&self.locks.session, Patience::Tries)?)
    }

    /// Acquires the mutex, or returns `None` when `limit` has passed.
    ///
    /// Blocks for at most `limit`, whatever happens to the connection. A limit of zero ends before
    /// a server can answer, even if the mutex is free: use [`try_lock`](Self::try_lock) for that.
    ///
    /// # Errors
    ///
    /// As [`try_lock`](Self::try_lock).
    #[doc(alias = "try_lock_timeout")]
    pub fn try_lock_for(&self, limit: Duration) -> Result<Option<MutexGuard>> {
        self.lock_with(LockOptions::within(limit))
    }

    /// Acquires the mutex, or returns `None` at the `deadline`.
    ///
    /// Blocks until then at most, whatever happens to the connection.
    ///
    /// # Errors
    ///
    /// As [`try_lock_for`](Self::try_lock_for).
    pub fn try_lock_until(&self, deadline: Instant) -> Result<Option<MutexGuard>> {
        self.lock_with(LockOptions::new().deadline(deadline))
    }

    /// Acquires the mutex as the `options` say.
    ///
    /// Blocks until it is this thread's turn. Returns `None` if a limit of the options is
    /// reached first.
    ///
    /// # Errors
    ///
    /// As [`try_lock_for`](Self::try_lock_for).
    pub fn lock_with(&self, options: LockOptions<'_>) -> Result<Option<MutexGuard>> {
        self.enter(options.request(&self.locks.session, Patience::Waits)?)
    }

    /// Locks, runs `run` and unlocks: the release is confirmed when this returns.
    ///
    /// Blocks as [`lock`](Self::lock), `run` and [`MutexGuard::unlock`] do. If `run` panics, the
    /// mutex is released.
    ///
    /// # Errors
    ///
    /// Fails with the error of `run`, and otherwise as [`lock`](Self::lock) and
    /// [`MutexGuard::unlock`]: `Ok` means that the mutex was held to the end. If `run` fails, an
    /// error of the release is logged.
    ///
    /// # Example
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zklock::embedded::Server::start()?;
    /// # let client = zklock::Client::connect(server.hosts())?;
    /// let report = client.mutex("/locks/nightly-report")?;
    /// let pages = report.with(|guard| -> zklock::Result<u32> {
    ///     guard.check()?;
    ///     Ok(3)
    /// })?;
    /// assert_eq!(pages, 3);
    /// # Ok(())
    /// # }
    /// ```
    pub fn with<T, E: From<Error>>(
        &self,
        run: impl FnOnce(&MutexGuard) -> Result<T, E>,
    ) -> Result<T, E> {
        finish_with(self.lock()?, run)
    }

    /// Returns the path of the lock's directory.
    pub fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn enter(&self, mut request: LockRequest<'_>) -> Result<Option<MutexGuard>> {
        let mark = request.tracking.map(|_| Request::get(&self.path));
        let mut queue = Queue::of(&self.path, Role::Exclusive);
        match request.tracking {
            None => queue.last = Some(&self.known.last),
            // A client that tracks must see the last node gone, and its mark with it.
            Some(_) => {
                let (session, looked) = (&self.locks.session, &self.known.keeps_marks);
                queue.lasting = lock::lasting(session, &self.path, looked, &request.limit)?;
                queue.reads = mark.as_slice();
            }
        }
        if request.for_a_hold {
            queue.lasting = Lasting::Always(Journal::EMPTY);
        }
        // A node taken over from another thread would not carry out these options.
        let inherits = request.is_plain();
        let locks = &self.locks;
        let Some(mut grant) = locks.lock(&self.path, &queue, inherits, &mut request)? else {
            return Ok(None);
        };
        let Some(delay) = request.tracking else {
            self.locks.share(&mut grant.raw);
            return Ok(Some(MutexGuard::new(grant, None)));
        };
        let Grant { raw, turn } = grant;
        let settled = raw.settle(delay, &self.path, &mut request);
        if let Err(Error::Unmarked { .. }) = settled {
            // Others have made the path anew. The next call looks before it waits.
            self.known.keeps_marks.store(false, Ordering::Relaxed);
        }
        Ok(settled?.map(|(raw, abandoned)| MutexGuard::new(Grant { raw, turn }, abandoned)))
    }
}

guard_methods!(MutexGuard, grant.raw, fencing_token);
guard_methods!(SendMutexGuard, grant.raw, as MutexGuard);

impl MutexGuard {
    pub(crate) fn new(grant: Grant, abandoned: Option<FencingToken>) -> Self {
        Self {
            grant,
            abandoned,
            not_send: PhantomData,
        }
    }

    pub(crate) fn raw(&self) -> &RawGuard {
        &self.grant.raw
    }

    pub(crate) fn into_grant(self) -> Grant {
        self.grant
    }

    /// Returns a number that grows with every grant of this lock by the server. Threads that hand
    /// the lock on ([`local_handoffs`](crate::ClientBuilder::local_handoffs)) share one number.
    pub fn fencing_token(&self) -> FencingToken {
        self.grant.raw.token()
    }

    /// Returns the token of the last holder if it left without releasing: its work may be half
    /// done. `None` without [`LockOptions::track_abandonment`].
    #[doc(alias = "is_poisoned")]
    pub fn abandoned(&self) -> Option<FencingToken> {
        self.abandoned
    }

    /// Releases the mutex and waits until the server confirms it.
    ///
    /// Blocks for one round trip, or not at all if the mutex passes to another thread of this
    /// client (see [`ClientBuilder::local_handoffs`](crate::ClientBuilder::local_handoffs)). When
    /// the connection is lost, it blocks at most until the guard's deadline, and the release
    /// continues in the background.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Lost`](crate::Error::Lost) if the mutex was lost before, when another holder
    /// may have overlapped with this guard, or if no server confirmed the release by the deadline.
    /// Otherwise as [`LockGuard::unlock`](crate::LockGuard::unlock).
    pub fn unlock(self) -> Result<()> {
        self.grant.raw.release()
    }

    /// Turns the guard into one that can be sent to another thread.
    ///
    /// In exchange, the mutex no longer knows which thread holds it: a thread that has such a guard
    /// and locks the mutex again waits for itself.
    #[doc(alias = "lock_arc")]
    #[doc(alias = "owned")]
    pub fn into_send(self) -> SendMutexGuard {
        self.grant.turn.detach();
        self.grant.raw.lease().belongs(false);
        SendMutexGuard {
            grant: self.grant,
            abandoned: self.abandoned,
        }
    }
}

impl SendMutexGuard {
    /// Assigns the lock to the calling thread.
    pub(crate) fn into_local(self) -> MutexGuard {
        self.grant.turn.attach();
        self.grant.raw.lease().belongs(true);
        MutexGuard::new(self.grant, self.abandoned)
    }

    /// As [`MutexGuard::abandoned`].
    pub fn abandoned(&self) -> Option<FencingToken> {
        self.abandoned
    }
}

impl From<MutexGuard> for SendMutexGuard {
    fn from(guard: MutexGuard) -> Self {
        guard.into_send()
    }
}
