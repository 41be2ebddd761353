//! What a client remembers of the paths that it has used, to ask less the next time.
//!
//! None of it is trusted: the answers of the servers show when it is no longer so.

use std::collections::HashMap;
use std::panic::{RefUnwindSafe, UnwindSafe};

use crate::local::owning_process::Process;
use crate::system::sync::Mutex;
use zklock_core::skip_listing::LastGrant;

/// How many paths are remembered. The first call at one that is forgotten asks as at a new one.
const MOST: usize = 256;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct KnownPaths {
    paths: Mutex<HashMap<String, Known>>,
    /// In a forked child, a thread that does not exist there may have the mutex locked.
    process: Process,
}

/// What is remembered of a path.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// The last grant of a mutex.
    last: Option<LastGrant>,
    /// Whether the directory was found to keep the marks of holders, or not to be there.
    pub(crate) keeps_marks: bool,
    /// The number of permits on which all clients agreed.
    pub(crate) permits: Option<u32>,
}

impl UnwindSafe for KnownPaths {}
impl RefUnwindSafe for KnownPaths {}

impl KnownPaths {
    /// Reads or changes what is remembered of a path.
    pub(crate) fn of<R>(&self, path: &str, change: impl FnOnce(&mut Known) -> R) -> R {
        match self.process.is_another() {
            true => change(&mut Known::default()),
            false => self.find(path, change),
        }
    }

    /// Takes the last grant of the mutex at a path; for the thread that has the turn there, and so is in no
    /// forked child.
    pub(super) fn take_last(&self, path: &str) -> Option<LastGrant> {
        self.find(path, |known| known.last.take())
    }

    /// Notes the last grant of the mutex at a path; for the thread that has the turn there.
    pub(super) fn note_last(&self, path: &str, last: Option<LastGrant>) {
        self.find(path, |known| known.last = last);
    }

    fn find<R>(&self, path: &str, change: impl FnOnce(&mut Known) -> R) -> R {
        let mut paths = self.paths.lock();
        if let Some(known) = paths.get_mut(path) {
            return change(known);
        }
        if MOST <= paths.len() {
            paths.clear();
        }
        change(paths.entry(path.to_owned()).or_default())
    }
}
