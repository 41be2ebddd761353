//! The note that an orderly release leaves for the next holder.
//!
//! Who waited for a lock knows that the nodes ahead are gone, and not why: their holders released
//! it, or were evicted and may not know yet. The transaction that deletes a node in order can say so
//! in the directory, which costs no further write. Only a directory without data is used, or one
//! that has such a note: marks, records and what other programs keep there stay. Of nodes that no
//! note names, how their holders left is unknown.

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

/// How long to wait for a note, or for a release that leaves one; later, how the holders ahead left
/// is unknown.
const LONGEST: Duration = Duration::from_millis(250);

impl RawGuard {
    /// Whether all that were ahead have said that they released in order; `None` if nobody was, or
    /// the call did not look. Blocks for one read.
    pub(crate) fn follows_release(&self) -> Option<bool> {
        let seen = self.seen().filter(|seen| !seen.is_empty())?;
        // The notes of several directories may be of different moments.
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

    /// Has an orderly release leave a note. If the lock is not shared, it sends a read of the
    /// directory, and waits for nothing.
    pub(crate) fn leave_note(&self) {
        let replaces = Replaces::default();
        let multi = self.session().transport.capabilities().multi;
        if self.nodes().len() != 1 || !multi || !self.note_over(replaces.clone()) {
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
                    let note = replaceable(&data, &stat, is_own);
                    let _ = replaces.set(note.map(|_| stat.version));
                }
            }),
        };
        self.session().transport.send(vec![read]);
    }

    /// If the release is to leave a note, and has to read the directory first, deletes the node and
    /// writes the note: the lock is shared, or was held for less than that read takes. While others
    /// write theirs, it reads and writes again.
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
            let note = replaceable(&data, &stat, self.is_in_its_own_directory());
            let Some(data) = note.and_then(|note| note.with(name)) else {
                return;
            };
            match caller.call(&close(dir, name, &data, stat.version), dir, &limit) {
                // Without the node, the request was carried out before, or the lock is lost.
                Ok(_) | Err(CallError::Refused(ErrorCode::NO_NODE)) => return self.has_left(),
                Err(CallError::Refused(ErrorCode::BAD_VERSION)) => {}
                Err(_) => return,
            }
        }
    }

    /// Whether this is the path's own node, which may be a job's, and not a semaphore's directory.
    fn is_in_its_own_directory(&self) -> bool {
        path::parent(self.node()) == self.lease().path()
    }

    fn is_shared(&self) -> bool {
        NodeName::parse(path::name(self.node())).is_some_and(|name| is_shared(&name))
    }
}

impl Session {
    /// Whether the holders with these nodes, which are gone, have said that they released in order.
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

/// The note that another one may replace. Data that somebody has deleted may have been a job's record: with
/// a note in their place, a job would [take the path over](zklock_core::mending::is_free).
fn replaceable(data: &[u8], stat: &Stat, is_own: bool) -> Option<Note> {
    let was_written = is_own && data.is_empty() && 0 < stat.version;
    Note::parse(data).filter(|_| !was_written)
}

/// The note in this directory, which may be empty.
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
