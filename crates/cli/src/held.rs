//! What a command depends on: a guard, a job's run or a standby's term.

use std::time::Duration;

use crossbeam_channel::Receiver;
use zklock::{GuardEvent, GuardState, LockGuard, LostReason, Run, Term};

/// See the module's documentation.
pub(crate) trait Held {
    fn state(&self) -> GuardState;
    fn lost_reason(&self) -> Option<LostReason>;
    fn valid_for(&self) -> Duration;
    fn events(&self) -> &Receiver<GuardEvent>;
}

macro_rules! held {
    ($($held:ty: $with:ident::$state:ident,)*) => {
        $(
            impl Held for $held {
                fn state(&self) -> GuardState {
                    $with::$state(self)
                }

                fn lost_reason(&self) -> Option<LostReason> {
                    $with::lost_reason(self)
                }

                fn valid_for(&self) -> Duration {
                    $with::valid_for(self)
                }

                fn events(&self) -> &Receiver<GuardEvent> {
                    $with::events(self)
                }
            }
        )*
    };
}

held! {
    Run<'_>: Run::guard_state,
    Term<'_>: Term::state,
    Box<dyn LockGuard>: LockGuard::state,
}
