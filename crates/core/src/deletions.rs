//! All that a session has yet to delete: the nodes of guards and attempts that have ended.
//!
//! ```text
//!            request()           the answer
//!  due ───────────────► asked ───────────────► due again, paused, or ended
//!   ▲                                              │
//!   └──────────(the pause or the delay is over)────┘
//! ```
//!
//! Each [`Deletion`] has one request under way at most: with two, the answer to one would be taken
//! for the answer to the other. It ends when the servers have said that its nodes are gone, or when
//! the session that owns them ends, which deletes them.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::iter;
use core::time::Duration;

use super::answer::{Answered, Failure};
use super::attempt::Orphan;
use super::cleanup::{Action, Cleanup, Event};
use super::connection::Capabilities;
use zklock_jute::{ErrorCode, Op, Reply, Request, culprit, failure};

/// How long to wait before a refused request is repeated.
const PAUSE: Duration = Duration::from_secs(1);
/// The same for a request to which the server will hardly ever give another answer.
const LONG_PAUSE: Duration = Duration::from_secs(600);

/// What is left in one directory.
#[derive(Clone, Debug)]
pub struct Deletion {
    dir: String,
    session: i64,
    cleanup: Cleanup,
    turn: Turn,
    /// The listing of the directory is too long for a reply.
    crowded: bool,
    /// What is written in the transaction that deletes the node.
    closing: Vec<Op>,
    /// A request got no answer: if the node is gone, that request may have deleted it.
    retried: bool,
}

/// Whose turn it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Turn {
    /// The next request is to be sent.
    Due,
    /// The server's: a request is under way.
    Asked,
    /// The next request is to be sent then, as the last one failed.
    Paused(Duration),
    /// The first request is to be sent then, as the user put it off.
    Delayed(Duration),
}

/// How a deletion ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ended {
    /// This client deleted the node, and wrote what was to be written with the deletion.
    Deleted,
    /// The node is gone after a request whose answer was lost, or what was to be written is not.
    Presumed,
    /// The node was gone already.
    GoneBefore,
}

/// What follows from an answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Progress {
    /// The next request is due, now or later. A failure is one that its user should know of.
    GoesOn(Option<Failure>),
    /// Nothing is left.
    Ended(Ended),
}

impl Deletion {
    /// Begins to delete what a `session` left in a directory.
    pub fn new(dir: &str, session: i64, orphan: Orphan) -> Self {
        Self {
            dir: dir.to_owned(),
            session,
            cleanup: Cleanup::new(orphan),
            turn: Turn::Due,
            crowded: false,
            closing: Vec::new(),
            retried: false,
        }
    }

    /// Has this written into the directory, over this version, with the deletion.
    #[must_use]
    pub fn closing(self, with: Option<(&[u8], i32)>) -> Self {
        let write = with.map(|(data, version)| writes(&self.dir, data, version));
        self.writing(write.into_iter().collect())
    }

    /// Has this written with the deletion.
    #[must_use]
    pub fn writing(mut self, ops: Vec<Op>) -> Self {
        self.closing = ops;
        self
    }

    /// Whether something is to be written with the deletion.
    pub fn writes(&self) -> bool {
        !self.closing.is_empty()
    }

    /// Whether that may have been written.
    pub fn may_have_written(&self) -> bool {
        self.writes() && (self.retried || self.turn == Turn::Asked)
    }

    /// Writes nothing with the deletion.
    pub fn writes_nothing(&mut self) {
        self.closing.clear();
    }

    /// Puts the first request off until then.
    #[must_use]
    pub fn not_before(mut self, time: Option<Duration>) -> Self {
        self.turn = time.map_or(Turn::Due, Turn::Delayed);
        self
    }

    /// The directory.
    pub fn dir(&self) -> &str {
        &self.dir
    }

    /// The session that the nodes belong to.
    pub fn session(&self) -> i64 {
        self.session
    }

    /// The node that the next request deletes, and nothing else.
    pub fn node(&self) -> Option<String> {
        match self.cleanup.action() {
            Action::Delete(name) if self.closing.is_empty() => Some(format!("{}/{name}", self.dir)),
            _ => None,
        }
    }

