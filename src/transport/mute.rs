//! A transport for tests, which answers nothing by itself.

use std::time::Duration;

use super::{Answer, Call, Transport, WatchId};
use crate::system::sync::Mutex;
use zklock_jute::Request;

/// A transport that never has anything to read.
#[derive(Default)]
pub(crate) struct Mute {
    /// The requests that it was given.
    pub(crate) sent: Mutex<Vec<Request>>,
    /// What takes the answers to these requests.
    pub(crate) answers: Mutex<Vec<Answer>>,
    /// What to do when it is to end the session.
    pub(crate) ends: Option<Box<dyn Fn() + Send + Sync>>,
}

impl Transport for Mute {
    fn send(&self, calls: Vec<Call>) {
        for call in calls {
            self.sent.lock().push(call.request);
            self.answers.lock().push(call.answer);
        }
    }

    fn unwatch(&self, _: &str, _: WatchId) {}

    fn transacts(&self) -> bool {
        true
    }

    fn leave(&self) {
        self.ends.iter().for_each(|ends| ends());
    }

    fn close(&self, _: Duration) -> bool {
        self.leave();
        true
    }
}
