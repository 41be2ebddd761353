//! What a deletion also writes.
//!
//! One transaction deletes the node and writes, so a write that succeeds was made by whoever held the lock. If the
//! client may not delete the node, a transaction that checks the node writes instead: the node is still there, and so
//! nobody else has held the lock. The deletion alone follows.

use alloc::string::String;
use alloc::vec::Vec;
use core::iter;

use super::deletion::{Deletion, Turn};
use crate::path::node_in;
use zklock_jute::Request;

impl Deletion {
    /// Writes this into the directory, over this version, together with the deletion.
    #[must_use]
    pub fn closing(self, with: Option<(&[u8], i32)>) -> Self {
        let write = with.map(|(data, version)| writes(&self.dir, data, version));
        self.writing(write.into_iter().collect())
    }

    /// Writes this together with the deletion.
    #[must_use]
    pub fn writing(mut self, ops: Vec<Request>) -> Self {
        self.closing = ops;
        self
    }

    /// Returns whether something is to be written with the deletion.
    pub fn writes(&self) -> bool {
        !self.closing.is_empty()
    }

    /// Returns whether something may have been written with the deletion.
    pub fn may_have_written(&self) -> bool {
        self.writes() && (self.retried || self.turn == Turn::Asked)
    }

    /// Makes the deletion write nothing.
    pub fn writes_nothing(&mut self) {
        self.closing.clear();
    }

    /// Returns what the next request does, if it deletes a node or writes because the node stays.
    pub fn ops(&self) -> Option<Vec<Request>> {
        let first = match self.stays {
            true if self.writes() => Request::check(self.node()?),
            _ => Request::delete(self.node()?),
        };
        Some(iter::once(first).chain(self.closing.clone()).collect())
    }

    /// Returns the node that the next request is about.
    fn node(&self) -> Option<String> {
        Some(node_in(&self.dir, self.target()?))
    }
}

/// Returns the request that deletes a node and writes into its directory over this version, or does neither.
pub fn close(dir: &str, name: &str, data: &[u8], version: i32) -> Request {
    let delete = Request::delete(format!("{dir}/{name}"));
    Request::Multi(vec![delete, writes(dir, data, version)])
}

fn writes(dir: &str, data: &[u8], version: i32) -> Request {
    Request::set(dir, data.to_vec(), version)
}
