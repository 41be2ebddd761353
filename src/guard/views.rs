//! The methods of every guard that inspect the lock, as macros.

/// Gives a guard of one path, or a type that lends one, the methods that inspect the lock.
macro_rules! guard_views {
    ($guard:ty, $($raw:ident).+ $(, $state:ident)?) => {
        $crate::guard::guard_checks!($guard, $($raw).+ $(, $state)?);

        impl $guard {
            /// Returns the path of the lock.
            pub fn path(&self) -> &str {
                self.$($raw).+.lease().path()
            }
        }
    };
}

/// Gives the same methods without the path. The lock's state has another name where `state` means something else.
macro_rules! guard_checks {
    ($guard:ty, $($raw:ident).+) => {
        $crate::guard::guard_checks!($guard, $($raw).+, state);
    };
    ($guard:ty, $($raw:ident).+, $state:ident) => {
        impl $guard {
            /// Returns `Ok` as long as no other client can have the lock.
            ///
            /// Costs no I/O: it reads a clock that counts time in suspend. When the connection is
            /// lost, it passes until the deadline: half a session timeout after the quorum last
            /// confirmed the lock, or earlier.
            ///
            /// # Errors
            ///
            /// Fails with [`Error::Lost`](crate::Error::Lost) once the lock is lost.
            pub fn check(&self) -> $crate::Result<()> {
                self.$($raw).+.check()
            }

            /// Begins a [`Transaction`](crate::Transaction): writes to ZooKeeper that are all
            /// carried out while this lock is held, or not at all. Does no I/O.
            pub fn transaction(&self) -> $crate::Transaction<'_> {
                self.$($raw).+.transaction()
            }

            /// Asks the quorum whether the lock is still held.
            ///
            /// Blocks for one committed round trip, at most until the guard's deadline. If the
            /// connection breaks, waits for another one, for an eighth of the session timeout and
            /// for one second at most, and asks once more.
            ///
            /// # Errors
            ///
            /// Fails with [`Error::Lost`](crate::Error::Lost) if the lock is lost, and
            /// with [`Error::Suspect`](crate::Error::Suspect) if no quorum answered in time.
            pub fn verify(&self) -> $crate::Result<()> {
                self.$($raw).+.verify()
            }

            /// Returns `true` as long as no other client can have the lock: while Held or Suspect.
            pub fn is_valid(&self) -> bool {
                self.check().is_ok()
            }

            /// Returns the state of the lock, without I/O.
            pub fn $state(&self) -> $crate::GuardState {
                self.$($raw).+.lease().state()
            }

            /// Returns why the lock was lost, without I/O; `None` as long as
            /// [`check`](Self::check) passes.
            pub fn lost_reason(&self) -> Option<$crate::LostReason> {
                self.$($raw).+.lease().lost_reason()
            }

            /// Returns how long the lock can be trusted if the server sends nothing more.
            pub fn valid_for(&self) -> ::std::time::Duration {
                self.$($raw).+.valid_for()
            }

            /// Returns the channel of events, for use in `select!`.
            ///
            /// It keeps the sixteen newest events.
            pub fn events(&self) -> &$crate::system::channel::Receiver<$crate::GuardEvent> {
                self.$($raw).+.lease().events()
            }

            /// Returns the full path of the node that stands for the lock; for a multi-lock, or
            /// several permits, the first one.
            pub fn node(&self) -> &str {
                self.$($raw).+.node()
            }
        }
    };
}

pub(crate) use guard_checks;
pub(crate) use guard_views;
