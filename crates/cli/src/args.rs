//! The command line.

mod about_others;
mod examples;
mod guarded;
mod holds;
mod run;
mod standby;
#[cfg(feature = "tls")]
mod tls;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};

pub(crate) use self::about_others::{Check, Doctor, Forget, Last, List, Revoke, Why};
use self::examples::{
    EXAMPLES, HOLD_EXAMPLES, LIST_EXAMPLES, ONCE_EXAMPLES, PAUSE_EXAMPLES, RUN_EXAMPLES,
    STANDBY_EXAMPLES,
};
pub(crate) use self::guarded::{Guarded, OnLost};
pub(crate) use self::holds::{Hold, Pause, Release};
pub(crate) use self::run::Run;
pub(crate) use self::standby::{Restart, Standby};
#[cfg(feature = "tls")]
pub(crate) use self::tls::TlsArgs;
use crate::values::{absolute, address, digest, slot, time, time_above_zero};

/// Stands before the name of a file that has the servers.
pub(crate) const HOSTS_FILE: &str = "file:";

/// The heading of what concerns the servers.
pub(crate) const SERVERS: &str = "Options for the servers";

/// How long a session lasts without an answer unless the user says so.
const SESSION_TIMEOUT: Duration = Duration::from_secs(20);

/// flock(1) for a cluster: runs a command while it holds a lock on ZooKeeper.
#[derive(Debug, Parser)]
#[command(name = "zklock", version, after_help = EXAMPLES, max_term_width = 100)]
pub(crate) struct Args {
    /// The ZooKeeper servers: host:port,host:port/chroot; or file:FILE, which has them.
    #[arg(long, global = true, help_heading = SERVERS, env = "ZKLOCK_HOSTS", value_name = "HOSTS")]
    pub(crate) hosts: Option<String>,

    /// How long the servers keep the lock of a client that has gone silent; 20 s without it.
    #[arg(long, global = true, help_heading = SERVERS, value_name = "TIME", value_parser = time_above_zero)]
    pub(crate) session_timeout: Option<Duration>,

    /// The least that any server grants, where their limits differ or are changed under live
    /// sessions: for so long a lock is relied on while a server that was asked to go on with the
    /// session has not answered.
    #[arg(long, global = true, help_heading = SERVERS, value_name = "TIME", value_parser = time_above_zero)]
    pub(crate) granted_at_least: Option<Duration>,

    /// Accepts servers that end sessions by a clock that may be set, as ClickHouse Keeper does.
    #[arg(long, global = true, help_heading = SERVERS)]
    pub(crate) wall_clock_expiry: bool,

    /// Creates the chroot at the end of the servers, and what is above it, if it does not exist.
    #[arg(long, global = true, help_heading = SERVERS)]
    pub(crate) create_chroot: bool,

    /// Goes on with the servers that the ensemble itself names, while reconfig replaces them.
    #[arg(long, global = true, help_heading = SERVERS)]
    pub(crate) follow_reconfiguration: bool,

    /// How long to wait for a server.
    #[arg(long, global = true, help_heading = SERVERS, value_name = "TIME", value_parser = time_above_zero, default_value = "15")]
    pub(crate) connect_timeout: Duration,

    /// Reads credentials from a file, one scheme:credentials a line, such as digest:user:password
    /// or, to log in by SASL, sasl:user:password; without it, from the variable ZKLOCK_AUTH.
    #[arg(long, global = true, help_heading = SERVERS, value_name = "FILE")]
    pub(crate) auth_file: Option<PathBuf>,

    /// Refuses a file of credentials that others may read; without it, warns.
    #[arg(long, global = true, help_heading = SERVERS)]
    pub(crate) strict: bool,

    /// Logs in with Kerberos, as whom the system has tickets for: see kinit(1).
    #[cfg(feature = "sasl-gssapi")]
    #[arg(long, global = true, help_heading = SERVERS)]
    pub(crate) kerberos: bool,

    /// Logs to stderr; given twice, logs more.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,

    #[cfg(feature = "tls")]
    #[command(flatten, next_help_heading = SERVERS)]
    pub(crate) tls: TlsArgs,

    /// Who may read and change the nodes of the lock.
    #[arg(long, global = true, help_heading = SERVERS, value_name = "WHO", default_value = "open")]
    pub(crate) acl: Protection,

