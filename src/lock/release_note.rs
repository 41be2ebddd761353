//! The note that an orderly release leaves for the next holder.
//!
//! Who waited for a lock knows that the node ahead is gone, and not why: its holder released it,
//! or was evicted and may not know yet. The transaction that deletes a node in order can say so in
//! the directory, which costs no further write. Only a directory without data is used, or one that
//! has such a note: marks, records and what other programs keep there stay. Without a note that
//! names the node ahead, how its holder left is unknown.

use std::time::Duration;

use super::raw_guard::{RawGuard, Replaces};
use crate::jute::{Reply, Request};
use crate::path;
use crate::recipe::release_note::released;
use crate::time::limit::Limit;
use crate::transport::{Answered, Call};

/// How long to wait for the directory's data; later, how the holder ahead left is unknown.
const LONGEST_READ: Duration = Duration::from_millis(250);

impl RawGuard {
    /// Whether the last contender that was ahead has said that it released in order; `None` if there
    /// was none.
    ///
    /// Each contender between the two had gone while that one was still there, so it was the last
    /// to hold the lock. Blocks for one read.
    pub(crate) fn follows_release(&self) -> Option<bool> {
        let ahead = self.behind()?;
        let dir = path::parent(self.node());
        let limit = Limit::after(LONGEST_READ.min(self.valid_for()));
        let answered = self
            .session()
            .caller()
            .call(&Request::get(dir), dir, &limit);
        Some(match answered {
            Ok(Reply::Data { data, .. }) => released(&data).as_deref() == Some(ahead),
            _ => false,
        })
    }

    /// Has an orderly release leave a note. Sends a read of the directory, and waits for nothing.
    pub(crate) fn note_release(&self) {
        let replaces = Replaces::default();
        let multi = self.session().transport.capabilities().multi;
        if self.nodes().len() != 1 || !multi || !self.note_over(replaces.clone()) {
            return;
        }
        let read = Call {
            request: Request::get(path::parent(self.node())),
            watch: None,
            answer: Box::new(move |answered: Answered| {
                let Ok(Reply::Data { data, stat }) = answered else {
                    return;
                };
                if data.is_empty() || released(&data).is_some() {
                    let _ = replaces.set(stat.version);
                }
            }),
        };
        self.session().transport.send(vec![read]);
    }
}
