//! Requests to a session that several kinds of locks share.

use std::time::Duration;

use super::call_error::{CallError, not_made, refused};
use crate::error::{Error, Result};
use crate::session::Session;
use crate::session::caller::{Caller, Replies};
use crate::time::limit::{Limit, LimitReached};
use crate::transport::Failure;
use zklock_core::connection::sync;
use zklock_core::directories::{self, Lasting};
use zklock_core::places::OF_A_SEMAPHORE;
use zklock_core::queue::{Foreign, strangers};
use zklock_jute::{Access, ErrorCode, Reply, Request, Stat};

/// How long one request of a query may take.
const LIMIT: Duration = Duration::from_secs(15);

/// How many nodes are read, listed or deleted with one write.
pub(crate) const AT_A_TIME: usize = 500;

/// How many directories are created before their answers are awaited: few enough that the session's
/// proofs of life, which queue behind them, are not late.
const DIRECTORIES_AT_A_TIME: usize = 16;

impl Session {
    /// Returns the error of a queue with a contender that would not wait for this client.
    pub(crate) fn foreign(&self, dir: &str, foreign: Foreign) -> Error {
        let node = format!("{dir}/{}", foreign.node);
        if foreign.by_number {
            log::warn!("{node} is ordered by its number, and the numbers under {dir} are used up");
            return Error::Exhausted {
                path: dir.to_owned(),
                reason: "another library's contender is ordered by its number",
            };
        }
        Error::ForeignContender {
            node,
            library: foreign.library,
            dialect: foreign.dialect,
        }
    }

    /// Fails if the transport has no transactions, which `what` needs.
    pub(crate) fn needs_transactions(&self, what: &'static str) -> Result<()> {
        match self.transport.transacts() {
            true => Ok(()),
            false => Err(Error::Unsupported { what }),
        }
    }

    /// Creates the directories of several locks, and their ancestors.
    pub(crate) fn make_directories(
        &self,
        dirs: &[String],
        lasting: Lasting<'_>,
        limit: &Limit,
    ) -> Result<Result<(), LimitReached>> {
        let mut caller = self.caller();
        for dirs in dirs.chunks(DIRECTORIES_AT_A_TIME) {
            let mut posted = Vec::with_capacity(dirs.len());
            for dir in dirs {
                let requests = self.parents(dir, lasting);
                let count = requests.len();
                let first = caller.post(requests.into_iter().map(|request| (request, None)));
                posted.push((dir, first, count));
            }
            for (dir, first, count) in posted {
                let Ok(answers) = caller.wait_for_all(first, count, limit) else {
                    return Ok(Err(LimitReached));
                };
                match directories::trouble_with(&answers) {
                    Some(Failure::Refused(code)) => return Err(not_made(dir, code)),
                    Some(Failure::TooLong(long)) => return Err(Error::too_long(long, dir)),
                    _ => {}
                }
            }
        }
        Ok(Ok(()))
    }

    /// Returns the nodes below a path that are neither contenders nor a semaphore's own directories.
    pub(crate) fn strangers(&self, path: &str) -> Result<Vec<String>> {
        let Some(Reply::Children { names, .. }) = self.read(&Request::list(path), path)? else {
            return Ok(Vec::new());
        };
        let others = strangers(&names).filter(|name| !OF_A_SEMAPHORE.contains(name));
        let mut others: Vec<_> = others.map(|name| format!("{path}/{name}")).collect();
        others.sort_unstable();
        Ok(others)
    }

    /// Returns whether the root of all paths is missing, if a server says so within the limit.
    pub(crate) fn lacks_root(&self, limit: &Limit) -> Result<bool> {
        match self.caller().call(&Request::exists("/"), "/", limit) {
            Err(CallError::Refused(ErrorCode::NO_NODE)) => Ok(true),
            Err(CallError::Over(error)) => Err(error),
            _ => Ok(false),
        }
    }

    /// Deletes another client's node if its data has this version; returns whether the node is
    /// gone. Without an answer, it may be gone.
    pub(crate) fn delete_once(&self, node: &str, version: i32, limit: &Limit) -> Result<bool> {
        let path = node.to_owned();
        let delete = Request::Delete { path, version };
        match self.caller().call_once(&delete, node, limit) {
            Ok(answered) => Ok(answered.is_some()),
            Err(CallError::Refused(ErrorCode::BAD_VERSION)) => Ok(false),
            Err(CallError::Refused(ErrorCode::NO_NODE)) => Ok(true),
            Err(error) => Err(error.into_error(node, || self.unanswered())),
        }
    }

    /// Repeats a read until it is answered; returns `None` if the node does not exist.
    pub(crate) fn read(&self, request: &Request, path: &str) -> Result<Option<Reply>> {
        let answered = self.caller().call(request, path, &Self::query_limit());
        self.if_there(answered, path)
    }

    /// Like [`read`](Self::read), from a server that has caught up with its leader.
    pub(crate) fn read_latest(&self, request: Request, path: &str) -> Result<Option<Reply>> {
        let answered = self.ask_latest(request, path, &Self::query_limit());
        self.if_there(answered, path)
    }

