//! The arguments of `run`.

use std::time::Duration;

use super::guarded::Guarded;
use crate::values::{absolute, number, status, time};

#[derive(Debug, Default, clap::Args)]
pub(crate) struct Run {
    /// Shares the lock with other holders that share it.
    #[arg(short, long, conflicts_with = "permits")]
    pub(crate) shared: bool,

    /// As without it: nobody else has the lock. For those who come from flock(1).
    #[arg(short = 'x', short_alias = 'e', long, hide = true, conflicts_with_all = ["shared", "permits"])]
    pub(crate) exclusive: bool,

    /// Has the lock as the writer of a read-write lock, for a path where another library has readers
    /// and writers. Without it, those who come while the command runs do not wait for it.
    #[arg(long, conflicts_with_all = ["shared", "permits"])]
    pub(crate) write: bool,

    /// Does not wait for the lock.
    #[arg(short, long, aliases = ["nb", "nonblocking"], conflicts_with = "wait")]
    pub(crate) nonblock: bool,

    /// Waits at most this long for the lock.
    #[arg(short, long, alias = "timeout", value_name = "TIME", value_parser = time, allow_negative_numbers = true)]
    pub(crate) wait: Option<Duration>,

    /// The exit status if the lock is taken.
    #[arg(short = 'E', long, value_name = "N", default_value_t = 1, value_parser = status)]
    pub(crate) conflict_exit_code: u8,

    /// Lets this many run at a time. Another number takes effect when no permit is out.
    #[arg(long, value_name = "N", value_parser = number)]
    pub(crate) permits: Option<u32>,

    /// Keeps the lock for at least this long, for commands that end before the clock of
    /// another machine reaches their start time.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) hold_at_least: Option<Duration>,

    /// Needs this lock too, and shares it with other holders that share it; may be given several
    /// times.
    #[arg(long, value_name = "PATH", value_parser = absolute, conflicts_with = "permits")]
    pub(crate) read: Vec<String>,

    /// The lock, an absolute path such as /locks/nightly.
    #[arg(value_parser = absolute)]
    pub(crate) path: String,

    /// Other locks, which are acquired with it: all or none.
    #[arg(value_parser = absolute, value_name = "PATH")]
    pub(crate) others: Vec<String>,

    #[command(flatten)]
    pub(crate) what: Guarded,
}

impl Run {
    /// Whether it does not wait for the lock.
    pub(crate) fn tries_once(&self) -> bool {
        self.nonblock || self.wait.is_some_and(|wait| wait.is_zero())
    }
}
