//! The arguments of `standby`.

use std::path::PathBuf;

use clap::ValueEnum;

use super::guarded::Guarded;
use crate::values::absolute;

#[derive(Debug, clap::Args)]
pub(crate) struct Standby {
    /// When to stand in line again after the command has ended by itself.
    #[arg(long, value_name = "WHEN", default_value = "never")]
    pub(crate) restart: Restart,

    /// Makes this file while the command runs, and removes it before another machine can be active;
    /// a file of that name that is there before is removed.
    #[arg(long, value_name = "FILE", conflicts_with = "status")]
    pub(crate) ready_file: Option<PathBuf>,

    /// Runs this line in a shell when this machine becomes active, before the command begins; if it
    /// fails, the lock is given up.
    #[arg(long, value_name = "CMD", conflicts_with = "status")]
    pub(crate) on_active: Option<String>,

    /// Runs this line in a shell when the command has ended, before another machine can be active;
    /// it is killed after the time that --grace gives the command.
    #[arg(long, value_name = "CMD", conflicts_with = "status")]
    pub(crate) on_passive: Option<String>,

    /// Writes what happens to this file or named pipe, one JSON object a line.
    #[arg(long, value_name = "FILE", conflicts_with = "status")]
    pub(crate) events: Option<PathBuf>,

    /// Runs nothing: tells by the exit status whether this machine is the active one. Who has the
    /// lock by another command, such as run, is taken for active.
    #[arg(long)]
    pub(crate) status: bool,

    /// The lock, an absolute path such as /services/importer.
    #[arg(value_parser = absolute)]
    pub(crate) path: String,

    #[command(flatten)]
    pub(crate) what: Guarded,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Restart {
    /// When it has failed.
    OnFailure,
    Always,
    /// Ends with the command's status.
    Never,
}
