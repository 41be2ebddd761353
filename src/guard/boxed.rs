//! Makes a boxed guard, of which only the trait may be known, a guard.

use std::time::Duration;

use super::{GuardEvent, GuardState, LockGuard, UnlockBoxed};
use crate::error::{LostReason, Result};
use crate::hold::Hold;
use crate::system::channel::Receiver;
use crate::token::FencingToken;
use crate::transaction::Transaction;

impl<G: LockGuard + ?Sized> LockGuard for Box<G> {
    fn check(&self) -> Result<()> {
        (**self).check()
    }

    fn verify(&self) -> Result<()> {
        (**self).verify()
    }

    fn state(&self) -> GuardState {
        (**self).state()
    }

    fn lost_reason(&self) -> Option<LostReason> {
        (**self).lost_reason()
    }

    fn valid_for(&self) -> Duration {
        (**self).valid_for()
    }

    fn events(&self) -> &Receiver<GuardEvent> {
        (**self).events()
    }

    fn fencing_token(&self) -> Option<FencingToken> {
        (**self).fencing_token()
    }

    fn paths(&self) -> Vec<&str> {
        (**self).paths()
    }

    fn node(&self) -> &str {
        (**self).node()
    }

    fn transaction(&self) -> Transaction<'_> {
        (**self).transaction()
    }

    fn unlock(self) -> Result<()> {
        <G as UnlockBoxed>::unlock_boxed(self)
    }

    fn is_valid(&self) -> bool {
        (**self).is_valid()
    }

    fn follows_release(&self) -> Option<bool> {
        (**self).follows_release()
    }

    fn leave_note(&self) {
        (**self).leave_note();
    }

    fn unlock_noting(&self) {
        (**self).unlock_noting();
    }

    fn leave_hold(&self, hold: &Hold) -> Result<String> {
        (**self).leave_hold(hold)
    }
}