    /// Whose locks to exclude: those of Curator and go-zookeeper, of kazoo, of ZooKeeper's
    /// recipes page, or Curator's LeaderLatch.
    #[arg(long, global = true, help_heading = SERVERS, value_name = "NAME", default_value = "curator")]
    pub(crate) dialect: LockDialect,

    #[command(subcommand)]
    pub(crate) task: Task,
}

impl Args {
    pub(crate) fn session_timeout(&self) -> Duration {
        self.session_timeout.unwrap_or(SESSION_TIMEOUT)
    }

    /// Has the paths of files mean in another folder what they mean in this one. Returns whether what is to be read for
    /// a connection, apart from credentials, is plain files.
    pub(crate) fn make_absolute(&mut self, folder: &Path) -> bool {
        if let Some(file) = &mut self.auth_file {
            *file = folder.join(&*file);
        }
        #[cfg(feature = "tls")]
        let files = [
            &mut self.tls.tls_ca,
            &mut self.tls.tls_cert,
            &mut self.tls.tls_key,
        ];
        #[cfg(not(feature = "tls"))]
        let files: [&mut Option<PathBuf>; 0] = [];
        let mut are_files = true;
        for file in files.into_iter().flatten() {
            *file = folder.join(&*file);
            are_files &= file.is_file();
        }
        match &mut self.task {
            Task::Run(run) => run.what.make_absolute(folder),
            Task::Once(once) => once.what.make_absolute(folder),
            Task::Standby(standby) => standby.what.make_absolute(folder),
            _ => {}
        }
        if let Task::Standby(standby) = &mut self.task {
            let files = [&mut standby.ready_file, &mut standby.events];
            for file in files.into_iter().flatten() {
                *file = folder.join(&*file);
            }
        }
        let hosts = self.hosts.as_deref();
        if let Some(file) = hosts.and_then(|hosts| hosts.strip_prefix(HOSTS_FILE)) {
            let file = folder.join(file);
            are_files &= file.is_file();
            self.hosts = Some(format!("{HOSTS_FILE}{}", file.display()));
        }
        are_files
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    /// Runs a command while it holds a lock.
    #[command(after_help = RUN_EXAMPLES)]
    Run(Run),
    /// Runs a command once a slot, on whichever machine is up.
    #[command(after_help = ONCE_EXAMPLES)]
    Once(Once),
    /// Tells when a job was last run, and how it ended.
    Last(Last),
    /// Forgets what a job has done, so that its next run begins anew.
    #[command(
        after_help = "Exit status: 0 if it is forgotten or mended; 1 if there was nothing to do; 70 while somebody uses it; otherwise that of zklock --help."
    )]
    Forget(Forget),
    /// Runs a command on one machine at a time; the others stand by and take over.
    #[command(after_help = STANDBY_EXAMPLES)]
    Standby(Standby),
    /// Lists who holds a lock and who waits for it, or all locks below a path.
    #[command(after_help = LIST_EXAMPLES)]
    List(List),
    /// Tells who keeps a lock from its first waiter, through all locks that they wait for.
    #[command(
        after_help = "Exit status: 0 if somebody holds the lock; 1 if not; 2 if there is a deadlock; otherwise that of zklock --help."
    )]
    Why(Why),
    /// Looks whether the servers are well, and a lock, and says what to do. Changes no lock.
    #[command(
        after_help = "Exit status: 0 if all is well; 1 if there are warnings; 2 if there is trouble; 64 for bad usage."
    )]
    Doctor(Doctor),
    /// Asks the holders of a lock to let go: a command under zklock gets SIGTERM.
    #[command(
        after_help = "Exit status: 0 if there was a holder; 1 if not; otherwise that of zklock --help."
    )]
    Revoke(Revoke),
    /// Keeps a lock without a process, until a time or until it is released: a deployment freeze.
    #[command(after_help = HOLD_EXAMPLES)]
    Hold(Hold),
    /// Ends what `hold` has begun.
    #[command(
        after_help = "Exit status: 0 if the lock was on hold; 1 if not; otherwise that of zklock --help."
    )]
    Release(Release),
    /// Lets nobody begin who comes from now on, neither a job nor a lock.
    #[command(after_help = PAUSE_EXAMPLES)]
    Pause(Pause),
    /// Ends what `pause` has begun.
    #[command(
        after_help = "Exit status: 0 if it was paused; 1 if not; otherwise that of zklock --help."
    )]
    Resume(Release),
    /// Tells by its exit status whether a fencing token is the holder's.
    #[command(
        after_help = "Exit status: 0 if the holder with this token has the lock; 1 if not; otherwise that of zklock --help.\nThe answer is advice: the lock may go to somebody else while it is on its way."
    )]
    Check(Check),
    /// Runs a server for development: one node, in memory, gone when it ends.
    Serve(Serve),
    /// Writes completions for a shell to stdout.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Writes the paths that begin with a text, for completions.
    #[command(hide = true)]
    Paths { beginning: String },
    /// Writes the manual page to stdout.
    Man {
        /// Writes a page for each command into this folder instead.
        #[arg(long, value_name = "FOLDER")]
        folder: Option<PathBuf>,
    },
}

