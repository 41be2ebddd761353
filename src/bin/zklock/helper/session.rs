//! The session of a `zklock run` that was killed, which another process ends.

use std::env;
use std::ffi::OsString;
use std::io;
use std::iter;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use rustix::process::{Signal, WaitOptions, getpid, kill_process, kill_process_group, waitpid};

use crate::announce::{ReadyFile, hook};
use crate::args::{Args, Task};
use crate::child::NODE;
use crate::connect;
use crate::helper::{self, EXEC};

/// How long to try to end it.
const LIMIT: Duration = Duration::from_secs(5);

/// How often to look whether a hook has ended.
const POLL: Duration = Duration::from_millis(5);

/// See the module's documentation.
pub(super) struct Session {
    key: OsString,
    args: Vec<OsString>,
    folder: io::Result<PathBuf>,
}

impl Session {
    /// Remembers the session with this key of a process with these arguments in this folder.
    pub(super) fn new(key: OsString, args: Vec<OsString>) -> Self {
        Self {
            key,
            args,
            folder: env::current_dir(),
        }
    }

    /// Ends it, so that the next holder need not wait for the session timeout. If no server
    /// answers, it ends by itself.
    pub(super) fn end(self) {
        let args = iter::once("zklock".into()).chain(self.args);
        let (Ok(mut args), Some(key)) = (Args::try_parse_from(args), self.key.to_str()) else {
            return;
        };
        let folder = self.folder.unwrap_or_else(|_| "/".into());
        args.make_absolute(&folder);
        if let Task::Standby(standby) = &args.task {
            let node = env::var(NODE).unwrap_or_default();
            let file = standby.ready_file.as_deref();
            file.inspect(|file| ReadyFile::remove_after_kill(file, &node));
            if let Some(hook) = &standby.on_passive {
                let grace = standby.what.grace.unwrap_or(args.session_timeout / 16);
                let _ = run_hook(hook, &folder, Instant::now() + grace);
            }
        }
        // Another process may be waiting for what comes out of a pipe.
        if args.auth_file.as_ref().is_some_and(|file| !file.is_file()) {
            return;
        }
        let Ok(builder) = connect::builder(&args) else {
            return;
        };
        // Where nothing is left, nothing is to be ended.
        let builder = builder.create_chroot(false);
        if let Ok(client) = builder.resume(key).connect_timeout(LIMIT).connect() {
            drop(client.close());
        }
    }
}

/// Runs the last hook of a standby that was killed, and kills it then.
fn run_hook(hook: &str, folder: &Path, until: Instant) -> io::Result<()> {
    let signals: Vec<_> = (1..32).map(|number: i32| number.to_string()).collect();
    let mut exec = helper::command(EXEC);
    exec.arg(getpid().as_raw_pid().to_string())
        .arg(signals.join(","));
    exec.args(hook::shell(hook)).stdin(Stdio::null());
    let hook = helper::spawn(exec.current_dir(folder))?.id;
    while Instant::now() < until {
        match waitpid(Some(hook), WaitOptions::NOHANG | WaitOptions::UNTRACED)? {
            // It stops itself before it begins.
            Some((_, status)) if status.stopped() => kill_process(hook, Signal::CONT)?,
            Some(_) => return Ok(()),
            None => thread::sleep(POLL),
        }
    }
    Ok(kill_process_group(hook, Signal::KILL)?)
}
