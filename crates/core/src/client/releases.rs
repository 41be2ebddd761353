//! What is yet to be deleted, and how that goes.
//!
//! [`Deletions`] keeps at it until the servers have said that a node is gone, or the session has
//! ended that it belongs to. A release may take the create of the next thread along: both are then one
//! transaction, one write of the quorum, and one round trip.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use super::acquisition::Acquisition;
use super::ask::{Ticket, Time};
use super::calls::{Creation, Purpose};
use super::link::Link;
use crate::answer::Answered;
use crate::attempt::Orphan;
use crate::deletions::{Deletion, Deletions, Ended, Progress};
use crate::joined;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Releases {
    deletions: Deletions<Interest>,
    /// When the next one is due that is put off.
    pub(super) next: Option<Time>,
    /// How many leftovers are known to be gone.
    pub(super) leftovers: u64,
}

/// Who is interested in a deletion.
#[derive(Debug)]
struct Interest {
    /// The thread that waits for its end, if one does.
    told: Option<Ticket>,
    /// It comes from an attempt, not from a guard.
    is_leftover: bool,
}

/// A deletion that has ended.
#[derive(Debug)]
pub(super) struct Done {
    /// Who is to be told, and whether the node was there to the end.
    pub(super) told: Option<(Ticket, bool)>,
    /// Where an attempt had left it.
    pub(super) left_in: Option<String>,
}

impl Releases {
    /// Takes over a node, to be sent for soon.
    pub(super) fn begin(
        &mut self,
        dir: &str,
        orphan: Orphan,
        told: Option<Ticket>,
        link: &Link,
    ) -> u64 {
        let deletion = Deletion::new(dir, link.session, orphan);
        let is_leftover = false;
        self.deletions
            .begin(deletion, Interest { told, is_leftover })
    }

    /// Deletes what an attempt left.
    pub(super) fn delete(&mut self, dir: &str, orphan: Orphan, link: &mut Link) {
        // Without a session, there is nothing that it could own.
        if link.session != 0 {
            let id = self.begin(dir, orphan, None, link);
            if let Some((_, interest)) = self.deletions.get(id) {
                interest.is_leftover = true;
            }
            self.send(id, link);
        }
    }

    /// Whether something is left in this directory of attempts that have ended.
    pub(super) fn are_left_in(&mut self, dir: &str) -> bool {
        let mut interests = self.deletions.in_directory(dir);
        interests.any(|interest| interest.is_leftover)
    }

    /// Sends what is due, if a pause is over or there is a connection again.
    pub(super) fn send_due(&mut self, link: &mut Link) {
        for id in self.deletions.due(link.now) {
            self.send(id, link);
        }
        self.next = self.deletions.next_tick(link.now);
    }

    /// Sends the next request of a deletion, unless one is under way.
    pub(super) fn send(&mut self, id: u64, link: &mut Link) {
        let Some((deletion, _)) = self.deletions.get(id).filter(|_| link.is_connected()) else {
            return;
        };
        if let Some(request) = deletion.ask(link.knows) {
            link.send(request, Purpose::Deletion(id));
        }
    }

    /// Sends a deletion together with the first create of an attempt, or before it.
    pub(super) fn leave_with(&mut self, id: u64, next: &mut Acquisition, link: &mut Link) {
        let deletion = self.deletions.get(id).map(|(deletion, _)| deletion);
        let node = deletion.as_ref().and_then(|deletion| deletion.node());
        let joins = link.is_connected() && link.knows.multi;
        match (deletion, node.filter(|_| joins)) {
            (Some(deletion), Some(node)) if next.create_with((id, &node), link) => {
                // The transaction is its request.
                let _ = deletion.ask(link.knows);
            }
            _ => self.send(id, link),
        }
    }

    /// Takes in an answer, which may end its deletion.
    pub(super) fn answered(
        &mut self,
        id: u64,
        answered: Answered,
        link: &mut Link,
    ) -> Option<Done> {
        let (deletion, interest) = self.deletions.get(id)?;
        match deletion.answered(link.now, answered) {
            Progress::GoesOn(_) => {
                self.send_due(link);
                None
            }
            Progress::Ended(ended) => {
                let left_in = interest.is_leftover.then(|| deletion.dir().to_owned());
                let told = self.deletions.take(id)?.told;
                self.leftovers += u64::from(left_in.is_some());
                let told = told.map(|ticket| (ticket, ended != Ended::GoneBefore));
                Some(Done { told, left_in })
            }
        }
    }

    /// The create of an attempt that has ended is answered: deletes what it has left.
    pub(super) fn created(&mut self, creation: &Creation, answered: Answered, link: &mut Link) {
        if let Some(orphan) = joined::orphan(answered, &creation.prefix) {
            self.delete(&creation.path, orphan, link);
        }
    }

    /// There is this session now, or none: the ends of others have deleted their nodes. Returns who waits
    /// for those.
    pub(super) fn serves(&mut self, session: i64) -> Vec<Ticket> {
        self.deletions
            .serves(session)
            .into_iter()
            .filter_map(|interest| interest.told)
            .collect()
    }

    /// Every session has ended.
    pub(super) fn clear(&mut self) {
        self.deletions.clear();
        self.next = None;
    }

    /// How many are open.
    pub(super) fn len(&self) -> usize {
        self.deletions.len()
    }
}
