//! Several mutexes at once, without deadlock.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::guard::{NotSend, guard_checks, guard_traits};
use crate::local::thread_set::Entered;
use crate::lock::multi::Part;
use crate::lock::raw_guard::{RawGuard, Turn};
use crate::lock::request::LockRequest;
use crate::lock::{self, Locks, described};
use crate::options::LockOptions;
use crate::token::FencingToken;
use zklock_core::attempt::Patience;
use zklock_core::dialect::Role;

/// Several mutexes that are locked together: all or none.
///
/// Each of them and a [`Mutex`](crate::Mutex) on its path exclude each other.
/// [`reading`](Self::reading) shares some of them with other readers. One transaction creates the
/// nodes of all queues. Any two multi-locks are therefore in the same order in every queue that
/// they share, and never wait for each other, in whatever order they name the paths. A thread that
/// holds one lock and then asks for another is not covered.
///
/// A client from [`Client::from_zookeeper`](crate::Client::from_zookeeper) has no transactions, and so
/// no multi-locks: use [`Client::connect`](crate::Client::connect) for them.
///
/// # Example
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zklock::embedded::Server::start()?;
/// # let client = zklock::Client::connect(server.hosts())?;
/// let transfer = client.multi_lock(["/accounts/jo", "/accounts/mia"])?;
/// let guard = transfer.lock()?;
/// for (path, token) in guard.tokens() {
///     println!("{path}: {token}");
/// }
/// guard.unlock()?;
/// # Ok(())
/// # }
/// ```
#[doc(alias = "InterProcessMultiLock")]
#[derive(Clone)]
pub struct MultiLock {
    locks: Arc<Locks>,
    /// The queues, sorted by path, each of them once.
    parts: Arc<[Part]>,
}

described!(MultiLock, it: paths = it.paths().collect::<Vec<_>>());

/// The guard of a [`MultiLock`]: while it lives, all its mutexes are held, unless the guard says
/// that they are lost. If one is lost, all are.
///
/// # Example
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zklock::embedded::Server::start()?;
/// # let client = zklock::Client::connect(server.hosts())?;
/// let guard = client.multi_lock(["/accounts/mia", "/accounts/jo"])?.lock()?;
/// assert!(guard.paths().eq(["/accounts/jo", "/accounts/mia"]));
/// guard.check()?;
/// # Ok(())
/// # }
/// ```
#[must_use = "the locks are released when the guard is dropped"]
pub struct MultiGuard {
    grant: MultiGrant,
    not_send: PhantomData<NotSend>,
}

impl MultiLock {
    pub(crate) fn new<'a>(
        locks: &Arc<Locks>,
        paths: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self> {
        let mut paths: Vec<_> = paths.into_iter().map(String::from).collect();
        for path in &paths {
            crate::path::check(path)?;
        }
        paths.sort_unstable();
        if let Some(twice) = paths.windows(2).find(|two| two[0] == two[1]) {
            return Err(Error::BadPath {
                path: twice[0].clone(),
                rule: "the multi-lock has it twice; name each path once",
            });
        }
        if paths.is_empty() {
            return Err(Error::BadArgument {
                name: "paths",
                rule: "a multi-lock needs at least one path".into(),
            });
        }
        let role = Role::Exclusive;
        let alone = |path| Part { path, role };
        Ok(Self {
            locks: locks.clone(),
            parts: paths.into_iter().map(alone).collect(),
        })
    }

