//! The few operations of ZooKeeper that a job needs besides its lock.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::error::{Error, Result};
use crate::lock::{Locks, described};
use crate::path;
use crate::session::Session;
use crate::session::call_error::{CallError, not_created, refused};
use crate::session::caller::Replies;
use crate::session::queries::AT_A_TIME;
use crate::time::limit::Limit;
use crate::time::utc;
use zklock_jute::{CreateMode, ErrorCode, Reply, Request, Stat};

/// How long a call may take by default.
const LIMIT: Duration = Duration::from_secs(15);

/// Reads and writes nodes of ZooKeeper: a configuration, a list of tasks, what a run left behind.
///
/// Created by [`Client::nodes`](crate::Client::nodes). The requests go through the client's own
/// session, so the holder of a lock reads here what earlier holders wrote before they released it.
/// Other reads of other clients' nodes may be as stale as the server that the client is connected
/// to.
///
/// Writes here are **not** guarded by a lock: use
/// [`LockGuard::transaction`](crate::LockGuard::transaction) for that.
///
/// Each call blocks until it is answered, at most for [`limit`](Self::limit). When the connection
/// is lost, reads are repeated on the next connection; a write whose answer is lost is not
/// repeated, and fails with [`Error::Unconfirmed`].
///
/// # Example
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zklock::embedded::Server::start()?;
/// # let client = zklock::Client::connect(server.hosts())?;
/// let nodes = client.nodes();
/// nodes.create("/tasks", b"")?;
/// nodes.create("/tasks/eu", b"rate=100")?;
/// for name in nodes.children("/tasks")? {
///     let task = nodes.get(&format!("/tasks/{name}"))?;
///     println!("{name}: {:?}", task.map(|task| task.into_data()));
/// }
/// nodes.delete_all("/tasks")?;
/// assert!(!nodes.exists("/tasks")?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Nodes {
    locks: Arc<Locks>,
    limit: Duration,
}

described!(Nodes, it: limit = it.limit);

/// The data of a node, and when it was created and changed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Node {
    data: Vec<u8>,
    stat: Stat,
}

impl Nodes {
    pub(crate) fn new(locks: &Arc<Locks>) -> Self {
        Self {
            locks: locks.clone(),
            limit: LIMIT,
        }
    }

    /// Limits how long each call may take. Defaults to 15 seconds.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Returns a node; `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::BadPath`], with [`Error::NoAuth`] or [`Error::Refused`] as the server
    /// answers, with [`Error::ReplyTooLong`], with [`Error::Closed`], and with
    /// [`Error::ConnectTimeout`] if no server answers in time.
    pub fn get(&self, path: &str) -> Result<Option<Node>> {
        match self.read(path, Request::get(path))? {
            Some(Reply::Data { data, stat }) => Ok(Some(Node {
                data: data.into(),
                stat,
            })),
            _ => Ok(None),
        }
    }

    /// Returns the names of a node's children, sorted as text; for `/`, of all nodes at the top.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get), and with [`Error::Refused`] if the node does not exist.
    pub fn children(&self, path: &str) -> Result<Vec<String>> {
        match self.read(path, Request::list(path))? {
            Some(Reply::Children { names, .. }) => {
                let mut names: Vec<_> = names.iter().map(ToOwned::to_owned).collect();
                names.sort_unstable();
                Ok(names)
            }
            _ => Err(refused(path, ErrorCode::NO_NODE)),
        }
    }

