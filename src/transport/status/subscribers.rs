//! The subscribers, which are notified of every change of the status until they leave.

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::{Arc, Weak};

use crate::system::channel::{Receiver, bounded};
use crate::transport::session_state::Snapshot;

/// With fewer subscribers, those that have left are removed only at a change.
const CROWD: usize = 64;

/// A channel that is filled after every change of the status.
pub(crate) struct Changes {
    receiver: Receiver<()>,
    _subscription: Subscription,
}

impl Changes {
    pub(crate) fn receiver(&self) -> &Receiver<()> {
        &self.receiver
    }
}

/// A closure that runs at every change, until this is dropped.
pub(crate) struct Subscription(
    #[expect(dead_code, reason = "only its existence counts")] Arc<Notify>,
);

impl UnwindSafe for Subscription {}
impl RefUnwindSafe for Subscription {}

type Notify = dyn Fn(&Snapshot) + Send + Sync;

/// The subscribers, and perhaps some that have left.
pub(super) struct Subscribers {
    list: Vec<Weak<Notify>>,
    /// The number of subscribers at which adding one removes those that have left.
    crowd: usize,
}

impl Subscribers {
    pub(super) fn new() -> Self {
        Self {
            list: Vec::new(),
            crowd: CROWD,
        }
    }

    pub(super) fn changes(&mut self) -> Changes {
        let (to, receiver) = bounded(1);
        // A full channel has reported a change already.
        let _subscription = self.add(move |_| {
            let _ = to.try_send(());
        });
        Changes {
            receiver,
            _subscription,
        }
    }

    pub(super) fn add(
        &mut self,
        notify: impl Fn(&Snapshot) + Send + Sync + 'static,
    ) -> Subscription {
        if self.list.len() >= self.crowd {
            // Otherwise only a change removes subscribers that have left, and changes are rare.
            self.list.retain(|one| one.strong_count() > 0);
            self.crowd = CROWD.max(2 * self.list.len());
        }
        let notify: Arc<Notify> = Arc::new(notify);
        self.list.push(Arc::downgrade(&notify));
        Subscription(notify)
    }

    pub(super) fn tell(&mut self, what: &Snapshot) {
        let tell = |one: &Weak<Notify>| one.upgrade().inspect(|notify| notify(what)).is_some();
        self.list.retain(tell);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }
}
