//! The settings of a run, and how it ended.

use std::fmt;
use std::time::Duration;

use super::choice::Choice;

/// A run's settings.
#[derive(Debug)]
pub struct Options {
    /// The seed of everything that is left to chance.
    pub seed: u64,
    /// Decides which thread goes on.
    pub choice: Choice,
    /// Whether to keep the lines that are noted, for a story.
    pub record: bool,
}

/// The report of a run that ended normally.
#[derive(Debug)]
pub struct Report<T> {
    /// What the test's own thread returned.
    pub value: T,
    /// The state of the choice, to continue with the next run.
    pub choice: Choice,
    /// How long the run took on its own clock.
    pub elapsed: Duration,
    /// The number of points at which another thread could have gone on.
    pub steps: u64,
    /// The lines that were noted.
    pub lines: Vec<String>,
}

/// The report of a run that failed.
pub struct Failure {
    /// What went wrong.
    pub reason: String,
    /// What each thread waited for.
    pub threads: String,
    /// The lines that were noted.
    pub lines: Vec<String>,
    /// The state of the choice, to continue with the next run.
    pub choice: Choice,
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = self.lines.len().saturating_sub(400);
        writeln!(f, "{}", self.reason)?;
        for line in self.lines.iter().skip(from) {
            writeln!(f, "{line}")?;
        }
        write!(f, "{}", self.threads)
    }
}
