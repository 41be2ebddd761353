//! One run, as the journal records it.

use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};

use serde_json::{Map, Value};

/// One run of a job.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct PastRun {
    /// The slot of the run; empty if the job runs at intervals.
    pub slot: String,
    /// The number of the attempt at its slot, counted from 1.
    pub attempt: u32,
    /// The fencing token of the run's lock.
    pub token: i64,
    /// When the run began, in milliseconds, by the servers' clock.
    pub started: Option<i64>,
    /// When the run ended, in milliseconds, by the servers' clock.
    pub ended: Option<i64>,
    /// How the run ended.
    pub outcome: Outcome,
    /// The client that ran the job, as written in a contender's node.
    pub owner: String,
    /// The message that the run reported.
    pub message: Option<String>,
}

/// How a run of a job ended.
///
/// # Example
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zklock::embedded::Server::start()?;
/// # let client = zklock::Client::connect(server.hosts())?;
/// use zklock::Outcome;
///
/// let job = client.job("/jobs/nightly-report")?;
/// job.once("2026-11-22", |_run| Err::<(), _>("no disk"))?;
/// let failure = job.last_failure()?.expect("it failed");
/// assert_eq!(failure.outcome(), Outcome::Failed);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Outcome {
    /// The run finished, and its lock was held to the end.
    Done,
    /// The run returned an error, or panicked.
    Failed,
    /// The run has not ended yet, or its process died or lost the lock: nobody recorded how it ended.
    Unknown,
}

impl PastRun {
    pub(super) fn parse(value: &Value, outcome: Outcome) -> Option<Self> {
        let value = value.as_object()?;
        let text = |key: &str| Some(value.get(key)?.as_str()?.to_owned());
        let number = |key: &str| value.get(key).and_then(Value::as_i64);
        // The end of a run that failed is unknown if nobody recorded that it ended.
        let unknown = value.get("unknown").and_then(Value::as_bool) == Some(true);
        Some(Self {
            slot: text("slot")?,
            attempt: u32::try_from(number("attempt")?).ok()?,
            token: number("token")?,
            started: number("started_ms"),
            ended: number("ended_ms"),
            outcome: if unknown { Outcome::Unknown } else { outcome },
            owner: value
                .get("owner")
                .map_or_else(String::new, Value::to_string),
            message: text("message"),
        })
    }

    pub(super) fn value(&self) -> Value {
        let mut value = Map::new();
        let mut put = |key: &str, it: Value| value.insert(key.to_owned(), it);
        put("slot", self.slot.as_str().into());
        put("attempt", self.attempt.into());
        put("token", self.token.into());
        if let Some(started) = self.started {
            put("started_ms", started.into());
        }
        if let Some(ended) = self.ended {
            put("ended_ms", ended.into());
        }
        if self.outcome == Outcome::Unknown {
            put("unknown", true.into());
        }
        // The owner is written back as it was read.
        if let Ok(owner) = serde_json::from_str(&self.owner) {
            put("owner", owner);
        }
        if let Some(message) = &self.message {
            put("message", message.as_str().into());
        }
        Value::Object(value)
    }
}
