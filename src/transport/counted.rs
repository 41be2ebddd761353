//! Counts the requests to a transport.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::session_key::SessionKey;
use super::{Call, Capabilities, Errand, Transport, WatchId};
use crate::metrics::Counters;

/// A transport that counts its requests.
pub(crate) struct Counted {
    inner: Arc<dyn Transport>,
    counters: Arc<Counters>,
}

impl Counted {
    pub(crate) fn over(inner: Arc<dyn Transport>, counters: &Arc<Counters>) -> Arc<dyn Transport> {
        let counters = counters.clone();
        Arc::new(Self { inner, counters })
    }
}

impl Transport for Counted {
    fn send(&self, calls: Vec<Call>) {
        for call in &calls {
            self.counters.requested(&call.request);
        }
        self.inner.send(calls);
    }

    fn unwatch(&self, path: &str, id: WatchId) {
        self.inner.unwatch(path, id);
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn rest(&self, awake: &dyn Fn() -> bool, until: Option<Instant>) {
        self.inner.rest(awake, until);
    }

    fn attend(&self) {
        self.inner.attend();
    }

    fn attended(&self) {
        self.inner.attended();
    }

    fn returns(&self) {
        self.inner.returns();
    }

    fn returned(&self) {
        self.inner.returned();
    }

    fn soon(&self, errand: Errand) {
        self.inner.soon(errand);
    }

    fn key(&self) -> Option<SessionKey> {
        self.inner.key()
    }

    fn keep_session(&self, kept: bool) {
        self.inner.keep_session(kept);
    }

    fn close(&self, limit: Duration) -> bool {
        self.inner.close(limit)
    }

    fn leave(&self) {
        self.inner.leave();
    }
}

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
