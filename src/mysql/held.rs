//! A lock that is held: what the guards are made of.

use std::sync::Arc;
use std::time::Instant;

use crate::error::{Error, Result};
use crate::guard::GuardState;
use crate::mysql::lease::Lease;
use crate::mysql::place::Place;
use crate::mysql::renewal::renew_one;
use crate::time::clock::Moment;

/// A lock that is held; given up when dropped, by the place in it.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) lease: Arc<Lease>,
    pub(super) place: Arc<Place>,
}

impl Held {
    pub(super) fn check(&self) -> Result<()> {
        match self.lease.state(Moment::now()) {
            GuardState::Lost => Err(self.lost()),
            _ => Ok(()),
        }
    }

    pub(super) fn verify(&self) -> Result<()> {
        self.check()?;
        let (lease, length) = (self.lease.clone(), self.place.shared.lease());
        let valid = self.lease.valid_for(Moment::now());
        let limit = Instant::now() + valid.min(self.place.shared.answer_limit());
        let asked = Moment::now();
        let renewed = self
            .place
            .shared
            .ask(limit, "verify the lock", move |link| {
                // The connection may have been dead since it was last used.
                renew_one(link, &lease, length).or_else(|_| renew_one(link, &lease, length))
            });
        self.check()?;
        match renewed {
            Ok(()) => Ok(()),
            // Another renewal that was sent since then says the same.
            Err(_) if self.lease.confirmed() >= asked => Ok(()),
            Err(error) => {
                log::debug!("cannot verify {}: {error}", self.lease.name);
                Err(Error::Suspect {
                    path: self.lease.name.to_string(),
                })
            }
        }
    }

    fn lost(&self) -> Error {
        Error::Lost {
            path: self.lease.name.to_string(),
        }
    }
}

/// The methods that all guards over a database have.
macro_rules! guard_methods {
    ($guard:ty) => {
        impl $guard {
            /// Returns `Ok` as long as nobody else can have the lock; costs no I/O.
            ///
            /// # Errors
            ///
            /// Fails with [`Error::Lost`](crate::Error::Lost) from then on when it is lost.
            pub fn check(&self) -> $crate::Result<()> {
                self.held.check()
            }

            /// Renews the lease now, which fails if the row is not ours any more.
            ///
            /// Blocks for a round trip, five seconds at most.
            ///
            /// # Errors
            ///
            /// Fails with [`Error::Lost`](crate::Error::Lost) if the lock is lost, and with
            /// [`Error::Suspect`](crate::Error::Suspect) when there was no answer in time.
            pub fn verify(&self) -> $crate::Result<()> {
                self.held.verify()
            }

            /// Returns `true` as long as nobody else can have the lock.
            pub fn is_held(&self) -> bool {
                self.held.check().is_ok()
            }

            /// Returns what the guard knows about its lock.
            pub fn state(&self) -> $crate::GuardState {
                self.held.lease.state($crate::time::clock::Moment::now())
            }

            /// Returns how long the lock can be trusted if nothing more is heard.
            pub fn valid_for(&self) -> std::time::Duration {
                self.held
                    .lease
                    .valid_for($crate::time::clock::Moment::now())
            }

            /// Returns the number of this grant; the next one of the same name is greater.
            ///
            /// Compare tokens of one name in one database only.
            pub fn fencing_token(&self) -> $crate::FencingToken {
                $crate::FencingToken::new(self.held.lease.token)
            }

            /// Returns the channel that tells of changes.
            pub fn events(&self) -> &crossbeam_channel::Receiver<$crate::GuardEvent> {
                self.held.lease.events()
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

            fn valid_for(&self) -> std::time::Duration {
                self.valid_for()
            }

            fn events(&self) -> &crossbeam_channel::Receiver<$crate::GuardEvent> {
                self.events()
            }

            fn unlock(self) -> $crate::Result<()> {
                self.unlock()
            }
        }
    };
}
pub(super) use guard_methods;
