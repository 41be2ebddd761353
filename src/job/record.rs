//! The record of a run.

use std::fmt;
use std::time::SystemTime;

use crate::owner::Owner;
use crate::time::utc;
use crate::token::FencingToken;
use zklock_core::journal::{Outcome, PastRun};

/// The servers' record of one run of a [`Job`](super::Job).
///
/// # Example
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zklock::embedded::Server::start()?;
/// # let client = zklock::Client::connect(server.hosts())?;
/// let job = client.job("/jobs/nightly-report")?;
/// job.once("2026-11-22", |_run| Ok::<_, std::io::Error>(()))?;
/// let last = job.last()?.expect("it has run");
/// assert_eq!(last.slot(), "2026-11-22");
/// assert_eq!(last.owner().pid, Some(std::process::id()));
/// println!("{last}");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Eq, PartialEq)]
pub struct RunRecord {
    run: PastRun,
    owner: Owner,
    is_under_way: bool,
}

impl RunRecord {
    pub(crate) fn new(run: PastRun) -> Self {
        Self {
            owner: Owner::parse(run.owner.as_bytes()),
            run,
            is_under_way: false,
        }
    }

    pub(crate) fn under_way(run: PastRun) -> Self {
        Self {
            is_under_way: true,
            ..Self::new(run)
        }
    }

    /// Returns the slot that was run; empty for a run of
    /// [`at_most_every`](super::Job::at_most_every).
    pub fn slot(&self) -> &str {
        &self.run.slot
    }

    /// Returns the number of this attempt at the slot, from 1; 0 if it was not kept.
    pub fn attempt(&self) -> u32 {
        self.run.attempt
    }

    /// Returns when the run began, by the servers' clock; 1970 if that was not kept.
    pub fn started(&self) -> SystemTime {
        self.run.started.map_or(SystemTime::UNIX_EPOCH, utc::time)
    }

    /// Returns when the run ended, by the servers' clock; `None` if that was not recorded.
    pub fn ended(&self) -> Option<SystemTime> {
        self.run.ended.map(utc::time)
    }

    /// Returns the fencing token of the run's lock; 0 if it was not kept.
    pub fn token(&self) -> FencingToken {
        FencingToken::new(self.run.token)
    }

    /// Returns the owner that ran it, as it describes itself.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Returns how the run ended.
    pub fn outcome(&self) -> Outcome {
        self.run.outcome
    }

    /// Returns the message that the run gave to [`Run::set_message`](super::Run::set_message).
    pub fn message(&self) -> Option<&str> {
        self.run.message.as_deref()
    }
}

impl fmt::Debug for RunRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunRecord")
            .field("slot", &self.slot())
            .field("attempt", &self.attempt())
            .field(
                "started",
                &self.run.started.map(utc::time).map(utc::written),
            )
            .field("ended", &self.ended().map(utc::written))
            .field("token", &self.run.token)
            .field("owner", &self.owner)
            .field("outcome", &self.outcome())
            .field("message", &self.message())
            .finish()
    }
}

impl fmt::Display for RunRecord {
    /// Formats the record as `slot 2026-11-22, attempt 1, begun 2026-11-22T01:00:00Z, on db1 pid 7`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.slot().is_empty() {
            write!(f, "slot {}", self.slot())?;
        }
        if self.attempt() > 0 {
            let comma = if self.slot().is_empty() { "" } else { ", " };
            write!(f, "{comma}attempt {}", self.attempt())?;
        }
        if self.run.started.is_some() {
            write!(f, ", begun {}", utc::written(self.started()))?;
        }
        if let Some(owner) = self.owner.named() {
            write!(f, ", on {owner}")?;
        }
        match self.message() {
            Some(message) => write!(f, ": {}", message.replace(char::is_control, "\u{fffd}")),
            None if self.is_under_way => f.write_str(": under way"),
            None if self.outcome() == Outcome::Unknown => {
                f.write_str(": nobody wrote down how it ended")
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_the_owner_as_it_is_read_and_not_its_text() {
        let owner = br#"{"host":"db1","pid":7,"program":"report"}"#;
        let record = RunRecord::new(PastRun {
            slot: "2026-11-22".to_owned(),
            attempt: 1,
            token: 9,
            started: Some(0),
            ended: None,
            outcome: Outcome::Unknown,
            owner: String::from_utf8_lossy(owner).into_owned(),
            message: None,
        });
        let shown = format!("{record:?}");
        assert!(
            shown.contains(&format!("{:?}", Owner::parse(owner))),
            "{shown}"
        );
        assert!(!shown.contains(r#"\"host"#), "{shown}");
    }
}
