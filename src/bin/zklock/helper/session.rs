//! The session of a `zklock run` that was killed, which another process ends.

use std::env;
use std::ffi::OsString;
use std::io;
use std::iter;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use crate::announce::ReadyFile;
use crate::args::{Args, Task};
use crate::child::NODE;
use crate::connect;

/// How long to try to end it.
const LIMIT: Duration = Duration::from_secs(5);

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
        if let Ok(folder) = self.folder {
            args.make_absolute(&folder);
        }
        if let Task::Standby(standby) = &args.task {
            let node = env::var(NODE).unwrap_or_default();
            let file = standby.ready_file.as_deref();
            file.inspect(|file| ReadyFile::remove_after_kill(file, &node));
        }
        // Another process may be waiting for what comes out of a pipe.
        if args.auth_file.as_ref().is_some_and(|file| !file.is_file()) {
            return;
        }
        let Ok(builder) = connect::builder(&args) else {
            return;
        };
        if let Ok(client) = builder.resume(key).connect_timeout(LIMIT).connect() {
            drop(client.close());
        }
    }
}
