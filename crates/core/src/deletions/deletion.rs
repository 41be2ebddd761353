//! The deletion of what an attempt or a guard left in one directory.
//!
//! ```text
//!  Sync ──► Find ──► Delete ──► .. ──► Delete ──► ended
//!  (perhaps a node)  (a node)
//! ```
//!
//! It ends only when the servers have answered that each node is gone, or when the session that owns the
//! nodes ends, which the driver has to notice. If no node was found, one may still come:
//! [`Deletion::missed`] says so.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem;
use core::time::Duration;

use super::progress::{Ended, Progress};
use crate::answer::{Answered, BREATHER, Failure};
use crate::attempt::Orphan;
use crate::connection::sync;
use crate::path::{name, node_in, parent};
use zklock_jute::{ErrorCode, Reply, Request, culprit, failure};

/// How long to wait before a refused request is repeated, for the first time. The pause doubles each time.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How long to wait before repeating a request to which the server will hardly ever give another answer.
pub(super) const LONG_PAUSE: Duration = Duration::from_secs(600);

/// The deletion of what is left in one directory.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Deletion {
    pub(super) dir: String,
    pub(super) session: i64,
    /// Whether an attempt left it, not a guard.
    pub(super) is_leftover: bool,
    state: State,
    /// What was looked for, if no node was there.
    missed: Option<Orphan>,
    pub(super) turn: Turn,
    /// Whether the listing of the directory is too long for a reply.
    pub(super) crowded: bool,
    /// The operations that the transaction which deletes the node also carries out.
    pub(super) closing: Vec<Request>,
    /// Whether a transaction carries them out that checks the node instead, which the client may not delete.
    pub(super) stays: bool,
    /// Why the servers refused what was to be written, if it was not because another client has written there.
    unwritten: Option<ErrorCode>,
    /// Whether a request got no answer: if the node is gone, that request may have deleted it.
    pub(super) retried: bool,
    /// When a repeated look ends.
    pub(super) until: Option<Duration>,
    /// Whether the request under way may have gone through an earlier connection.
    is_of_before: bool,
    /// Until when tries wait for it, once one does.
    pub(super) awaited_until: Option<Duration>,
    /// Whether the client lacks the right to this.
    pub(super) is_forbidden: bool,
    /// How often it was refused, and when that was last.
    refused: (u32, Duration),
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum State {
    Sync(Orphan),
    Find(Orphan),
    /// These nodes, the last one first.
    Delete(Vec<String>),
    /// A node that has this mark.
    Pull(String, String),
}

/// Which side acts next.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
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

impl Deletion {
    /// Creates the deletion of what an attempt left in a directory in this session.
    pub fn new(dir: &str, session: i64, orphan: Orphan) -> Self {
        Self {
            dir: dir.to_owned(),
            session,
            is_leftover: true,
            state: match orphan {
                Orphan::Node(name) => State::Delete(vec![name]),
                perhaps => State::Sync(perhaps),
            },
            missed: None,
            turn: Turn::Due,
            crowded: false,
            closing: Vec::new(),
            stays: false,
            unwritten: None,
            retried: false,
            until: None,
            is_of_before: false,
            awaited_until: None,
            is_forbidden: false,
            refused: (0, Duration::ZERO),
        }
    }

    /// Puts the first request off until this time.
    #[must_use]
    pub fn not_before(mut self, time: Option<Duration>) -> Self {
        self.turn = time.map_or(Turn::Due, Turn::Delayed);
        self
    }

    /// Notes that there is another connection. A look has to start over through it, see [`leftover`](super::leftover), and so
    /// has one that has found a node whose name may be another's by now.
    pub(super) fn changes_connection(&mut self) {
        self.state = match mem::replace(&mut self.state, State::Delete(Vec::new())) {
            State::Find(orphan) => State::Sync(orphan),
            State::Pull(name, mark) => State::Sync(Orphan::Marked(name, mark)),
            state => state,
        };
        self.is_of_before = self.sought().is_some() && self.turn == Turn::Asked;
    }

