//! The note that an orderly release leaves for the next holder.
//!
//! A client that waited for a lock knows that the nodes ahead are gone, but not why: their holders
//! released it, or were evicted and may not know yet. The transaction that deletes a node on
//! release can write the reason into the directory, which costs no further write. A note is written
//! only into a directory without data or with an earlier note: marks, records and the data of other
//! programs stay. If no note names a node, it is unknown how its holder left.

use std::time::Duration;

use super::raw_guard::{RawGuard, Replaces};
use crate::path;
use crate::session::Session;
use crate::session::call_error::CallError;
use crate::session::caller::Caller;
use crate::time::limit::Limit;
use crate::transport::{Answered, Call};
use zklock_core::deletions::close;
use zklock_core::name::NodeName;
use zklock_core::release_note::{Note, is_shared};
use zklock_jute::{Data, ErrorCode, Reply, Request, Stat};

/// How long to wait for a note, or for a release that leaves one. After that, it is unknown how the
/// holders ahead left.
const LONGEST: Duration = Duration::from_millis(250);

impl RawGuard {
    /// Returns whether all holders that were ahead have noted an orderly release; `None` if nobody
    /// was ahead, or the call did not look. Blocks for one read.
    pub(crate) fn follows_release(&self) -> Option<bool> {
        let seen = self.seen().filter(|seen| !seen.is_empty())?;
        // The notes of several directories may be from different moments.
        if self.nodes().len() != 1 {
            return Some(false);
        }
        let limit = Limit::after(LONGEST.min(self.valid_for()));
        let note = note(
            &mut self.session().caller(),
            path::parent(self.node()),
            &limit,
        );
        Some(note.is_some_and(|note| seen.released(&note)))
    }

    /// Makes an orderly release leave a note. Sends a read of the directory, unless the lock is
    /// shared, and does not wait for the answer.
    pub(crate) fn leave_note(&self) {
        let replaces = Replaces::default();
        let transacts = self.session().transport.transacts();
        if self.nodes().len() != 1 || !transacts || !self.note_over(replaces.clone()) {
            return;
        }
        if self.is_shared() {
            return;
        }
        let is_own = self.is_in_its_own_directory();
        let read = Call {
            request: Request::get(path::parent(self.node())),
            watch: None,
            answer: Box::new(move |answered: Answered| {
                if let Ok(Reply::Data { data, stat }) = answered {
                    let note = Note::replaceable(&data, stat.version, is_own);
                    let _ = replaces.set(note.map(|_| stat.version));
                }
            }),
        };
        self.session().transport.send(vec![read]);
    }

    /// Deletes the node and writes the note, if the release is to leave one and has yet to read the
    /// directory: the lock is shared, or was held for less time than that read takes. Reads and
    /// writes again while others write their notes.
    pub(crate) fn unlock_noting(&self) {
        if !self.is_to_note() {
            return;
        }
        let (dir, name) = (path::parent(self.node()), path::name(self.node()));
        let limit = Limit::after(LONGEST.min(self.valid_for()));
        let mut caller = self.session().caller();
        self.stop_watching();
        self.give_up_claim();
        while let Some((data, stat)) = read(&mut caller, dir, &limit) {
            let note = Note::replaceable(&data, stat.version, self.is_in_its_own_directory());
            let Some(data) = note.and_then(|note| note.with(name)) else {
                return;
            };
            match caller.call(&close(dir, name, &data, stat.version), dir, &limit) {
                // If the node is missing, an earlier request was carried out, or the lock is lost.
                Ok(_) | Err(CallError::Refused(ErrorCode::NO_NODE)) => return self.mark_left(),
                Err(CallError::Refused(ErrorCode::BAD_VERSION)) => {}
                Err(_) => return,
            }
        }
    }

    /// Returns whether the node is in the path's own directory, which may be a job's, and not in a semaphore's.
    fn is_in_its_own_directory(&self) -> bool {
        path::parent(self.node()) == self.lease().path()
    }

    fn is_shared(&self) -> bool {
        NodeName::parse(path::name(self.node())).is_some_and(|name| is_shared(&name))
    }
}

impl Session {
    /// Returns whether the holders of these nodes, which are gone, have noted an orderly release.
    pub(crate) fn have_released(&self, nodes: &[String]) -> bool {
        let limit = Limit::after(LONGEST);
        let mut caller = self.caller();
        let mut notes = Vec::<(&str, Note)>::new();
        nodes.iter().all(|node| {
            let dir = path::parent(node);
            if !notes.iter().any(|(of, _)| *of == dir) {
                let note = note(&mut caller, dir, &limit);
                notes.push((dir, note.unwrap_or_default()));
            }
            let told = |(of, note): &(&str, Note)| *of == dir && note.tells_of(path::name(node));
            notes.iter().any(told)
        })
    }
}

/// Reads the note in this directory, which may be empty.
fn note(caller: &mut Caller, dir: &str, limit: &Limit) -> Option<Note> {
    let (data, _) = read(caller, dir, limit)?;
    Note::parse(&data)
}

fn read(caller: &mut Caller, dir: &str, limit: &Limit) -> Option<(Data, Stat)> {
    match caller.call(&Request::get(dir), dir, limit) {
        Ok(Reply::Data { data, stat }) => Some((data, stat)),
        _ => None,
    }
}
