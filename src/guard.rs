//! What the guards of all locks have in common.

mod boxed;
mod views;

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::result;
use std::time::Duration;

use crate::error::{Error, LostReason, Result};
use crate::hold::Hold;
use crate::system::channel::Receiver;
use crate::token::FencingToken;
use crate::transaction::Transaction;
pub use zklock_core::validity::GuardState;

/// The compiler names these traits when code sends a guard to another thread.
pub(crate) trait AGuardStaysOnItsThreadUseIntoSend {}
pub(crate) trait AReentrantGuardStaysOnItsThread {}

/// Keeps a guard on its thread, because this type is not `Send`.
pub(crate) type NotSend =
    dyn AGuardStaysOnItsThreadUseIntoSend + Sync + Unpin + UnwindSafe + RefUnwindSafe;
pub(crate) type NeverSend =
    dyn AReentrantGuardStaysOnItsThread + Sync + Unpin + UnwindSafe + RefUnwindSafe;

/// An event of a held lock; see [`LockGuard::events`].
///
/// # Example
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zklock::embedded::Server::start()?;
/// # let client = zklock::Client::connect(server.hosts())?;
/// use zklock::GuardEvent;
///
/// let guard = client.mutex("/locks/nightly-report")?.lock()?;
/// server.disconnect_all(); // the connection breaks, and the client reconnects
/// assert_eq!(guard.events().recv()?, GuardEvent::Suspect);
/// assert_eq!(guard.events().recv()?, GuardEvent::Held);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum GuardEvent {
    /// The lock is no longer confirmed: prepare to stop.
    Suspect,
    /// The lock is confirmed again.
    Held,
    /// The lock is lost: stop. [`LockGuard::lost_reason`] says why.
    Lost,
    /// Another client asks the holder to release the lock; the holder decides.
    RevokeRequested,
}

/// The operations that all guards share, for batch loops that work with any of them.
///
/// # Example
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zklock::embedded::Server::start()?;
/// # let client = zklock::Client::connect(server.hosts())?;
/// use zklock::LockGuard;
///
/// fn import(guard: impl LockGuard, files: &[&str]) -> zklock::Result<()> {
///     for file in files {
///         guard.check()?;
///         println!("importing {file} with the token {:?}", guard.fencing_token());
///     }
///     guard.unlock()
/// }
///
/// import(client.mutex("/locks/import")?.lock()?, &["a.csv", "b.csv"])?;
/// import(client.semaphore("/limits/import", 3)?.acquire()?, &["c.csv"])?;
/// # Ok(())
/// # }
/// ```
pub trait LockGuard: fmt::Debug + UnlockBoxed {
    /// Returns `Ok` as long as no other client can have the lock.
    ///
    /// Costs no I/O: it reads the session's state and a clock that counts time in suspend.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Lost`](crate::Error::Lost) once the lock is lost.
    fn check(&self) -> Result<()>;

    /// Asks the quorum whether the lock is still held.
    ///
    /// Blocks for one committed round trip, at most until the guard's deadline. If the connection
    /// breaks, waits for another one, for an eighth of the session timeout and for one second at
    /// most, and asks once more.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Lost`](crate::Error::Lost) if the lock is lost, and with
    /// [`Error::Suspect`](crate::Error::Suspect) if no quorum answered in time.
    fn verify(&self) -> Result<()>;

    /// Returns the state of the lock, without I/O.
    fn state(&self) -> GuardState;

    /// Returns why the lock was lost, without I/O; `None` as long as [`check`](Self::check)
    /// passes.
    fn lost_reason(&self) -> Option<LostReason>;

    /// Returns how long the lock can be trusted if the server sends nothing more.
    fn valid_for(&self) -> Duration;

    /// Returns the channel of events, for use in `select!`.
    fn events(&self) -> &Receiver<GuardEvent>;

    /// Returns the number to send along with each write to what the lock protects; see
    /// [`FencingToken`].
    ///
    /// `None` for a [`Permit`](crate::Permit), because several are held at a time. The guard of a
    /// multi-lock has a token if its locks share one, as with
    /// [`Client::connect`](crate::Client::connect).
    fn fencing_token(&self) -> Option<FencingToken>;

    /// Returns the path of the lock; for a multi-lock, its paths in alphabetical order.
    fn paths(&self) -> Vec<&str>;

    /// Returns the full path of the node that stands for the lock; for a multi-lock, the first one.
    fn node(&self) -> &str;

    /// Begins a transaction that is carried out while the lock is held, or not at all. Over a
    /// database, committing it fails. Does no I/O.
    fn transaction(&self) -> Transaction<'_> {
        Transaction::new(None)
    }

    /// Releases the lock and waits for the server to confirm it. A boxed guard of which only the
    /// trait is known has this method too.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Lost`](crate::Error::Lost) if the lock was lost before, or if no server
    /// confirmed the release by the guard's deadline, and with
    /// [`Error::NoAuth`](crate::Error::NoAuth) if the client may not delete the lock's node: the lock
    /// stays taken until it may, or its session ends.
    ///
    /// # Example
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zklock::embedded::Server::start()?;
    /// # let client = zklock::Client::connect(server.hosts())?;
    /// use zklock::LockGuard;
    ///
    /// let guards: Vec<Box<dyn LockGuard>> = vec![
    ///     Box::new(client.mutex("/locks/import")?.lock()?),
    ///     Box::new(client.semaphore("/limits/import", 3)?.acquire()?),
    /// ];
    /// for guard in guards {
    ///     guard.unlock()?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    fn unlock(self) -> Result<()>
    where
        Self: Sized;

    /// Returns `true` as long as no other client can have the lock: while Held or Suspect.
    fn is_valid(&self) -> bool {
        self.check().is_ok()
    }

    /// Returns whether all holders that the call has seen ahead released in order; `None` if it saw none.
    #[doc(hidden)]
    fn follows_release(&self) -> Option<bool> {
        None
    }

    /// Makes an orderly release leave a note, which [`follows_release`](Self::follows_release) reads.
    #[doc(hidden)]
    fn leave_note(&self) {}

    /// Releases a lock that must read before it can leave its note; the guard must be dropped next.
    #[doc(hidden)]
    fn unlock_noting(&self) {}

    /// Leaves a hold in place of the lock, and returns its node; the guard must be dropped next.
    #[doc(hidden)]
    fn leave_hold(&self, _hold: &Hold) -> Result<String> {
        Err(Error::Unsupported { what: "a hold" })
    }
}

