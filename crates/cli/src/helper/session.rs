//! The session of a killed `zklock run`, which another process ends.

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::iter;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use rustix::process::{Signal, getpriority_process, kill_process_group};
use zklock::ClientBuilder;

use crate::announce::ReadyFile;
use crate::announce::hook::KILL_LIMIT;
use crate::args::{Args, Protection, Task};
use crate::child::NODE;
use crate::connect;
use crate::descendants::Descendants;
use crate::helper;
use crate::helper::wire::send_files;
use crate::metrics::note_kill;
use crate::signals;
use crate::wanted::Wanted;

/// How long to try to end the session.
const LIMIT: Duration = Duration::from_secs(5);

/// How often to look whether a hook has ended.
const POLL: Duration = Duration::from_millis(5);

/// See the module's documentation.
pub(super) struct Session {
    key: OsString,
    /// The arguments of that process, and its folder.
    args: Vec<OsString>,
    folder: PathBuf,
    /// The priority that a hook is to have.
    priority: Option<i32>,
}

impl Session {
    pub(super) fn new(key: OsString, args: Vec<OsString>, folder: PathBuf) -> Self {
        Self {
            key,
            args,
            folder,
            priority: getpriority_process(None).ok(),
        }
    }

    /// Ends the session, so that the next holder need not wait for the session timeout. If no
    /// server answers, the session ends by itself.
    pub(super) fn end(self, descendants: &mut Descendants) {
        self.priority.inspect(|one| helper::set_priority(*one));
        let args = iter::once("zklock".into()).chain(self.args);
        let (Ok(mut args), Some(key)) = (Args::try_parse_from(args), self.key.to_str()) else {
            return;
        };
        let are_files = args.make_absolute(&self.folder);
        match &args.task {
            Task::Run(run) => drop(Wanted::by(run).map(|all| note_kill(&run.what, &all.name()))),
            Task::Once(once) => note_kill(&once.what, &once.path),
            Task::Standby(standby) => {
                note_kill(&standby.what, &standby.path);
                let node = env::var(NODE).unwrap_or_default();
                let file = standby.ready_file.as_deref();
                file.inspect(|file| ReadyFile::remove_after_kill(file, &node));
                let timeout = args.session_timeout();
                // The session ends by itself after its timeout.
                let grace = standby.what.grace.unwrap_or(timeout / 16).min(timeout / 2);
                let hook = standby.on_passive.as_deref();
                hook.inspect(|hook| drop(run_hook(hook, &self.folder, grace, descendants)));
            }
            _ => {}
        }
        // Another process may be waiting for the content of a pipe.
        if !are_files {
            return;
        }
        if let Some(builder) = builder(&mut args) {
            // If the chroot is gone, there is nothing to end.
            let builder = builder.create_chroot(false);
            let _ = builder.connect_timeout(LIMIT).end_session(key);
        }
    }
}

/// Returns the builder of a client that ends a session. Only servers that ask for a login need credentials for that, so
/// those in a pipe, or in a file that has changed since or is gone, are left out.
fn builder(args: &mut Args) -> Option<ClientBuilder> {
    let is_there = args.auth_file.as_deref().is_none_or(Path::is_file);
    let known = is_there.then(|| connect::builder(args).ok()).flatten();
    known.or_else(|| {
        (args.auth_file, args.acl) = (None, Protection::Open);
        connect::builder(args).ok()
    })
}

/// Runs the last hook of a killed standby; kills it with all processes that it has started if it
/// takes longer.
fn run_hook(
    hook: &str,
    folder: &Path,
    grace: Duration,
    descendants: &mut Descendants,
) -> io::Result<()> {
    let until = Instant::now() + grace;
    env::set_current_dir(folder)?;
    // This process blocks all signals, and the hook is not to inherit that.
    let words = [signals::ALL, "sh", "-c", hook].map(OsString::from);
    let (hook, gate) = helper::exec(words.into_iter())?;
    send_files(&gate, &[File::open("/dev/null")?.as_fd()])?;
    while descendants.reap().1 && Instant::now() < until + KILL_LIMIT {
        if until <= Instant::now() {
            descendants.kill();
            if !cfg!(target_os = "linux") {
                let _ = kill_process_group(hook, Signal::KILL);
            }
        }
        thread::sleep(POLL);
    }
    Ok(())
}