    /// Locks these of its paths for reading. Each is shared with other readers, of multi-locks and
    /// of the [`RwLock`](crate::RwLock) on its path, and excludes all contenders that do not read.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::BadPath`] if a path is not one of this lock's.
    ///
    /// # Example
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zklock::embedded::Server::start()?;
    /// # let client = zklock::Client::connect(server.hosts())?;
    /// let booking = client.multi_lock(["/accounts/jo", "/rates"])?.reading(["/rates"])?;
    /// let guard = booking.lock()?; // nobody changes the rates meanwhile, and others read them
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    pub fn reading<'a>(mut self, paths: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        let mut parts = self.parts.to_vec();
        for path in paths {
            let part = parts.iter_mut().find(|part| part.path == path);
            let part = part.ok_or_else(|| Error::BadPath {
                path: path.to_owned(),
                rule: "the multi-lock does not have it; name it among its paths too",
            })?;
            part.role = Role::Read;
        }
        self.parts = parts.into();
        Ok(self)
    }

    /// Acquires all mutexes.
    ///
    /// Blocks until it is this thread's turn in every queue. A lost connection does not end the
    /// wait. The waiter keeps its places in the queues as long as the session lasts; if the session
    /// expires, the client queues again, at the ends.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`](crate::Mutex::lock), for any of the paths, with [`Error::Unsupported`] if the
    /// transport or the server has no transactions, and with [`Error::RequestTooLong`] if the
    /// transaction is longer than a megabyte, which takes several thousand paths. None of the mutexes
    /// is locked then, and no node is left in their queues.
    pub fn lock(&self) -> Result<MultiGuard> {
        lock::for_ever(|| self.lock_with(LockOptions::new()))
    }

    /// Acquires all mutexes if no other client or thread has any of them or waits for one.
    ///
    /// Blocks as [`Mutex::try_lock`](crate::Mutex::try_lock).
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock), and as [`Mutex::try_lock`](crate::Mutex::try_lock) if no server has
    /// answered.
    pub fn try_lock(&self) -> Result<Option<MultiGuard>> {
        self.enter(LockOptions::new().request(&self.locks.session, Patience::Tries)?)
    }

    /// Acquires all mutexes, or returns `None` when `limit` has passed.
    ///
    /// Blocks for at most `limit`, whatever happens to the connection.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock), and with [`Error::ConnectTimeout`] if no server has said by then that
    /// the lock is taken.
    pub fn try_lock_for(&self, limit: Duration) -> Result<Option<MultiGuard>> {
        self.lock_with(LockOptions::within(limit))
    }

    /// Acquires all mutexes, or returns `None` at the `deadline`.
    ///
    /// Blocks until then at most, whatever happens to the connection.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock), and with [`Error::ConnectTimeout`] if no server has said by then that
    /// the lock is taken.
    pub fn try_lock_until(&self, deadline: Instant) -> Result<Option<MultiGuard>> {
        self.lock_with(LockOptions::new().deadline(deadline))
    }

    /// Acquires all mutexes as the `options` say.
    ///
    /// Blocks until it is this thread's turn in every queue. Returns `None` if a limit of the
    /// options is reached first.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock), and with [`Error::ConnectTimeout`] if no server has said by then that
    /// the lock is taken.
    pub fn lock_with(&self, options: LockOptions<'_>) -> Result<Option<MultiGuard>> {
        self.enter(options.request(&self.locks.session, Patience::Waits)?)
    }

    /// Returns the paths, in alphabetical order.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().map(|part| part.path.as_str())
    }

    fn enter(&self, mut request: LockRequest<'_>) -> Result<Option<MultiGuard>> {
        let (mut turns, mut readers) = (Vec::new(), Vec::new());
        for part in self.parts.iter() {
            if part.role == Role::Read {
                readers.push(self.locks.enter_shared(&part.path)?);
                continue;
            }
            match self.locks.turn(&part.path, &mut request)? {
                Some(turn) => turns.push(turn),
                None => return self.locks.refused(&request, &turns),
            }
        }
        let taken = RawGuard::acquire_all(&self.locks.session, &self.parts, &mut request)?;
        let Some((mut raw, tokens)) = taken else {
            return self.locks.refused(&request, &turns);
        };
        raw.granted(request.limit.spent());
        let tokens = self.paths().map(str::to_owned).zip(tokens).collect();
        Ok(Some(MultiGuard {
            grant: MultiGrant {
                raw,
                turns,
                readers,
                tokens,
            },
            not_send: PhantomData,
        }))
    }
}

/// A guard of a [`MultiLock`] that can be sent to another thread; see [`MultiGuard::into_send`].
#[must_use = "the locks are released when the guard is dropped"]
pub struct SendMultiGuard {
    grant: MultiGrant,
}

/// The state of both kinds of guard.
struct MultiGrant {
    // Fields drop in this order: leave the queues first, then call the next threads.
    raw: RawGuard,
    turns: Vec<Turn>,
    readers: Vec<Entered>,
    tokens: Vec<(String, FencingToken)>,
}

/// Gives both kinds of guard the methods that they share.
macro_rules! multi_guard {
    ($guard:ident) => {
        guard_checks!($guard, grant.raw);
        guard_traits! {
            $guard, grant.raw, common_token;
            fn paths(&self) -> Vec<&str> {
                self.paths().collect()
            }
        }

        impl $guard {
            /// Returns the paths of the locks, in alphabetical order.
            pub fn paths(&self) -> impl Iterator<Item = &str> {
                self.tokens().map(|(path, _token)| path)
            }

            /// Returns a token for each path, in alphabetical order of the paths.
            ///
            /// Each grows with every grant of its lock; see [`FencingToken`].
            pub fn tokens(&self) -> impl Iterator<Item = (&str, FencingToken)> {
                let tokens = self.grant.tokens.iter();
                tokens.map(|(path, token)| (path.as_str(), *token))
            }

            /// Returns the full paths of the nodes that stand for the locks.
            pub fn nodes(&self) -> &[String] {
                self.grant.raw.nodes()
            }

            /// Releases all mutexes and waits until the server confirms it.
            ///
            /// Blocks as [`MutexGuard::unlock`](crate::MutexGuard::unlock).
            ///
            /// # Errors
            ///
            /// Fails with [`Error::Lost`] if one of them was lost before: another holder may have
            /// overlapped with this guard. Otherwise as
            /// [`LockGuard::unlock`](crate::LockGuard::unlock).
            pub fn unlock(self) -> Result<()> {
                self.grant.raw.release()
            }

            /// Returns the token of all locks, if they share one.
            fn common_token(&self) -> Option<FencingToken> {
                let (_, first) = self.grant.tokens.first()?;
                let same = self.grant.tokens.iter().all(|(_, token)| token == first);
                same.then_some(*first)
            }
        }
    };
}

multi_guard!(MultiGuard);
multi_guard!(SendMultiGuard);

impl MultiGuard {
    /// Turns the guard into one that can be sent to another thread.
    ///
    /// In exchange, the mutexes no longer know which thread holds them: a thread that has such a
    /// guard and locks one of them again waits for itself.
    pub fn into_send(mut self) -> SendMultiGuard {
        self.grant.turns.iter().for_each(Turn::detach);
        self.grant.readers.clear();
        self.grant.raw.lease().belongs(false);
        SendMultiGuard { grant: self.grant }
    }
}

impl From<MultiGuard> for SendMultiGuard {
    fn from(guard: MultiGuard) -> Self {
        guard.into_send()
    }
}
