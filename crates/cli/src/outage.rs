//! Tracks since when no server has answered, so that nothing old is shown as if it were new.

use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use zklock::Client;

use crate::table::{CLEAR, brief};

/// When a server last answered, and how long ago that was at the last look, if none answers now.
#[derive(Debug, Default)]
pub(crate) struct Outage(Option<(SystemTime, Duration)>);

impl Outage {
    /// Checks whether a server answers.
    pub(crate) fn look(&mut self, client: &Client) {
        self.0 = client.silent_for().and_then(|silent| match self.0 {
            Some((since, before)) if before <= silent => Some((since, silent)),
            // A shorter silence is a new one.
            _ => Some((SystemTime::now().checked_sub(silent)?, silent)),
        });
    }

    /// Returns since when no server has answered, as of the last look.
    pub(crate) fn since(&self) -> Option<SystemTime> {
        self.0.map(|(since, _)| since)
    }

    /// Writes the lines above a table, on an empty `screen` if the table is to be updated.
    pub(crate) fn write_above(&self, to: &mut impl Write, screen: bool) -> io::Result<()> {
        if screen {
            write!(to, "{CLEAR}")?;
        }
        let Some((_, silent)) = self.0 else {
            return Ok(());
        };
        let silent = brief(silent);
        let what = "and this is how it was then:";
        writeln!(to, "no server has answered for {silent}, {what}")
    }
}
