//! The methods that all guards over a database share, as a macro.

/// Adds the methods that inspect the lock to a guard with a field `held`, or to a type that lends
/// one.
///
/// The lock's state has another name where `state` means something else.
macro_rules! guard_views {
    ($guard:ident) => {
        $crate::mysql::guard_methods::guard_views!($guard, state);
    };
    ($guard:ident, $state:ident) => {
        impl $guard {
            /// Returns `Ok` as long as no other client can have the lock; costs no I/O.
            ///
            /// # Errors
            ///
            /// Fails with [`Error::Lost`](crate::Error::Lost) once the lock is lost.
            pub fn check(&self) -> $crate::Result<()> {
                self.held.check()
            }

            /// Renews the lease now. This fails if the row was taken over or deleted.
            ///
            /// Blocks for a round trip, at most five seconds.
            ///
            /// # Errors
            ///
            /// Fails with [`Error::Lost`](crate::Error::Lost) if the lock is lost, and with
            /// [`Error::Suspect`](crate::Error::Suspect) if there was no answer in time.
            pub fn verify(&self) -> $crate::Result<()> {
                self.held.verify()
            }

            /// Returns `true` as long as no other client can have the lock: while Held or Suspect.
            pub fn is_valid(&self) -> bool {
                self.held.check().is_ok()
            }

            /// Returns the state of the guard.
            pub fn $state(&self) -> $crate::GuardState {
                self.held.lease.state($crate::system::clock::since_boot())
            }

            /// Returns why the lock was lost; `None` as long as [`check`](Self::check) passes.
            pub fn lost_reason(&self) -> Option<$crate::LostReason> {
                self.held.lost_reason()
            }

            /// Returns how long the lock can be trusted without another renewal.
            pub fn valid_for(&self) -> std::time::Duration {
                self.held
                    .lease
                    .valid_for($crate::system::clock::since_boot())
            }

            /// Returns the number of this grant; the next grant of the same name has a greater one.
            ///
            /// Compare tokens of one name in one database only.
            pub fn fencing_token(&self) -> $crate::FencingToken {
                $crate::FencingToken::new(self.held.lease.token)
            }

            /// Returns the name of the lock.
            pub fn path(&self) -> &str {
                &self.held.lease.name
            }

            /// Returns the name of this acquisition in the table.
            pub fn node(&self) -> &str {
                &self.held.lease.owner
            }

            /// Returns the channel that receives the changes of the guard's state.
            pub fn events(&self) -> &crossbeam_channel::Receiver<$crate::GuardEvent> {
                self.held.lease.events()
            }
        }

        impl ::std::fmt::Debug for $guard {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                self.held.describe(stringify!($guard), f)
            }
        }
    };
}

/// Adds all methods but `unlock` to a guard with a field `held`.
macro_rules! guard_methods {
    ($guard:ident) => {
        $crate::mysql::guard_methods::guard_views!($guard);
        $crate::guard::lock_guard! {
            $guard, fencing_token;
            fn paths(&self) -> Vec<&str> {
                vec![self.path()]
            }
        }
    };
}
pub(super) use {guard_methods, guard_views};
