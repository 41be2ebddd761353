//! Tracks since when no server has answered, so that nothing old is shown as if it were new.

use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use zklock::Client;

use crate::table::{CLEAR, brief};

/// When a server last answered, if none answers now.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    since: Option<SystemTime>,
    /// The length of the silence at the last look.
    silent: Duration,
}

impl Outage {
    /// Checks whether a server answers; returns how long none has.
    pub(crate) fn look(&mut self, client: &Client) -> Option<Duration> {
        let silent = client.silent_for();
        let Some(now) = silent else {
            *self = Self::default();
            return None;
        };
        // A shorter silence is a new one.
        if self.since.is_none() || now < self.silent {
            self.since = SystemTime::now().checked_sub(now);
        }
        self.silent = now;
        silent
    }

    /// Returns since when no server has answered, as of the last look.
    pub(crate) fn since(&self) -> Option<SystemTime> {
        self.since
    }

    /// Writes the lines above a table, on an empty `screen` if the table is to be updated.
    pub(crate) fn write_above(&self, to: &mut impl Write, screen: bool) -> io::Result<()> {
        if screen {
            write!(to, "{CLEAR}")?;
        }
        if self.since.is_none() {
            return Ok(());
        }
        let silent = brief(self.silent);
        let what = "and this is how it was then:";
        writeln!(to, "no server has answered for {silent}, {what}")
    }
}
