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
    ($($held:ty)*) => {
        $(
            impl Held for $held {
                fn state(&self) -> GuardState {
                    <$held>::state(self)
                }

                fn lost_reason(&self) -> Option<LostReason> {
                    <$held>::lost_reason(self)
                }

                fn valid_for(&self) -> Duration {
                    <$held>::valid_for(self)
                }

                fn events(&self) -> &Receiver<GuardEvent> {
                    <$held>::events(self)
                }
            }
        )*
    };
}

held!(Run<'_> Term<'_>);

impl Held for Box<dyn LockGuard> {
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
}