    /// Asks a server that has caught up with its leader, until it answers or the limit is reached.
    pub(crate) fn ask_latest(
        &self,
        request: Request,
        path: &str,
        limit: &Limit,
    ) -> Result<Reply, CallError> {
        let requests = [sync(path), request];
        let mut answers = self.caller().call_all(&requests, path, limit)?;
        let answer = answers.pop().ok_or(LimitReached)?;
        answer.map_err(CallError::Refused)
    }

    fn if_there(&self, answered: Result<Reply, CallError>, path: &str) -> Result<Option<Reply>> {
        match answered {
            Ok(reply) => Ok(Some(reply)),
            Err(CallError::Refused(ErrorCode::NO_NODE)) => Ok(None),
            Err(error) => Err(error.into_error(path, || self.unanswered())),
        }
    }

    /// Makes the server that answers catch up with its leader.
    pub(crate) fn catch_up(&self, path: &str, limit: &Limit) -> Result<()> {
        match self.caller().call(&sync(path), path, limit) {
            Ok(_) | Err(CallError::Refused(_)) => Ok(()),
            Err(error) => Err(error.into_error(path, || self.unanswered_within(limit.spent()))),
        }
    }

    /// Reads each node, with a limit for each request; the result of a missing node is `None`.
    pub(crate) fn describe_within(
        &self,
        nodes: &[String],
        limit: impl Fn() -> Limit,
    ) -> Result<Vec<Option<Seen>>, CallError> {
        let mut caller = self.caller();
        let mut all = Vec::with_capacity(nodes.len());
        for nodes in nodes.chunks(AT_A_TIME) {
            let reads: Vec<_> = nodes.iter().map(|node| Request::get(node)).collect();
            let answers = caller.call_each(&reads, &limit)?;
            for (node, mut answer) in nodes.iter().zip(answers) {
                if answer == Err(ErrorCode::NO_AUTH) {
                    let look = [Request::exists(node)];
                    answer = caller.call_each(&look, &limit)?.remove(0);
                }
                all.push(match answer {
                    Ok(reply) => Seen::of(reply),
                    Err(ErrorCode::NO_NODE) => None,
                    Err(code) => return Err(CallError::Over(refused(node, code))),
                });
            }
        }
        Ok(all)
    }

    /// Returns the limit for each request of a query.
    pub(crate) fn query_limit() -> Limit {
        Limit::after(LIMIT)
    }

    /// Returns the error of a query that no server answered in time.
    pub(crate) fn unanswered(&self) -> Error {
        self.unanswered_within(LIMIT)
    }

    /// Returns the error of a call that no server answered within this limit.
    pub(crate) fn unanswered_within(&self, limit: Duration) -> Error {
        Error::ConnectTimeout {
            limit,
            tried: self.status.trouble(),
            round_trip: None,
            held_back: None,
        }
    }

    /// Returns the error of a write whose answer was lost, or did not come within this limit.
    pub(crate) fn unconfirmed(limit: &Limit) -> Error {
        Error::unconfirmed_write("the write", limit.spent())
    }

    /// Returns the access control list of the nodes that this client creates.
    pub(crate) fn acl(&self) -> Vec<Access> {
        self.settings.acl.entries().to_vec()
    }

    /// Returns the requests that create a lock's directory and its ancestors.
    pub(crate) fn parents(&self, dir: &str, lasting: Lasting<'_>) -> Vec<Request> {
        lasting.creates(dir, self.settings.dialect, self.settings.acl.entries())
    }
}

impl Caller {
    /// Like [`call_all`](Self::call_all), but a reply that is too long counts as the refusal of a read.
    pub(crate) fn call_each(
        &mut self,
        requests: &[Request],
        limit: &impl Fn() -> Limit,
    ) -> Result<Replies, CallError> {
        let about = requests.first().and_then(Request::reads).unwrap_or("/");
        match (self.call_all(requests, about, &limit()), requests) {
            (Err(CallError::Over(Error::ReplyTooLong { .. })), [_]) => {
                Ok(vec![Err(ErrorCode::NO_AUTH)])
            }
            (Err(CallError::Over(Error::ReplyTooLong { .. })), _) => {
                let (some, others) = requests.split_at(requests.len() / 2);
                let mut replies = self.call_each(some, limit)?;
                replies.extend(self.call_each(others, limit)?);
                Ok(replies)
            }
            (replies, _) => replies,
        }
    }
}

/// A node's data, empty if it may not be read, and its stat.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) data: Vec<u8>,
    pub(crate) stat: Stat,
}

impl Seen {
    pub(crate) fn of(reply: Reply) -> Option<Self> {
        let (data, stat) = match reply {
            Reply::Data { data, stat } => (data.into(), stat),
            Reply::Stat(stat) => (Vec::new(), stat),
            _ => return None,
        };
        Some(Self { data, stat })
    }
}
