//! The arguments of the commands that run nothing: they show others, or ask something of them.

use std::time::Duration;

use crate::values::{absolute, absolute_or_root, number, slot, time, token};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit status: 0 if it was done; 1 if it was never done; 2 with --older-than, if that is too\nlong ago or as far in the future; otherwise that of zklock --help."
)]
pub(crate) struct Last {
    /// The job.
    #[arg(value_parser = absolute)]
    pub(crate) path: String,

    /// Tells the last N runs, the newest first, of those that zklock once --keep has kept.
    #[arg(short = 'n', long = "runs", value_name = "N", value_parser = number)]
    pub(crate) runs: Option<u32>,

    /// Writes JSON.
    #[arg(long)]
    pub(crate) json: bool,

    /// Ends with 2 if the last finished run ended longer ago, or as far in the future: 26h, 90m, 3600.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) older_than: Option<Duration>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Check {
    /// The lock.
    #[arg(value_parser = absolute)]
    pub(crate) path: String,

    /// The token, as a command has it in ZKLOCK_TOKEN.
    #[arg(value_parser = token)]
    pub(crate) token: i64,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Forget {
    /// The job.
    #[arg(value_parser = absolute)]
    pub(crate) path: String,

    /// Gives the job an empty record if its own was replaced or cannot be read, while nobody uses the
    /// path. Other data stays as it is.
    #[arg(long)]
    pub(crate) repair: bool,

    /// Forgets only that this slot is done, and its attempts: it is run again, also if a higher one
    /// is done.
    #[arg(long, value_name = "TEXT", value_parser = slot, conflicts_with = "repair")]
    pub(crate) slot: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct List {
    /// The lock; with -r the path below which all locks are listed, / without one.
    #[arg(value_parser = absolute_or_root, required_unless_present = "recursive")]
    pub(crate) path: Option<String>,

    /// Lists all locks below the path that somebody holds or waits for.
    #[arg(short, long)]
    pub(crate) recursive: bool,

    /// With -r: only locks that somebody holds.
    #[arg(long, requires = "recursive")]
    pub(crate) held: bool,

    /// With -r: only locks that somebody waits for.
    #[arg(long, requires = "recursive")]
    pub(crate) waiting: bool,

    /// With -r: only locks whose holder or first waiter has been there for longer.
    #[arg(long, requires = "recursive", value_name = "TIME", value_parser = time)]
    pub(crate) older_than: Option<Duration>,

    /// With -r: only locks with a contender of this host.
    #[arg(long, requires = "recursive", value_name = "HOST")]
    pub(crate) host: Option<String>,

    /// Writes JSON; with --watch, one line for each change.
    #[arg(long)]
    pub(crate) json: bool,

    /// Lists again whenever something changes.
    #[arg(long)]
    pub(crate) watch: bool,
}

impl List {
    /// The lock, or the path below which all are listed.
    pub(crate) fn path(&self) -> &str {
        self.path.as_deref().unwrap_or("/")
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Why {
    /// The lock.
    #[arg(value_parser = absolute)]
    pub(crate) path: String,

    /// Looks for the locks that holders wait for below this path.
    #[arg(long, value_name = "PATH", value_parser = absolute_or_root, default_value = "/")]
    pub(crate) root: String,

    /// Writes JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Doctor {
    /// A lock to look at as well.
    #[arg(value_parser = absolute)]
    pub(crate) path: Option<String>,

    /// Warns of holders that have been there for longer.
    #[arg(long, requires = "path", value_name = "TIME", value_parser = time)]
    pub(crate) older_than: Option<Duration>,

    /// Writes JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Revoke {
    /// The lock.
    #[arg(value_parser = absolute)]
    pub(crate) path: String,

    /// Asks only this contender, holder or not: a name as `list` shows it, or a full path.
    #[arg(long, value_name = "NODE")]
    pub(crate) node: Option<String>,

    /// Deletes the nodes of those who have not let go after this long. A holder that is cut
    /// off hears of it late: its command may go on for half a session timeout.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) evict_after: Option<Duration>,
}