    /// Returns what was looked for, if no node was there.
    pub fn missed(&self) -> Option<&Orphan> {
        self.missed.as_ref()
    }

    /// Returns what this deletion looks for.
    pub(super) fn sought(&self) -> Option<&Orphan> {
        match &self.state {
            State::Sync(orphan) | State::Find(orphan) => Some(orphan),
            State::Delete(_) | State::Pull(..) => None,
        }
    }

    /// Returns what is left to find or to delete.
    pub(super) fn left(&self) -> Vec<Orphan> {
        match &self.state {
            State::Sync(orphan) | State::Find(orphan) => vec![orphan.clone()],
            State::Delete(names) => names.iter().cloned().map(Orphan::Node).collect(),
            State::Pull(name, mark) => vec![Orphan::Marked(name.clone(), mark.clone())],
        }
    }

    /// Returns the name that this deletion looks for, or the beginning of it, or the name of the node that it
    /// deletes next.
    pub(super) fn name(&self) -> Option<&str> {
        match self.sought() {
            Some(Orphan::Node(name) | Orphan::Prefix(name) | Orphan::Marked(name, _)) => Some(name),
            None => self.target(),
        }
    }

    /// Returns the name of the node that the next request deletes.
    pub(super) fn target(&self) -> Option<&str> {
        match &self.state {
            State::Sync(_) | State::Find(_) => None,
            State::Delete(names) => names.last().map(String::as_str),
            State::Pull(name, _) => Some(name),
        }
    }

    fn is_done(&self) -> bool {
        matches!(&self.state, State::Delete(names) if names.is_empty())
    }

    /// Returns the directory.
    pub fn dir(&self) -> &str {
        &self.dir
    }

    /// Returns the session that the nodes belong to.
    pub fn session(&self) -> i64 {
        self.session
    }

    /// Returns whether the next request is to be sent by now.
    pub fn is_due(&self, now: Duration) -> bool {
        match self.turn {
            Turn::Due => true,
            Turn::Asked => false,
            Turn::Paused(time) | Turn::Delayed(time) => time <= now,
        }
    }