    /// What the next request does, if it deletes a node.
    pub fn ops(&self) -> Option<Vec<Op>> {
        let Action::Delete(name) = self.cleanup.action() else {
            return None;
        };
        let delete = Op::delete(format!("{}/{name}", self.dir));
        Some(iter::once(delete).chain(self.closing.clone()).collect())
    }

    /// Returns the next request, which is sent now; `None` if one is under way.
    pub fn ask(&mut self, capabilities: Capabilities) -> Option<Request> {
        let request = match (self.turn, self.cleanup.action()) {
            (Turn::Asked, _) | (_, Action::Done) => return None,
            (_, Action::Sync) => capabilities.sync(&self.dir),
            // Since ZooKeeper 3.6, a session can ask for its own nodes.
            (_, Action::List) if self.crowded => Request::GetEphemerals {
                below: self.dir.clone(),
            },
            (_, Action::List) => Request::list(&self.dir),
            (_, Action::Delete(name)) if self.closing.is_empty() => {
                Request::delete(format!("{}/{name}", self.dir))
            }
            (_, Action::Delete(_)) => Request::Multi(self.ops()?),
        };
        self.turn = Turn::Asked;
        Some(request)
    }

    /// Takes in the answer to the last request.
    pub fn answered(&mut self, now: Duration, answered: Answered) -> Progress {
        self.turn = Turn::Due;
        let ended = self.ended_by(&answered);
        let failed = match self.event(answered) {
            Ok(event) => {
                self.cleanup.handle(event);
                None
            }
            Err(failure) => self.failed(now, failure),
        };
        match self.cleanup.action() {
            Action::Done => Progress::Ended(ended),
            _ => Progress::GoesOn(failed),
        }
    }

    /// Takes in a failure; returns it if it will hardly pass by itself.
    fn failed(&mut self, now: Duration, failure: Failure) -> Option<Failure> {
        let refused = matches!(failure, Failure::Refused(_) | Failure::TooLong(_));
        if refused && !self.closing.is_empty() {
            self.writes_nothing();
            // What may not be written must neither prevent nor delay the deletion.
            self.retried = true;
            return None;
        }
        let pause = match failure {
            Failure::Lost => {
                self.retried = true;
                return None;
            }
            Failure::NotSent | Failure::Closed => return None,
            Failure::TooLong(_) if !self.crowded => {
                self.crowded = true;
                return None;
            }
            Failure::TooLong(_) => LONG_PAUSE,
            Failure::Refused(_) if self.crowded => LONG_PAUSE,
            Failure::Refused(_) => PAUSE,
        };
        self.turn = Turn::Paused(now + pause);
        Some(failure)
    }

    /// How the deletion ends if this answer ends it.
    fn ended_by(&self, answered: &Answered) -> Ended {
        let deleted = match answered {
            Ok(Reply::Multi(results)) if failure(results).is_none() => return Ended::Deleted,
            Ok(Reply::Multi(_)) | Err(_) => false,
            Ok(_) => true,
        };
        match self.retried {
            true => Ended::Presumed,
            false if deleted => Ended::Deleted,
            false => Ended::GoneBefore,
        }
    }

    /// What the answer to the last request says.
    fn event(&self, answered: Answered) -> Result<Event, Failure> {
        match (self.cleanup.action(), answered) {
            (Action::List, Ok(Reply::Children { names, .. })) => Ok(Event::Children(names)),
            (Action::List, Ok(Reply::Ephemerals(paths))) => {
                let name = |path: &'_ String| {
                    let name = path.strip_prefix(&self.dir)?.strip_prefix('/')?;
                    Some(name.to_owned())
                };
                let names: Vec<_> = paths.iter().filter_map(name).collect();
                Ok(Event::Children(names.iter().map(String::as_str).collect()))
            }
            (Action::Sync, Ok(_)) => Ok(Event::Synced),
            // A refusal passes through the quorum as well.
            (Action::Sync, Err(Failure::Refused(code))) if !code.is_passing() => Ok(Event::Synced),
            (Action::Delete(_), Ok(Reply::Multi(results))) => match culprit(&results) {
                None | Some((0, ErrorCode::NO_NODE)) => Ok(Event::Gone),
                Some((_, code)) => Err(Failure::Refused(code)),
            },
            (Action::Delete(_), Ok(Reply::Nothing)) => Ok(Event::Gone),
            (_, Err(Failure::Refused(ErrorCode::NO_NODE))) => Ok(Event::Gone),
            (_, Err(Failure::Refused(code))) if code.is_passing() => Err(Failure::Lost),
            (_, Err(failure)) => Err(failure),
            (_, Ok(_)) => Err(Failure::Lost),
        }
    }
}