/// Releases a guard whose size is not known. Every guard implements this.
#[doc(hidden)]
pub trait UnlockBoxed {
    /// As [`LockGuard::unlock`].
    ///
    /// # Errors
    ///
    /// As [`LockGuard::unlock`].
    fn unlock_boxed(self: Box<Self>) -> Result<()>;
}

impl<G: LockGuard> UnlockBoxed for G {
    fn unlock_boxed(self: Box<Self>) -> Result<()> {
        (*self).unlock()
    }
}

/// Gives a guard of one path the methods that all guards share. The second argument names its raw
/// guard, and the third the method that returns its fencing token, if it has one. A guard that can be
/// sent to another thread names the one that it was made of, and gets the methods of that one too.
macro_rules! guard_methods {
    ($guard:ident, $($raw:ident).+, as $local:ident) => {
        $crate::guard::guard_methods!($guard, $($raw).+, fencing_token);

        impl $guard {
            #[doc = concat!("As [`", stringify!($local), "::fencing_token`].")]
            pub fn fencing_token(&self) -> $crate::FencingToken {
                self.$($raw).+.token()
            }

            #[doc = concat!("As [`", stringify!($local), "::unlock`].")]
            ///
            /// # Errors
            ///
            #[doc = concat!("As [`", stringify!($local), "::unlock`].")]
            pub fn unlock(self) -> $crate::Result<()> {
                self.$($raw).+.release()
            }
        }
    };
    ($guard:ident, $($raw:ident).+ $(, $token:ident)?) => {
        $crate::guard::guard_views!($guard, $($raw).+);

        $crate::guard::guard_traits! {
            $guard, $($raw).+ $(, $token)?;
            fn paths(&self) -> Vec<&str> {
                vec![self.path()]
            }
        }
    };
}

/// Implements the traits of a guard; the item returns its paths.
macro_rules! guard_traits {
    ($guard:ident, $($raw:ident).+ $(, $token:ident)?; $paths:item) => {
        $crate::guard::lock_guard! {
            $guard $(, $token)?;
            $paths

            fn transaction(&self) -> $crate::Transaction<'_> {
                self.transaction()
            }

            fn follows_release(&self) -> Option<bool> {
                self.$($raw).+.follows_release()
            }

            fn leave_note(&self) {
                self.$($raw).+.leave_note()
            }

            fn unlock_noting(&self) {
                self.$($raw).+.unlock_noting()
            }

            fn leave_hold(&self, hold: &$crate::hold::Hold) -> $crate::Result<String> {
                self.$($raw).+.leave_hold(hold)
            }
        }

        impl ::std::fmt::Debug for $guard {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                let token = $crate::LockGuard::fencing_token(self);
                self.$($raw).+.describe(stringify!($guard), token, f)
            }
        }
    };
}

/// Implements [`LockGuard`] through the methods of the same names.
macro_rules! lock_guard {
    ($guard:ident $(, $token:ident)?; $($more:item)+) => {
        impl $crate::LockGuard for $guard {
            $($more)+

            fn check(&self) -> $crate::Result<()> {
                self.check()
            }

            fn verify(&self) -> $crate::Result<()> {
                self.verify()
            }

            fn state(&self) -> $crate::GuardState {
                self.state()
            }

            fn lost_reason(&self) -> Option<$crate::LostReason> {
                self.lost_reason()
            }

            fn valid_for(&self) -> ::std::time::Duration {
                self.valid_for()
            }

            fn events(&self) -> &$crate::system::channel::Receiver<$crate::GuardEvent> {
                self.events()
            }

            fn fencing_token(&self) -> Option<$crate::FencingToken> {
                None$(.or(self.$token().into()))?
            }

            fn node(&self) -> &str {
                self.node()
            }

            fn unlock(self) -> $crate::Result<()> {
                self.unlock()
            }
        }
    };
}

/// Runs `run` under a guard and releases the guard. Waits for the server's confirmation unless
/// `run` panics.
pub(crate) fn finish_with<G: LockGuard, T, E: From<Error>>(
    guard: G,
    run: impl FnOnce(&G) -> result::Result<T, E>,
) -> result::Result<T, E> {
    let path = guard.paths().join(", ");
    match (run(&guard), guard.unlock()) {
        (Ok(value), released) => Ok(released.map(|()| value)?),
        (Err(error), released) => {
            if let Err(second) = released {
                log::warn!("{path} was not released in order after another error: {second}");
            }
            Err(error)
        }
    }
}

pub(crate) use guard_methods;
pub(crate) use guard_traits;
pub(crate) use lock_guard;
pub(crate) use views::{guard_checks, guard_views};
