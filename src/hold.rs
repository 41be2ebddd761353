//! A hold: a contender that belongs to no session, and so outlives its process.
//!
//! Its node is persistent, and its name shows that it is a hold ([`NodeName::is_hold`]). The data
//! is a card like those of other contenders, with the reason as its note. The card also says how
//! long the hold lasts: until a time, or for some time after the data was written. Both are by the
//! servers' clock.
//!
//! [`NodeName::is_hold`]: zklock_core::name::NodeName::is_hold

use std::fmt;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::owner::{Card, shorten};
use crate::system::process;
use crate::time::utc::written;
use zklock_core::hold;
use zklock_jute::Stat;

/// What keeps a lock without a session: a deployment freeze, a pause.
///
/// Returned by [`Contender::hold`](crate::Contender::hold); `zklock hold` and `zklock pause` create
/// holds. A hold stands in the queue as any contender does, so other libraries wait for it too. It
/// ends when somebody releases it. When its time is up, a waiter of this library removes it, if
/// there is one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Hold {
    reason: String,
    by: Option<String>,
    host: Option<String>,
    ends: Ends,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Ends {
    Never,
    /// This long after the data was written.
    After(Duration),
    At(SystemTime),
}

impl Hold {
    /// Creates a hold without an end.
    #[doc(hidden)]
    pub fn new(reason: impl Into<String>, by: Option<&str>) -> Self {
        Self {
            reason: reason.into(),
            by: by.map(shorten),
            host: None,
            ends: Ends::Never,
        }
    }

    /// Ends the hold this long after it was written.
    #[doc(hidden)]
    #[must_use]
    pub fn lasting(mut self, time: Duration) -> Self {
        self.ends = Ends::After(time);
        self
    }

    /// Ends the hold at this time.
    #[doc(hidden)]
    #[must_use]
    pub fn ending_at(mut self, time: SystemTime) -> Self {
        self.ends = Ends::At(time);
        self
    }

    /// Returns the reason for the hold, in the words of its creator.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Returns the user who created the hold, if that is known.
    pub fn by(&self) -> Option<&str> {
        self.by.as_deref()
    }

    /// Returns when the hold ends, by the servers' clock; `None` if it lasts until it is released.
    pub fn until(&self) -> Option<SystemTime> {
        match self.ends {
            Ends::At(time) => Some(time),
            Ends::Never | Ends::After(_) => None,
        }
    }

    /// Returns whether the hold is over by this machine's clock, which decides nothing.
    #[doc(hidden)]
    pub fn seems_over(&self) -> bool {
        let now = SystemTime::UNIX_EPOCH.checked_add(process::since_epoch());
        self.until().is_some_and(|until| Some(until) <= now)
    }

    /// Reads the hold in a node's data; data that somebody has replaced gives the defaults.
    pub(crate) fn read(data: &[u8], stat: &Stat) -> Self {
        let card = serde_json::from_slice(data).unwrap_or(Value::Null);
        let (note, on_hold) = (&card["note"], &card["hold"]);
        let since = hold::end_in(on_hold, stat);
        let until = since.and_then(|since| SystemTime::UNIX_EPOCH.checked_add(since));
        Self {
            reason: note.as_str().map(shorten).unwrap_or_default(),
            by: on_hold["by"].as_str().map(shorten),
            host: card["host"].as_str().map(shorten),
            ends: until.map_or(Ends::Never, Ends::At),
        }
    }

    /// Returns the data of the hold's node, with the token of the node that it replaces.
    pub(crate) fn written(&self, card: &Card, token: Option<i64>) -> Vec<u8> {
        card.of_hold(&self.reason, self.data(), token)
    }

    fn data(&self) -> Value {
        let mut hold = json!({});
        if let Some(by) = &self.by {
            hold["by"] = by.as_str().into();
        }
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        match self.ends {
            Ends::Never => {}
            Ends::After(time) => hold["for_ms"] = millis(time).into(),
            Ends::At(time) => {
                let since = time.duration_since(SystemTime::UNIX_EPOCH);
                hold["until_ms"] = millis(since.unwrap_or_default()).into();
            }
        }
        hold
    }
}

/// Formats the hold as `on hold by ann on db1 until 2026-11-26T03:00:00Z: deploy freeze`, with
/// `which is over` after that time by this machine's clock.
impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("on hold")?;
        if let Some(by) = &self.by {
            write!(f, " by {}", plain(by))?;
        }
        if let Some(host) = &self.host {
            write!(f, " on {}", plain(host))?;
        }
        match self.until() {
            Some(until) if self.seems_over() => {
                write!(f, " until {}, which is over", written(until))?;
            }
            Some(until) => write!(f, " until {}", written(until))?,
            None => f.write_str(" until it is released")?,
        }
        match self.reason.as_str() {
            "" => Ok(()),
            reason => write!(f, ": {}", plain(reason)),
        }
    }
}

/// Replaces control characters: the data may come from another client, and go to a terminal.
fn plain(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}
