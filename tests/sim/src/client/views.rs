//! Views that are lent to a function, and are checked as guards are.

use std::time::Duration;

use zklock::sim::channel::Receiver;
use zklock::{
    FencingToken, GuardEvent, GuardState, LockGuard, LostReason, Result, Run, Term, Transaction,
};

macro_rules! view {
    ($view:ident, $of:ident::$state:ident) => {
        #[derive(Debug)]
        pub(super) struct $view<'a>(pub(super) &'a $of<'a>);

        impl LockGuard for $view<'_> {
            fn transaction(&self) -> Transaction<'_> {
                self.0.transaction()
            }

            fn check(&self) -> Result<()> {
                self.0.check()
            }

            fn verify(&self) -> Result<()> {
                self.0.verify()
            }

            fn state(&self) -> GuardState {
                self.0.$state()
            }

            fn lost_reason(&self) -> Option<LostReason> {
                self.0.lost_reason()
            }

            fn valid_for(&self) -> Duration {
                self.0.valid_for()
            }

            fn events(&self) -> &Receiver<GuardEvent> {
                self.0.events()
            }

            fn fencing_token(&self) -> Option<FencingToken> {
                Some(self.0.fencing_token())
            }

            fn paths(&self) -> Vec<&str> {
                vec![self.0.path()]
            }

            fn node(&self) -> &str {
                self.0.node()
            }

            fn unlock(self) -> Result<()> {
                Ok(())
            }
        }
    };
}

view!(Running, Run::guard_state);
view!(Active, Term::state);
