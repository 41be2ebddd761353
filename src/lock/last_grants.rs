//! The last grants of a client's mutexes, by which the next call may do without a listing.

use std::collections::HashMap;
use std::panic::{RefUnwindSafe, UnwindSafe};

use crate::system::sync::Mutex;
use zklock_core::skip_listing::LastGrant;

/// How many paths are remembered. One that is forgotten costs a listing.
const MOST: usize = 256;

/// The last grant at each path. Only the thread that has the turn there takes and notes it.
#[derive(Debug, Default)]
pub(crate) struct LastGrants {
    grants: Mutex<HashMap<String, Option<LastGrant>>>,
}

impl UnwindSafe for LastGrants {}
impl RefUnwindSafe for LastGrants {}

impl LastGrants {
    /// Takes the last grant at a path: whatever comes now, it is no longer the last one.
    pub(super) fn take(&self, path: &str) -> Option<LastGrant> {
        self.grants.lock().get_mut(path)?.take()
    }

    /// Notes a grant at a path.
    pub(super) fn note(&self, path: &str, grant: Option<LastGrant>) {
        let mut grants = self.grants.lock();
        match grants.get_mut(path) {
            Some(last) => *last = grant,
            None => {
                if MOST <= grants.len() {
                    grants.clear();
                }
                grants.insert(path.to_owned(), grant);
            }
        }
    }
}