/// Deletes a node and writes into its directory over this version, or does neither.
pub fn close(dir: &str, name: &str, data: &[u8], version: i32) -> Request {
    let delete = Op::delete(format!("{dir}/{name}"));
    Request::Multi(vec![delete, writes(dir, data, version)])
}

fn writes(dir: &str, data: &[u8], version: i32) -> Op {
    Op::SetData {
        path: dir.to_owned(),
        data: data.to_vec().into(),
        version,
    }
}

/// The deletions of one session by their numbers, each with what its user adds.
#[derive(Debug)]
pub struct Deletions<X> {
    last: u64,
    open: BTreeMap<u64, (Deletion, X)>,
}

impl<X> Default for Deletions<X> {
    fn default() -> Self {
        Self {
            last: 0,
            open: BTreeMap::new(),
        }
    }
}

impl<X> Deletions<X> {
    /// Takes one over; returns its number.
    pub fn begin(&mut self, deletion: Deletion, with: X) -> u64 {
        self.last += 1;
        self.open.insert(self.last, (deletion, with));
        self.last
    }

    /// The one with this number, if it has not ended.
    pub fn get(&mut self, id: u64) -> Option<&mut (Deletion, X)> {
        self.open.get_mut(&id)
    }

    /// The one to which its user has added this.
    pub fn find(&mut self, is_it: impl Fn(&X) -> bool) -> Option<&mut (Deletion, X)> {
        self.open.values_mut().find(|(_, with)| is_it(with))
    }

    /// Takes out the one with this number.
    pub fn take(&mut self, id: u64) -> Option<X> {
        Some(self.open.remove(&id)?.1)
    }

    /// What their users have added to those in this directory.
    pub fn in_directory<'a>(&'a mut self, dir: &'a str) -> impl Iterator<Item = &'a mut X> {
        let all = self.open.values_mut();
        all.filter_map(move |(entry, with)| (entry.dir == dir).then_some(with))
    }

    /// How many have not ended.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether all have ended.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// A session is served; the ends of others have deleted their nodes. Returns those, with what their
    /// users have added.
    pub fn serves(&mut self, session: i64) -> Vec<(Deletion, X)> {
        let of_another =
            |(id, (entry, _)): (&u64, &(Deletion, X))| (entry.session != session).then_some(*id);
        let ended: Vec<_> = self.open.iter().filter_map(of_another).collect();
        let ended = ended.iter().filter_map(|id| self.open.remove(id));
        ended.collect()
    }

    /// Every session has ended.
    pub fn clear(&mut self) {
        self.open.clear();
    }

    /// Whose requests are to be sent by now.
    pub fn due(&self, now: Duration) -> Vec<u64> {
        let due = |(id, (entry, _)): (&u64, &(Deletion, X))| match entry.turn {
            Turn::Due => Some(*id),
            Turn::Paused(time) | Turn::Delayed(time) => (time <= now).then_some(*id),
            Turn::Asked => None,
        };
        self.open.iter().filter_map(due).collect()
    }

    /// When the next request is due that is not due yet.
    pub fn next_tick(&self, now: Duration) -> Option<Duration> {
        let later = |(entry, _): &(Deletion, X)| match entry.turn {
            Turn::Paused(time) | Turn::Delayed(time) => Some(time).filter(|time| now < *time),
            Turn::Due | Turn::Asked => None,
        };
        self.open.values().filter_map(later).min()
    }

    /// Until when users have put off the last deletion, except those put off for ever.
    pub fn delayed_until(&self) -> Option<Duration> {
        let delayed = |(entry, _): &(Deletion, X)| match entry.turn {
            Turn::Delayed(time) => Some(time).filter(|time| *time != Duration::MAX),
            _ => None,
        };
        self.open.values().filter_map(delayed).max()
    }
}

#[cfg(test)]
mod tests;