    /// Returns the next request, which is sent now; `None` if one is under way.
    pub fn ask(&mut self) -> Option<Request> {
        if self.turn == Turn::Asked || self.is_done() {
            return None;
        }
        let request = match &self.state {
            State::Sync(_) => sync(&self.dir),
            State::Find(Orphan::Marked(name, _)) => Request::get(&node_in(&self.dir, name)),
            // Since ZooKeeper 3.6, a session can ask for its own nodes.
            State::Find(_) if self.crowded => Request::GetEphemerals {
                below: self.dir.clone(),
            },
            State::Find(_) => Request::list(&self.dir),
            State::Delete(_) | State::Pull(..) if self.writes() => Request::Multi(self.ops()?),
            State::Delete(_) | State::Pull(..) => {
                Request::delete(node_in(&self.dir, self.target()?))
            }
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
        let failed = match self.take_in(answered) {
            Ok(()) => None,
            Err(failure) => self.failed(now, failure),
        };
        match self.is_done() {
            true => Progress::Ended(ended),
            false => Progress::GoesOn(failed),
        }
    }

    /// Takes in a failure. Returns it if it will hardly pass by itself.
    fn failed(&mut self, now: Duration, failure: Failure) -> Option<Failure> {
        let refused = matches!(failure, Failure::Refused(_) | Failure::TooLong(_));
        if refused && !self.closing.is_empty() {
            self.writes_nothing();
            self.unwritten = match failure {
                // Another client has written there.
                Failure::Refused(ErrorCode::BAD_VERSION) => None,
                Failure::Refused(code) => Some(code),
                _ => None,
            };
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
            Failure::Refused(_) => self.pause(now),
        };
        self.is_forbidden = failure == Failure::Refused(ErrorCode::NO_AUTH);
        self.turn = Turn::Paused(now + pause);
        Some(failure)
    }

    /// Returns the pause after a refusal.
    fn pause(&mut self, now: Duration) -> Duration {
        let before = self.refused.0;
        self.refused = (before.saturating_add(1), now);
        LONGEST_PAUSE.min(PAUSE * 2_u32.saturating_pow(before))
    }

    /// Repeats a request that was refused as early as if it had been refused once.
    pub(super) fn hasten(&mut self) {
        if let Turn::Paused(time) = self.turn {
            self.turn = Turn::Paused(time.min(self.refused.1 + PAUSE));
        }
    }

    /// Returns how the deletion ends if this answer ends it.
    fn ended_by(&self, answered: &Answered) -> Ended {
        let deleted = match answered {
            Ok(Reply::Multi(results)) if failure(results).is_none() => return Ended::Deleted,
            Ok(Reply::Multi(_)) | Err(_) => false,
            Ok(_) => true,
        };
        match self.retried {
            true => self.unwritten.map_or(Ended::Presumed, Ended::Unwritten),
            false if deleted => Ended::Deleted,
            false => Ended::GoneBefore,
        }
    }

    /// Takes in what the answer to the last request says.
    fn take_in(&mut self, answered: Answered) -> Result<(), Failure> {
        match (&self.state, answered) {
            // A refused sync has passed through the quorum as well.
            (State::Sync(_), Err(Failure::Refused(code))) if !code.is_passing() => self.synced(),
            (State::Sync(_), Ok(_)) => self.synced(),
            (State::Find(Orphan::Prefix(_)), Ok(Reply::Children { names, .. })) => {
                self.found(names.iter());
            }
            (State::Find(Orphan::Prefix(_)), Ok(Reply::Ephemerals(paths))) => {
                let dir = self.dir.clone();
                let here = paths.iter().filter(|path| parent(path) == dir);
                self.found(here.map(|path| name(path)));
            }
            (State::Find(Orphan::Marked(node, mark)), Ok(Reply::Data { data, .. })) => {
                match *data == *mark.as_bytes() {
                    true => self.state = State::Pull(node.clone(), mark.clone()),
                    false => self.gone(),
                }
            }
            // The node is not this client's, which may read its own.
            (State::Find(Orphan::Marked(..)), Err(Failure::Refused(ErrorCode::NO_AUTH))) => {
                self.gone();
            }
            (State::Delete(_) | State::Pull(..), Ok(Reply::Multi(results))) => {
                match culprit(&results) {
                    Some((0, ErrorCode::NO_AUTH)) if self.writes() && !self.stays => {
                        self.stays = true;
                    }
                    None if self.stays => self.writes_nothing(),
                    None | Some((0, ErrorCode::NO_NODE)) => self.gone(),
                    Some((_, code)) => return Err(Failure::Refused(code)),
                }
            }
            (State::Delete(_) | State::Pull(..), Ok(Reply::Nothing))
            | (_, Err(Failure::Refused(ErrorCode::NO_NODE))) => self.gone(),
            (_, Err(failure)) => return Err(failure.sorted()),
            (_, Ok(_)) => return Err(Failure::Lost),
        }
        Ok(())
    }

    fn synced(&mut self) {
        if let Some(orphan) = self.sought().cloned() {
            self.state = State::Find(orphan);
        }
    }

    /// Takes in which nodes are there.
    fn found<'a>(&mut self, names: impl Iterator<Item = &'a str>) {
        let prefix = self.name().unwrap_or_default();
        let ours = names.filter(|name| name.starts_with(prefix));
        let mut ours: Vec<_> = ours.map(str::to_owned).collect();
        ours.sort_unstable();
        match ours.is_empty() {
            true => self.gone(),
            false => self.state = State::Delete(ours),
        }
    }

    /// Takes in that the node to delete is gone, or that what was looked for is not there.
    fn gone(&mut self) {
        match mem::replace(&mut self.state, State::Delete(Vec::new())) {
            State::Sync(orphan) | State::Find(orphan) => self.missed = Some(orphan),
            State::Delete(mut names) => {
                names.pop();
                self.state = State::Delete(names);
            }
            State::Pull(..) => {}
        }
    }
}
