//! The subscribers, which are notified of every change of the status until they leave.

use std::sync::{Arc, Weak};

use crate::system::channel::Receiver;

/// With fewer subscribers, those that have left are removed only at a change.
const CROWD: usize = 64;

/// A channel that is filled after every change of the status.
#[derive(Debug)]
pub(crate) struct Changes {
    pub(super) receiver: Receiver<()>,
    pub(super) _subscription: Subscription,
}

impl Changes {
    pub(crate) fn receiver(&self) -> &Receiver<()> {
        &self.receiver
    }
}

/// Keeps a subscriber in the status's list.
#[derive(Debug)]
pub(crate) struct Subscription(#[expect(dead_code, reason = "only its existence counts")] Arc<()>);

/// The subscribers, and perhaps some that have left.
pub(super) struct Subscribers<T> {
    list: Vec<Subscriber<T>>,
    /// The number of subscribers at which adding one removes those that have left.
    crowd: usize,
}

/// A closure that runs at every change, while its [`Subscription`] lives.
struct Subscriber<T> {
    notify: Box<dyn Fn(&T) + Send>,
    subscription: Weak<()>,
}

impl<T> Subscribers<T> {
    pub(super) fn new() -> Self {
        Self {
            list: Vec::new(),
            crowd: CROWD,
        }
    }

    pub(super) fn add(&mut self, notify: impl Fn(&T) + Send + 'static) -> Subscription {
        let subscribed = Arc::new(());
        if self.list.len() >= self.crowd {
            // Otherwise only a change removes subscribers that have left, and changes are rare.
            self.list.retain(Subscriber::is_subscribed);
            self.crowd = CROWD.max(2 * self.list.len());
        }
        self.list.push(Subscriber {
            notify: Box::new(notify),
            subscription: Arc::downgrade(&subscribed),
        });
        Subscription(subscribed)
    }

    pub(super) fn tell(&mut self, what: &T) {
        self.list.retain(Subscriber::is_subscribed);
        for subscriber in &self.list {
            (subscriber.notify)(what);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }
}

impl<T> Subscriber<T> {
    fn is_subscribed(&self) -> bool {
        self.subscription.strong_count() > 0
    }
}
