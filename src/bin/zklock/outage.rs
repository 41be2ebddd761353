//! Since when no server has answered, so that nothing old is shown as if it were new.

use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use zklock::{Client, SessionState};

use crate::table::{CLEAR, brief};

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

    /// Writes what stands above a table, on an empty `screen` if that is to be updated.
    pub(crate) fn write_above(&self, to: &mut impl Write, screen: bool) -> io::Result<()> {
        if screen {
            write!(to, "{CLEAR}")?;
        }
        let Some(since) = self.0 else { return Ok(()) };
        let silent = brief(since.elapsed().unwrap_or_default());
        let what = "and this is how it was then:";
        writeln!(to, "no server has answered for {silent}, {what}")
    }
}
