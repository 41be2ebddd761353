//! The deletion of what is left in one directory.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::iter;
use core::mem;
use core::time::Duration;

use crate::answer::{Answered, BREATHER, Failure};
use crate::attempt::Orphan;
use crate::cleanup::{Action, Cleanup, Event};
use crate::connection::Capabilities;
use zklock_jute::{ErrorCode, Reply, Request, culprit, failure};

/// How long to wait before a refused request is repeated.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
/// How long to wait before repeating a request to which the server will hardly ever give another answer.
pub(super) const LONG_PAUSE: Duration = Duration::from_secs(600);

/// The deletion of what is left in one directory.
#[derive(Clone, Debug)]
pub struct Deletion {
    dir: String,
    pub(super) session: i64,
    cleanup: Cleanup,
    pub(super) turn: Turn,
    /// Whether the listing of the directory is too long for a reply.
    pub(super) crowded: bool,
    /// The operations that the transaction which deletes the node also carries out.
    closing: Vec<Request>,
    /// Whether a request got no answer: if the node is gone, that request may have deleted it.
    retried: bool,
    /// When a repeated look ends.
    pub(super) until: Option<Duration>,
    /// Whether the request under way may have gone through an earlier connection.
    is_of_before: bool,
}

/// Which side acts next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Turn {
    /// The client's: the next request is to be sent.
    Due,
    /// The server's: a request is under way.
    Asked,
    /// The next request is to be sent at this time, because the last one failed.
    Paused(Duration),
    /// The first request is to be sent at this time, because the user put it off.
    Delayed(Duration),
}

/// How a deletion ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ended {
    /// This client deleted the node, and wrote what was to be written with the deletion.
    Deleted,
    /// The node is gone after a request whose answer was lost, or what was to be written was not.
    Presumed,
    /// The node was gone already.
    GoneBefore,
}

/// The consequence of an answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Progress {
    /// The next request is due, now or later. A failure here is one that the user should know of.
    GoesOn(Option<Failure>),
    /// Nothing is left.
    Ended(Ended),
}

impl Deletion {
    /// Creates the deletion of what a `session` left in a directory.
    pub fn new(dir: &str, session: i64, orphan: Orphan) -> Self {
        Self {
            dir: dir.to_owned(),
            session,
            cleanup: Cleanup::new(orphan),
            turn: Turn::Due,
            crowded: false,
            closing: Vec::new(),
            retried: false,
            until: None,
            is_of_before: false,
        }
    }

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

    /// Puts the first request off until this time.
    #[must_use]
    pub fn not_before(mut self, time: Option<Duration>) -> Self {
        self.turn = time.map_or(Turn::Due, Turn::Delayed);
        self
    }

    /// Notes that there is another connection. A look has to start over through it: see [`late`](super::late).
    pub(super) fn changes_connection(&mut self) {
        self.is_of_before = self.cleanup.looks_anew() && self.turn == Turn::Asked;
    }

    /// Returns what was looked for, if no node was there.
    pub fn missed(&self) -> Option<&Orphan> {
        self.cleanup.missed()
    }

    /// Returns what this deletion looks for.
    pub(super) fn sought(&self) -> Option<&Orphan> {
        self.cleanup.sought()
    }

    /// Returns what is left to find or to delete.
    pub(super) fn left(&self) -> Vec<Orphan> {
        self.cleanup.left()
    }

    /// Returns the name that this deletion looks for or deletes next, or the beginning of that name.
    pub(super) fn name(&self) -> Option<&str> {
        self.cleanup.name()
    }

    /// Returns the directory.
    pub fn dir(&self) -> &str {
        &self.dir
    }

    /// Returns the session that the nodes belong to.
    pub fn session(&self) -> i64 {
        self.session
    }

    /// Returns the node that the next request deletes, if the request does nothing else.
    pub fn node(&self) -> Option<String> {
        match self.cleanup.action() {
            Action::Delete(name) if self.closing.is_empty() => Some(format!("{}/{name}", self.dir)),
            _ => None,
        }
    }

    /// Returns what the next request does, if it deletes a node.
    pub fn ops(&self) -> Option<Vec<Request>> {
        let Action::Delete(name) = self.cleanup.action() else {
            return None;
        };
        let delete = Request::delete(format!("{}/{name}", self.dir));
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
            (_, Action::Read(name)) => Request::get(&format!("{}/{name}", self.dir)),
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
        if mem::take(&mut self.is_of_before) {
            return Progress::GoesOn(None);
        }
        let ended = self.ended_by(&answered);
        if answered == Err(Failure::Refused(ErrorCode::THROTTLED)) {
            self.turn = Turn::Paused(now + BREATHER);
            return Progress::GoesOn(None);
        }
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

    /// Takes in a failure. Returns it if it will hardly pass by itself.
    fn failed(&mut self, now: Duration, failure: Failure) -> Option<Failure> {
        let refused = matches!(failure, Failure::Refused(_) | Failure::TooLong(_));
        if refused && !self.closing.is_empty() {
            self.writes_nothing();
            // A write that is refused must neither prevent nor delay the deletion.
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

    /// Returns how the deletion ends if this answer ends it.
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

    /// Returns what the answer to the last request says.
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
            (Action::Read(_), Ok(Reply::Data { data, .. })) => Ok(Event::Data(data.into())),
            // The node is not this client's, which may read its own.
            (Action::Read(_), Err(Failure::Refused(ErrorCode::NO_AUTH))) => Ok(Event::Gone),
            (Action::Sync, Ok(_)) => Ok(Event::Synced),
            // A refused sync has passed through the quorum as well.
            (Action::Sync, Err(Failure::Refused(code))) if !code.is_passing() => Ok(Event::Synced),
            (Action::Delete(_), Ok(Reply::Multi(results))) => match culprit(&results) {
                None | Some((0, ErrorCode::NO_NODE)) => Ok(Event::Gone),
                Some((_, code)) => Err(Failure::Refused(code)),
            },
            (Action::Delete(_), Ok(Reply::Nothing)) => Ok(Event::Gone),
            (_, Err(Failure::Refused(ErrorCode::NO_NODE))) => Ok(Event::Gone),
            (_, Err(failure)) => Err(failure.sorted()),
            (_, Ok(_)) => Err(Failure::Lost),
        }
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