    /// Returns whether a node exists.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub fn exists(&self, path: &str) -> Result<bool> {
        Ok(self.read(path, Request::exists(path))?.is_some())
    }

    /// Creates a persistent node with the access control list of the client; its parent must exist.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Refused`] if the node exists or its parent does not, with
    /// [`Error::Unconfirmed`] if the answer was lost, with [`Error::RequestTooLong`], and as
    /// [`get`](Self::get).
    pub fn create(&self, path: &str, data: impl Into<Vec<u8>>) -> Result<()> {
        let create = Request::create(
            path,
            data.into(),
            self.session().acl(),
            CreateMode::Persistent,
        );
        self.write(path, &create, not_created)
    }

    /// Replaces the data of a node.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Refused`] if the node does not exist, and as [`create`](Self::create).
    pub fn set(&self, path: &str, data: impl Into<Vec<u8>>) -> Result<()> {
        let set = Request::set(path, data.into(), -1);
        self.write(path, &set, refused)
    }

    /// Deletes a node that has no children; returns whether it was there.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Refused`] if the node has children, and as [`create`](Self::create).
    pub fn delete(&self, path: &str) -> Result<bool> {
        match self.write(path, &Request::delete(path.to_owned()), refused) {
            Err(Error::Refused { code, .. }) if code == ErrorCode::NO_NODE.0 => Ok(false),
            done => done.map(|()| true),
        }
    }

    /// Deletes a node and all nodes below it; returns how many deletions were confirmed.
    ///
    /// Nodes that are created below it meanwhile are deleted as well, until the limit. This is not
    /// a transaction: a call that fails may have deleted some of the nodes.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::BadPath`] for the root, with [`Error::Unconfirmed`] if it takes longer
    /// than the limit, and as [`get`](Self::get).
    pub fn delete_all(&self, path: &str) -> Result<u64> {
        path::check(path)?;
        let limit = Limit::after(self.limit);
        let mut deleted = 0;
        loop {
            let nodes = self.below(path, &limit)?;
            let Some(nodes) = nodes else {
                return Ok(deleted);
            };
            // The deepest first.
            for nodes in nodes.rchunks(AT_A_TIME) {
                let requests: Vec<_> = nodes
                    .iter()
                    .rev()
                    .map(|node| Request::delete(node.clone()))
                    .collect();
                for (node, answer) in nodes.iter().rev().zip(self.ask(&requests, path, &limit)?) {
                    match answer {
                        Ok(_) => deleted += 1,
                        // The node is gone, or it has new nodes below it, which the next round finds.
                        Err(ErrorCode::NO_NODE | ErrorCode::NOT_EMPTY) => {}
                        Err(code) => return Err(refused(node, code)),
                    }
                }
            }
        }
    }

    /// Lists a node and all nodes below it, parents first; returns `None` if it does not exist.
    fn below(&self, path: &str, limit: &Limit) -> Result<Option<Vec<String>>> {
        let mut all = Vec::new();
        let mut level = vec![path.to_owned()];
        while !level.is_empty() {
            let mut next = Vec::new();
            for nodes in level.chunks(AT_A_TIME) {
                let lists: Vec<_> = nodes.iter().map(|node| Request::list(node)).collect();
                for (node, answer) in nodes.iter().zip(self.ask(&lists, path, limit)?) {
                    match answer {
                        Ok(Reply::Children { names, .. }) => {
                            next.extend(names.iter().map(|name| format!("{node}/{name}")));
                            all.push(node.clone());
                        }
                        Ok(_) | Err(ErrorCode::NO_NODE) => {}
                        Err(code) => return Err(refused(node, code)),
                    }
                }
            }
            level = next;
        }
        Ok((!all.is_empty()).then_some(all))
    }

    fn ask(&self, requests: &[Request], path: &str, limit: &Limit) -> Result<Replies> {
        let answers = self.session().caller().call_all(requests, path, limit);
        answers.map_err(|error| error.into_error(path, || Session::unconfirmed(limit)))
    }

    fn read(&self, path: &str, request: Request) -> Result<Option<Reply>> {
        if path != "/" {
            path::check(path)?;
        }
        let limit = Limit::after(self.limit);
        match self.session().caller().call(&request, path, &limit) {
            Ok(reply) => Ok(Some(reply)),
            Err(CallError::Refused(ErrorCode::NO_NODE)) => Ok(None),
            Err(error) => Err(error.into_error(path, || self.unanswered())),
        }
    }

    fn write(
        &self,
        path: &str,
        request: &Request,
        refused: impl Fn(&str, ErrorCode) -> Error,
    ) -> Result<()> {
        path::check(path)?;
        let limit = Limit::after(self.limit);
        let mut caller = self.session().caller();
        if caller.connected(&limit)?.is_none() {
            return Err(self.unanswered());
        }
        match caller.call_once(request, path, &limit) {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(Session::unconfirmed(&limit)),
            Err(CallError::Refused(code)) => Err(refused(path, code)),
            Err(error) => Err(error.into_error(path, || Session::unconfirmed(&limit))),
        }
    }

    fn unanswered(&self) -> Error {
        self.session().unanswered_within(self.limit)
    }

    fn session(&self) -> &Session {
        &self.locks.session
    }
}

impl Node {
    /// Returns the data.
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// Returns the data, without a copy.
    pub fn into_data(self) -> Vec<u8> {
        self.data
    }

    /// Returns how often the data was changed; see
    /// [`Transaction::version`](crate::Transaction::version).
    pub fn version(&self) -> i32 {
        self.stat.version
    }

    /// Returns the number of the transaction that created the node, as in a fencing token.
    pub fn czxid(&self) -> i64 {
        self.stat.czxid
    }

    /// Returns when the data was last changed, by the servers' clock.
    pub fn modified(&self) -> SystemTime {
        utc::time(self.stat.mtime)
    }
}
