//! What all guards share.

use std::fmt;
use std::time::Duration;

use crossbeam_channel::Receiver;

use crate::error::Result;
pub use crate::recipe::validity::GuardState;

/// What a holder is told while it holds; see [`LockGuard::events`].
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
/// server.disconnect_all(); // the network fails, and is well again
/// assert_eq!(guard.events().recv()?, GuardEvent::Suspect);
/// assert_eq!(guard.events().recv()?, GuardEvent::Held);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum GuardEvent {
    /// The lock is no longer confirmed: begin to stop.
    Suspect,
    /// The lock is confirmed again.
    Held,
    /// The lock is lost: nothing more may be done under it.
    Lost,
    /// Somebody asks the holder to let go; the holder decides.
    RevokeRequested,
}

/// A number that grows with every grant of one lock.
///
/// Hand it to whatever the lock protects, and let that refuse a number lower than one
/// it has seen: that is the only protection against a holder that was paused and acts
/// late. Compare tokens of one path on one ensemble only.
///
/// # Example
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zklock::embedded::Server::start()?;
/// # let client = zklock::Client::connect(server.hosts())?;
/// let mutex = client.mutex("/locks/nightly-report")?;
/// let late = mutex.lock()?.fencing_token(); // and then it is paused
/// let newer = mutex.lock()?.fencing_token();
///
/// // What the storage does: it keeps the highest token, and refuses a lower one.
/// let mut highest = late;
/// for (token, accepted) in [(newer, true), (late, false)] {
///     assert_eq!(highest <= token, accepted);
///     highest = highest.max(token);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct FencingToken(i64);

impl FencingToken {
    pub(crate) fn new(token: i64) -> Self {
        Self(token)
    }

    /// Returns the number.
    pub fn get(self) -> i64 {
        self.0
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// What the guards of all locks have in common, so that a batch loop can be written once.
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
///         println!("importing {file}");
///     }
///     guard.unlock()
/// }
///
/// import(client.mutex("/locks/import")?.lock()?, &["a.csv", "b.csv"])?;
/// import(client.semaphore("/limits/import", 3)?.acquire()?, &["c.csv"])?;
/// # Ok(())
/// # }
/// ```
pub trait LockGuard: fmt::Debug {
    /// Returns `Ok` as long as nobody else can have the lock.
    ///
    /// Costs no I/O: a look at a clock that counts suspend, and at what the session knows.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Lost`](crate::Error::Lost) from then on when the lock is lost.
    fn check(&self) -> Result<()>;

    /// Asks the server, through its quorum, whether the lock is still ours.
    ///
    /// Blocks for one committed round trip, at most until the guard's deadline.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Lost`](crate::Error::Lost) if it is not, and with
    /// [`Error::Suspect`](crate::Error::Suspect) when no quorum answered in time.
    fn verify(&self) -> Result<()>;

    /// Returns what the guard knows about its lock.
    fn state(&self) -> GuardState;

    /// Returns how long the lock can be trusted if nothing more is heard of the server.
    fn valid_for(&self) -> Duration;

    /// Returns the channel that tells of changes, to be used in `select!`.
    fn events(&self) -> &Receiver<GuardEvent>;

    /// Releases the lock and waits for the answer.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Lost`](crate::Error::Lost) if it was lost before.
    fn unlock(self) -> Result<()>
    where
        Self: Sized;

    /// Returns `true` as long as nobody else can have the lock.
    fn is_held(&self) -> bool {
        self.check().is_ok()
    }
}

/// Gives a guard the methods that all guards share; its hold is in the field `hold`, or
/// where the second argument says.
macro_rules! guard_methods {
    ($guard:ident) => {
        $crate::guard::guard_methods!($guard, raw);
    };
    ($guard:ident, $($raw:ident).+) => {
        impl $guard {
            /// Returns `Ok` as long as nobody else can have the lock.
            ///
            /// Costs no I/O: a look at a clock that counts suspend. When the connection is
            /// lost it goes on to pass until the deadline, which is half a session timeout
            /// after the last time that a quorum confirmed the lock.
            ///
            /// # Errors
            ///
            /// Fails with [`Error::Lost`](crate::Error::Lost) when the lock is lost, and
            /// from then on.
            pub fn check(&self) -> $crate::Result<()> {
                self.$($raw).+.check()
            }

            /// Asks the quorum whether the lock is still ours.
            ///
            /// Blocks for one committed round trip; when the connection is lost, until
            /// the guard's deadline at most.
            ///
            /// # Errors
            ///
            /// Fails with [`Error::Lost`](crate::Error::Lost) if the lock is lost, and
            /// with [`Error::Suspect`](crate::Error::Suspect) when no quorum answered.
            pub fn verify(&self) -> $crate::Result<()> {
                self.$($raw).+.verify()
            }

            /// Returns `true` as long as nobody else can have the lock.
            pub fn is_held(&self) -> bool {
                self.check().is_ok()
            }

            /// Returns what is known of the lock, without I/O.
            pub fn state(&self) -> $crate::GuardState {
                self.$($raw).+.state()
            }

            /// Returns how long the lock can be trusted if nothing more is heard of the
            /// server.
            pub fn valid_for(&self) -> ::std::time::Duration {
                self.$($raw).+.valid_for()
            }

            /// Returns the channel that tells of changes, to be used in `select!`.
            ///
            /// It keeps the sixteen newest events.
            pub fn events(&self) -> &::crossbeam_channel::Receiver<$crate::GuardEvent> {
                self.$($raw).+.events()
            }
        }

        impl $crate::LockGuard for $guard {
            fn check(&self) -> $crate::Result<()> {
                self.check()
            }

            fn verify(&self) -> $crate::Result<()> {
                self.verify()
            }

            fn state(&self) -> $crate::GuardState {
                self.state()
            }

            fn valid_for(&self) -> ::std::time::Duration {
                self.valid_for()
            }

            fn events(&self) -> &::crossbeam_channel::Receiver<$crate::GuardEvent> {
                self.events()
            }

            fn unlock(self) -> $crate::Result<()> {
                self.unlock()
            }
        }
    };
}

pub(crate) use guard_methods;
