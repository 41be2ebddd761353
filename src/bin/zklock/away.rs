//! Since when nobody answers, so that nothing old is shown as if it were new.

use std::time::{Duration, SystemTime};

use zklock::{Client, SessionState};

/// Servers that are away.
#[derive(Debug, Default)]
pub(crate) struct Away(Option<SystemTime>);

impl Away {
    /// Looks whether a server is there; returns for how long none is.
    pub(crate) fn look(&mut self, client: &Client) -> Option<Duration> {
        if client.state() == SessionState::Connected {
            self.0 = None;
            return None;
        }
        let since = self.0.get_or_insert_with(SystemTime::now);
        Some(since.elapsed().unwrap_or_default())
    }

    /// Since when none was there when we looked.
    pub(crate) fn since(&self) -> Option<SystemTime> {
        self.0
    }
}
