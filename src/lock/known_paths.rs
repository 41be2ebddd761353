//! What a client remembers of the paths that it has used, to ask less the next time.
//!
//! None of it is trusted: the answers of the servers show when it is no longer so. It is remembered by the path, so
//! that code which makes its locks anew for each call asks no more than code that keeps them.

use std::collections::HashMap;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};

use crate::local::owning_process::Process;
use crate::system::sync::Mutex;
use zklock_core::skip_listing::LastGrant;

/// With so few paths, none is forgotten.
const FEW: usize = 64;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct KnownPaths {
    table: Mutex<Table>,
    /// In a forked child, a thread that does not exist there may have the mutex locked.
    process: Process,
}

#[derive(Debug, Default)]
struct Table {
    paths: HashMap<Arc<str>, Arc<Known>>,
    /// With so many paths, it is time to forget some.
    full: usize,
}

/// What is remembered of a path.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// The last grant of a mutex, which only the thread that has the turn reads and writes.
    pub(crate) last: Mutex<Option<LastGrant>>,
    /// Whether the directory was found to keep the marks of holders, or not to be there.
    pub(crate) keeps_marks: AtomicBool,
    /// The number of permits on which all clients agreed; 0 if none is known.
    pub(crate) permits: AtomicU32,
}

impl UnwindSafe for Known {}
impl RefUnwindSafe for Known {}
impl UnwindSafe for KnownPaths {}
impl RefUnwindSafe for KnownPaths {}

impl KnownPaths {
    /// Returns what is remembered of a path, for a lock there.
    pub(crate) fn of(&self, path: &Arc<str>) -> Arc<Known> {
        if self.process.is_another() {
            return Arc::default();
        }
        let mut table = self.table.lock();
        if let Some(known) = table.paths.get(path) {
            return known.clone();
        }
        // The table forgets what no lock uses, and then takes as much again.
        if table.full <= table.paths.len() {
            table.paths.retain(|_, known| 1 < Arc::strong_count(known));
            table.full = FEW.max(2 * table.paths.len());
        }
        table.paths.entry(path.clone()).or_default().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_locks_use_is_remembered_and_of_the_rest_no_more_than_a_few() {
        let known = KnownPaths::default();
        let path = |at: usize| -> Arc<str> { format!("/{at}").into() };
        let kept: Vec<_> = (0..100).map(|at| known.of(&path(at))).collect();
        for at in 100..10_000 {
            let new = known.of(&path(at));
            assert!(Arc::ptr_eq(&new, &known.of(&path(at))), "{at}");
            let most = 2 * (kept.len() + FEW);
            assert!(known.table.lock().paths.len() < most, "{at}");
        }
        let is_kept = |(at, kept)| Arc::ptr_eq(kept, &known.of(&path(at)));
        assert!(kept.iter().enumerate().all(is_kept));
    }

    #[test]
    fn few_calls_go_through_the_table_however_many_locks_there_are() {
        for locks in (100..250).chain([1_000, 1_791, 1_792]) {
            let known = KnownPaths::default();
            let path = |at: usize| -> Arc<str> { format!("/{at}").into() };
            let kept: Vec<_> = (0..locks).map(|at| known.of(&path(at))).collect();
            let mut forgets = 0;
            for at in locks..5 * locks {
                let before = known.table.lock().paths.len();
                known.of(&path(at));
                forgets += usize::from(known.table.lock().paths.len() <= before);
            }
            assert!(forgets <= 5, "{forgets} times with {}", kept.len());
        }
    }
}
