//! The note of an orderly release, which the transaction that deletes the node writes into the directory.
//!
//! A contender that waited for a lock knows that the nodes ahead are gone, but not why: their holders released the
//! lock, or were evicted and may not know yet. One read of the directory, sent with the grant, tells both how those
//! ahead left and what the contender's own note may replace: a note, or nothing. A lock that is released before
//! that read is answered leaves no note, because nothing waits for the read; how its holder left is unknown then.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;

use super::ask::{GuardId, Notice};
use super::calls::Purpose;
use super::leases::Lease;
use super::link::Link;
use zklock_core::acquisition::Acquisition;
use zklock_core::answer::{Answered, Failure};
use zklock_core::path;
use zklock_core::release_note::Note;
use zklock_core::seen_ahead::SeenAhead;
use zklock_jute::{Reply, Request};

/// The directories of the locks that are held, as far as they are known.
#[derive(Debug, Default)]
pub(super) struct Orderly {
    /// The locks by their nodes, which pass from guard to guard.
    held: BTreeMap<Arc<str>, Word>,
    /// The nodes of the locks whose directories are still to be read.
    unread: Vec<Arc<str>>,
}

#[derive(Debug)]
struct Word {
    guard: GuardId,
    dir: Arc<str>,
    /// The contenders that the guard's thread has seen ahead, until it is told how they left.
    seen: SeenAhead,
    /// The version of the data that a note may replace.
    replaces: Option<i32>,
}

impl Orderly {
    /// Notes that a lock is granted.
    pub(super) fn begin(
        &mut self,
        (guard, lease): (GuardId, &Lease),
        by: &mut Acquisition,
        link: &Link,
    ) {
        if !link.settings.notes || !link.transacts() {
            return;
        }
        let word = Word {
            guard,
            dir: lease.line.path.clone(),
            seen: by.take_seen().unwrap_or_default(),
            replaces: None,
        };
        self.held.insert(lease.node.clone(), word);
        self.unread.push(lease.node.clone());
    }

    /// Notes that the lock now belongs to this guard.
    pub(super) fn hand_on(&mut self, lease: &Lease, to: GuardId) {
        if let Some(word) = self.held.get_mut(&lease.node) {
            word.guard = to;
            // The next thread has waited for nobody else.
            word.seen = SeenAhead::default();
        }
    }

    /// Notes that the lock is released, in order or not. Returns what the transaction that deletes its node
    /// also writes.
    pub(super) fn end(&mut self, lease: &Lease) -> Option<Request> {
        let word = self.held.remove(&lease.node)?;
        let data = Note::default().with(path::name(&lease.node))?;
        Some(Request::SetData {
            path: word.dir.as_ref().into(),
            data: data.into(),
            version: word.replaces?,
        })
    }

    /// Reads the directories that are not read yet.
    pub(super) fn look(&mut self, link: &mut Link) {
        if !link.is_connected() {
            return;
        }
        for node in mem::take(&mut self.unread) {
            if let Some(word) = self.held.get(&node) {
                link.send(Request::get(&word.dir), Purpose::Note(node));
            }
        }
    }

    /// Takes in the answer to the read of a directory. Returns the notice for its guard.
    pub(super) fn was_read(
        &mut self,
        node: Arc<str>,
        answered: &Answered,
    ) -> Option<(GuardId, Notice)> {
        let word = self.held.get_mut(&node)?;
        let note = match answered {
            Ok(Reply::Data { data, stat }) => {
                let is_free = Note::replaceable(data, stat.version, true).is_some();
                word.replaces = is_free.then_some(stat.version);
                Note::parse(data)
            }
            Err(Failure::Lost | Failure::NotSent) => {
                self.unread.push(node);
                return None;
            }
            _ => None,
        };
        let seen = mem::take(&mut word.seen);
        let released = note.is_some_and(|note| seen.released(&note));
        (!seen.is_empty()).then_some((word.guard, Notice::Follows { released }))
    }
}
