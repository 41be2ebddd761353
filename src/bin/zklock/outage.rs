//! Since when no server has answered, so that nothing old is shown as if it were new.

use std::time::{Duration, SystemTime};

use zklock::{Client, SessionState};

/// When the connection was lost, if there is none.
#[derive(Debug, Default)]
pub(crate) struct Outage(Option<SystemTime>);

impl Outage {
    /// Checks the connection; returns how long there has been none.
    pub(crate) fn look(&mut self, client: &Client) -> Option<Duration> {
        if client.state() == SessionState::Connected {
            self.0 = None;
            return None;
        }
        let since = self.0.get_or_insert_with(SystemTime::now);
        Some(since.elapsed().unwrap_or_default())
    }

    /// Returns since when there has been no connection, as of the last look.
    pub(crate) fn since(&self) -> Option<SystemTime> {
        self.0
    }
}
