//! What all commands that run something under a lock have in common.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use clap::{ValueEnum, ValueHint};

use crate::values::{time, time_above_zero};

/// A command that needs a lock.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Guarded {
    /// What to do when the lock is in doubt: stop the command, or warn.
    #[arg(long, value_name = "WHAT", default_value = "kill")]
    pub(crate) on_lost: OnLost,

    /// How long the command has between SIGTERM and SIGKILL when the lock is in doubt;
    /// less if the lock does not last that long. Defaults to an eighth of the session
    /// timeout; more makes a broken connection count sooner.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) grace: Option<Duration>,

    /// Stops the command if it runs longer, whatever --on-lost says: SIGTERM, and SIGKILL after the
    /// grace. It counts as stopped because of its lock.
    #[arg(long, value_name = "TIME", value_parser = time_above_zero)]
    pub(crate) max_time: Option<Duration>,

    /// A text for those who wait, instead of the command's name.
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,

    /// Writes numbers about the command for node_exporter's textfile collector: to this file if its
    /// name ends with .prom, else to a file for each lock in this folder.
    #[arg(long, env = "ZKLOCK_METRICS", value_name = "PLACE", value_hint = ValueHint::AnyPath, value_parser = clap::value_parser!(OsString))]
    pub(crate) metrics: Option<OsString>,

    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

impl Guarded {
    pub(super) fn make_absolute(&mut self, folder: &Path) {
        let place = self.metrics.as_mut().filter(|place| !place.is_empty());
        if let Some(place) = place {
            *place = folder.join(&*place).into();
        }
    }
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub(crate) enum OnLost {
    #[default]
    Kill,
    Warn,
}
