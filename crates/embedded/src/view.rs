//! The data of one server: the tree, its clients' watches, and the last change.
//!
//! Values in, values out. Reads are in `reads`, writes are here. A change comes with its time,
//! and the caller sends its events.

use std::collections::HashMap;

use super::change::TreeChange;
use super::node::ChangeTime;
use super::requester::Result;
use super::tree::{Author, Tree};
use super::watches::{Notice, ServerWatches};
use super::write::Write;
use zklock_jute::Reply;

#[derive(Debug)]
pub struct ServerView {
    pub tree: Tree,
    /// The watches of the clients that see this.
    pub watches: ServerWatches,
    /// The zxid of the last change.
    pub zxid: i64,
    /// The initial counters of directories that are not created yet.
    counters: HashMap<String, i32>,
}

impl ServerView {
    pub fn new(zxid: i64, counters: HashMap<String, i32>) -> Self {
        Self {
            tree: Tree::new(),
            watches: ServerWatches::default(),
            zxid,
            counters,
        }
    }

    /// Creates a view of the past, which does not change.
    pub(super) fn of_the_past(tree: Tree, zxid: i64, watches: ServerWatches) -> Self {
        Self {
            tree,
            watches,
            zxid,
            counters: HashMap::new(),
        }
    }

    /// Carries out a client's write. Returns its answer and the changes.
    pub fn write(
        &mut self,
        write: Write,
        by: Author<'_>,
        at: ChangeTime,
    ) -> (Result<Reply>, Vec<TreeChange>) {
        let (answer, changes) = match write {
            Write::One(op) => match self.tree.apply(op, by, at) {
                Ok((reply, change)) => (Ok(reply), Vec::from_iter(change)),
                Err(code) => (Err(code), Vec::new()),
            },
            Write::Multi(ops) => {
                let (results, changes) = self.tree.multi(ops, by, at);
                (Ok(Reply::Multi(results)), changes)
            }
            Write::SetAcl { path, acl, version } => {
                let stat = self.tree.set_acl(&path, &acl, version, by.who);
                (stat.map(Reply::Stat), Vec::new())
            }
            Write::Refused(code) => (Err(code), Vec::new()),
        };
        changes.iter().for_each(|change| self.start_counter(change));
        (answer, changes)
    }

    /// Returns the events of a change, in their order.
    pub fn fire(&mut self, change: &TreeChange) -> Vec<Notice> {
        self.watches.fire(change)
    }

    fn start_counter(&mut self, change: &TreeChange) {
        if let TreeChange::Created { path, .. } = change {
            if let Some(counter) = self.counters.remove(path) {
                self.tree.set_counter(path, counter);
            }
        }
    }
}
