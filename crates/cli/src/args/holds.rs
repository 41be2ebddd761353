//! The arguments of the commands that keep a lock without a process.

use std::time::{Duration, SystemTime};

use crate::point_in_time::future;
use crate::values::{absolute, reason, status, time, time_of_a_hold};

#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("end").required(true)))]
pub(crate) struct Hold {
    /// The lock.
    #[arg(value_parser = absolute)]
    pub(crate) path: String,

    /// How long to hold it: 2h, 90m, 3600.
    #[arg(long = "for", value_name = "TIME", value_parser = time_of_a_hold, group = "end")]
    pub(crate) lasting: Option<Duration>,

    /// Until when to hold it: 2026-11-26T06:00:00Z, or with another offset, such as +01:00.
    #[arg(long, value_name = "WHEN", value_parser = future, group = "end")]
    pub(crate) until: Option<SystemTime>,

    /// Why: those who wait are told, and who lists the lock.
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    pub(crate) reason: String,

    /// Holds it as the writer of a read-write lock, for a path where another library has readers and
    /// writers. Without it, those who come later do not wait for the hold.
    #[arg(long)]
    pub(crate) write: bool,

    /// Does not wait for the lock.
    #[arg(short, long, aliases = ["nb", "nonblocking"], conflicts_with = "wait")]
    pub(crate) nonblock: bool,

    /// Waits at most this long for the lock.
    #[arg(short, long, alias = "timeout", value_name = "TIME", value_parser = time)]
    pub(crate) wait: Option<Duration>,

    /// The exit status if the lock is taken.
    #[arg(short = 'E', long, value_name = "N", default_value_t = 1, value_parser = status)]
    pub(crate) conflict_exit_code: u8,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Pause {
    /// The lock, or the job.
    #[arg(value_parser = absolute)]
    pub(crate) path: String,

    /// How long to pause it: 2h, 90m, 3600; without it or --until, until it is resumed.
    #[arg(long = "for", value_name = "TIME", value_parser = time_of_a_hold)]
    pub(crate) lasting: Option<Duration>,

    /// Until when to pause it: 2026-11-26T06:00:00Z, or with another offset, such as +01:00.
    #[arg(long, value_name = "WHEN", value_parser = future, conflicts_with = "lasting")]
    pub(crate) until: Option<SystemTime>,

    /// Why: those who wait are told, and who lists the lock.
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    pub(crate) reason: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Release {
    /// The lock.
    #[arg(value_parser = absolute)]
    pub(crate) path: String,
}