#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("due").required(true)))]
pub(crate) struct Once {
    /// Runs the command unless this slot or a higher one is done: a text that grows from run
    /// to run, byte by byte, such as $(date +%F).
    #[arg(long, value_name = "TEXT", group = "due", value_parser = slot)]
    pub(crate) slot: Option<String>,

    /// Runs the command unless the last finished run began less than this long ago, by the
    /// servers' clock: 20h, 90m, 3600.
    #[arg(long, value_name = "TIME", value_parser = time, group = "due")]
    pub(crate) at_most_every: Option<Duration>,

    /// Runs the command unless this very slot is done: higher ones do not count.
    #[arg(long, conflicts_with = "at_most_every")]
    pub(crate) any_order: bool,

    /// Runs the command although it is done.
    #[arg(long)]
    pub(crate) again: bool,

    /// Keeps this many runs for zklock last -n, as far as there is room; without it, as many as
    /// were kept before.
    #[arg(long, value_name = "N")]
    pub(crate) keep: Option<u32>,

    /// Begins a slot at most this often, on all machines together.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) attempts: Option<u32>,

    /// Does not wait while another machine runs it.
    #[arg(short, long, conflicts_with = "wait")]
    pub(crate) nonblock: bool,

    /// Waits at most this long while another machine runs it.
    #[arg(short, long, value_name = "TIME", value_parser = time)]
    pub(crate) wait: Option<Duration>,

    /// Says nothing if it was done before, unless a wrong clock may be why: cron sends what a
    /// command says.
    #[arg(short, long)]
    pub(crate) quiet: bool,

    /// The exit status if it was done before.
    #[arg(short = 'E', long, value_name = "N", default_value_t = 0)]
    pub(crate) done_exit_code: u8,

    /// The job, an absolute path such as /jobs/nightly.
    #[arg(value_parser = absolute)]
    pub(crate) path: String,

    #[command(flatten)]
    pub(crate) what: Guarded,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Serve {
    /// Where to listen.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:2181", value_parser = address)]
    pub(crate) listen: SocketAddr,

    /// How often the directories of unused locks are removed.
    #[arg(long, value_name = "TIME", default_value = "60", value_parser = time)]
    pub(crate) container_check: Duration,

    /// Keeps sessions and nodes in this folder, for the next start.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data: Option<PathBuf>,

    /// Allows nodes with a time to live, as ZooKeeper's extendedTypesEnabled does.
    #[arg(long)]
    pub(crate) extended_types: bool,

    /// Who may do everything, as ZooKeeper's superDigest: a user and the hash of user:password.
    #[arg(long, value_name = "USER:HASH", value_parser = digest)]
    pub(crate) super_digest: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Protection {
    /// Every client may do everything.
    Open,
    /// Only clients with the same credentials may do anything.
    Creator,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LockDialect {
    Curator,
    Kazoo,
    Recipe,
    LeaderLatch,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_do_not_contradict_each_other() {
        Args::command().debug_assert();
    }

    #[test]
    fn what_follows_the_dashes_belongs_to_the_command() {
        let line = "zklock run -n /a -E 7 -- ls -n -- -w";
        let args = Args::try_parse_from(line.split(' ')).expect("a good line");
        let Task::Run(run) = args.task else {
            panic!("{args:?}");
        };
        assert_eq!(run.what.command, ["ls", "-n", "--", "-w"]);
        assert_eq!(run.conflict_exit_code, 7);
        assert!(run.nonblock);
    }
}
