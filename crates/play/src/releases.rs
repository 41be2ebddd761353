//! The nodes that still have to be deleted, and how that goes.
//!
//! [`Deletions`] retries until the servers have said that a node is gone, or the session that owns it has
//! ended. A release may take the create of the next thread along: both are then one transaction, one write
//! of the quorum, and one round trip.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use super::ask::{Loss, Outcome, Ticket, Time};
use super::calls::{Creation, Purpose};
use super::line::LineId;
use super::link::Link;
use super::refusal::refusal;
use zklock_core::acquisition::Acquisition;
use zklock_core::answer::Answered;
use zklock_core::attempt::Orphan;
use zklock_core::delete_and_create;
use zklock_core::deletions::{Deletion, Deletions, Ended, Progress};
use zklock_core::dialect::Sharing;
use zklock_core::guarded_write;
use zklock_jute::Request;

/// The deletions of one client; see the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Releases {
    /// Each with the thread that waits for its end, if one does.
    deletions: Deletions<Option<Told>>,
    /// When the next deletion is due that is put off.
    pub(super) next: Option<Time>,
    /// How many leftovers are known to be gone.
    pub(super) leftovers: u64,
}

/// The consequences of an answer to a deletion.
#[derive(Debug)]
pub(super) struct Done {
    /// The thread to wake, and with what.
    pub(super) told: Option<(Ticket, Outcome)>,
    /// The directory in which an attempt had left the node, once that is gone.
    pub(super) left_in: Option<String>,
}

/// A thread that waits for the end of a release.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    pub(super) ticket: Ticket,
    /// Whether the thread has something written with the deletion.
    pub(super) writes: bool,
}

impl Releases {
    /// Takes over a node, whose deletion is sent soon. `ops` are carried out with the deletion, or not at all.
    pub(super) fn begin(
        &mut self,
        node: &str,
        ops: Vec<Request>,
        told: Option<Told>,
        link: &Link,
    ) -> u64 {
        let deletion = Deletion::of_guard(node, link.session).writing(ops);
        self.deletions.begin(deletion, told)
    }

    /// Deletes what an attempt left.
    pub(super) fn delete(&mut self, dir: &str, orphan: Orphan, link: &mut Link) {
        // Without a session, there is nothing that the attempt could own.
        if link.session != 0 {
            let deletion = Deletion::new(dir, link.session, orphan);
            let id = self.deletions.begin(deletion, None);
            self.send(id, link);
        }
    }

    /// Returns until when a try waits for what ended attempts have left in this directory, if it does.
    pub(super) fn awaited_until(&mut self, try_in: (&str, Sharing), now: Time) -> Option<Time> {
        self.deletions.awaited(try_in, now, |_| {})
    }

    /// Sends what is due, if a pause is over or there is a connection again.
    pub(super) fn send_due(&mut self, link: &mut Link) {
        self.deletions.connected(link.connects, link.now);
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
        if let Some(request) = deletion.ask() {
            link.send(request, Purpose::Deletion(id));
        }
    }

    /// Sends a deletion together with the first create of an attempt, or before it.
    pub(super) fn leave_with(
        &mut self,
        id: u64,
        (line, next): (&LineId, &mut Acquisition),
        link: &mut Link,
    ) {
        let deletion = self.deletions.get(id).map(|(deletion, _)| deletion);
        let ops = deletion.as_ref().and_then(|deletion| deletion.ops());
        let joins = link.is_connected() && link.transacts();
        let joined = ops.filter(|_| joins).zip(next.begins_with_create());
        let (Some(deletion), Some((ops, prefix))) = (deletion, joined) else {
            return self.send(id, link);
        };
        let stamp = link.stamp();
        let creation = Creation::new(line, &prefix);
        let create = link.creation(next.path(), &prefix);
        let call = link.send(
            delete_and_create::request(ops, create),
            Purpose::Both(id, creation),
        );
        next.note_create(call, stamp);
        next.list_too(&mut link.on(line));
        // The transaction is the deletion's request.
        let _ = deletion.ask();
    }

    /// Takes in an answer, which may end its deletion.
    pub(super) fn answered(
        &mut self,
        id: u64,
        answered: Answered,
        link: &mut Link,
    ) -> Option<Done> {
        let (deletion, told) = self.deletions.get(id)?;
        let wrote = deletion.may_have_written();
        let refusal = refusal(guarded_write::judge(1, &answered));
        match deletion.answered(link.now, answered) {
            Progress::GoesOn(_) => {
                // The deletion goes on without what the servers did not write.
                let refused = wrote && !deletion.writes();
                let told = told.take_if(|told| refused && told.writes);
                self.send_due(link);
                let told = Some((told?.ticket, refusal?));
                Some(Done {
                    told,
                    left_in: None,
                })
            }
            Progress::Ended(ended) => {
                let left_in = deletion.is_leftover().then(|| deletion.dir().to_owned());
                let found = deletion.missed().is_none();
                let told = self.deletions.ended(id, link.now, link.timeout())?;
                self.leftovers += u64::from(found && left_in.is_some());
                let outcome = |told: Told| match ended {
                    Ended::Presumed if told.writes => Outcome::InDoubt,
                    Ended::Deleted | Ended::Presumed | Ended::Unwritten(_) => Outcome::Released,
                    Ended::GoneBefore => Outcome::Lost(Loss::Evicted),
                };
                let told = told.map(|told| (told.ticket, outcome(told)));
                Some(Done { told, left_in })
            }
        }
    }

    /// Notes that nobody waits for the end of this thread's release any more: what cannot have been written
    /// yet will not be. Returns what is known of the release.
    pub(super) fn gives_up(&mut self, ticket: Ticket, why: Loss) -> Outcome {
        let is_its = |told: &Option<Told>| told.is_some_and(|told| told.ticket == ticket);
        let Some((deletion, Some(told))) = self.deletions.find(is_its) else {
            return Outcome::Lost(why);
        };
        let outcome = unanswered(deletion, *told, why);
        if outcome != Outcome::InDoubt {
            deletion.writes_nothing();
        }
        outcome
    }

    /// Takes in the answer to the create of an attempt that has ended, and deletes what it has left.
    pub(super) fn created(&mut self, creation: &Creation, answered: Answered, link: &mut Link) {
        if let Some(orphan) = delete_and_create::orphan(answered, &creation.prefix) {
            self.delete(&creation.line.path, orphan, link);
        }
    }

    /// Notes which session there is now, if any: the ends of others have deleted their nodes. Returns the
    /// threads that wait for those, and what is known of their releases.
    pub(super) fn serves(&mut self, session: i64) -> Vec<(Ticket, Outcome)> {
        let ended = self.deletions.serves(session, None).into_iter();
        let told = ended.filter_map(|(deletion, told)| {
            let told = told?;
            let outcome = unanswered(&deletion, told, Loss::SessionExpired);
            Some((told.ticket, outcome))
        });
        told.collect()
    }

    /// Forgets all deletions, because every session has ended.
    pub(super) fn clear(&mut self) {
        self.deletions.clear();
        self.next = None;
    }

    /// Returns how many deletions are open.
    pub(super) fn len(&self) -> usize {
        self.deletions.len()
    }
}

/// Returns what is known of a release whose answer nobody waits for any more.
fn unanswered(deletion: &Deletion, told: Told, why: Loss) -> Outcome {
    match told.writes && deletion.may_have_written() {
        true => Outcome::InDoubt,
        false => Outcome::Lost(why),
    }
}
