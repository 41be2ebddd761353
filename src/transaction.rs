//! A transaction that is carried out while a lock is held.

use std::fmt;

use crate::error::{Error, Result};
use crate::path;
use zklock_jute::{Access, CreateMode, Request};

/// Writes to ZooKeeper that are all carried out while the lock is held, or not at all.
///
/// Created by [`LockGuard::transaction`](crate::LockGuard::transaction). For data in ZooKeeper
/// itself, this closes the gap between a check and a write: a holder whose process was paused after
/// [`check`](crate::LockGuard::check) can write nothing once another client has the lock. The
/// servers decide, not a clock. For data elsewhere, use the [`FencingToken`](crate::FencingToken).
///
/// The transaction begins with a check of the guard's nodes: it is one request, and one quorum
/// write. The nodes that it creates are persistent, with the access control list of the client.
///
/// # A lost answer
///
/// When the connection breaks after the request was sent, the client cannot know whether it was
/// carried out: [`commit`](Self::commit) fails with
/// [`Error::Unconfirmed`](crate::Error::Unconfirmed), and does not repeat it. You may repeat a
/// transaction if a second one does no harm. [`version`](Self::version) ensures that: the second
/// one finds another version, and is refused. So does data that shows whether it was carried out,
/// such as the fencing token and the number of the step. Read it after the guard's
/// [`verify`](crate::LockGuard::verify), because a server that the client has moved to may not have
/// heard of the transaction before. Until then it may still be on its way.
///
/// # Example
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zklock::embedded::Server::start()?;
/// # let client = zklock::Client::connect(server.hosts())?;
/// let guard = client.mutex("/locks/import")?.lock()?;
/// let nodes = client.nodes();
/// nodes.create("/import", b"")?;
/// nodes.create("/import/progress", b"page 0")?;
///
/// let progress = nodes.get("/import/progress")?.expect("it was created");
/// guard
///     .transaction()
///     .set("/import/progress", b"page 7")
///     .version(progress.version())
///     .create("/import/page-7", b"done")
///     .commit()?;
/// assert_eq!(nodes.get("/import/progress")?.expect("a node").data(), b"page 7");
///
/// // Somebody evicts the holder: it can write nothing more.
/// client.contenders("/locks/import")?[0].evict()?;
/// let late = guard.transaction().set("/import/progress", b"page 8").commit();
/// assert!(late.is_err_and(|error| error.is_lost()));
/// assert_eq!(nodes.get("/import/progress")?.expect("a node").data(), b"page 7");
/// # Ok(())
/// # }
/// ```
#[must_use = "a transaction does nothing until it is committed"]
pub struct Transaction<'a> {
    /// Absent over a database.
    lock: Option<&'a dyn Lock>,
    ops: Vec<Request>,
    /// The error of the steps so far.
    wrong: Option<Error>,
}

/// The lock that guards a transaction.
pub(crate) trait Lock {
    /// Carries out all of these operations while the lock is held, or none of them.
    fn commit(&self, ops: Vec<Request>) -> Result<()>;

    /// Returns the access control list of the nodes that are created.
    fn acl(&self) -> Vec<Access>;
}

impl<'a> Transaction<'a> {
    pub(crate) fn new(lock: Option<&'a dyn Lock>) -> Self {
        Self {
            lock,
            ops: Vec::new(),
            wrong: None,
        }
    }

    /// Creates a node; its parent must exist.
    pub fn create(self, path: &str, data: impl Into<Vec<u8>>) -> Self {
        let acl = self.lock.map_or_else(Vec::new, Lock::acl);
        self.step(path, |path| {
            Request::create(path, data.into(), acl, CreateMode::Persistent)
        })
    }

    /// Replaces the data of a node, which must exist.
    pub fn set(self, path: &str, data: impl Into<Vec<u8>>) -> Self {
        self.step(path, |path| Request::set(path, data.into(), -1))
    }

    /// Deletes a node, which must exist and have no children. Deleting the guard's own nodes is an
    /// [`Error::BadArgument`].
    pub fn delete(self, path: &str) -> Self {
        self.step(path, Request::delete)
    }

    /// Makes the previous step, a `set` or a `delete`, fail unless the node has this version.
    ///
    /// Every change of a node's data increments its [`version`](crate::Node::version).
    pub fn version(mut self, expected: i32) -> Self {
        match self.ops.last_mut() {
            Some(Request::SetData { version, .. } | Request::Delete { version, .. }) => {
                *version = expected
            }
            _ => {
                self.wrong.get_or_insert_with(|| Error::BadArgument {
                    name: "version",
                    rule: "it belongs after a set or a delete".into(),
                });
            }
        }
        self
    }

    /// Carries out all steps in order if the lock is held, or none.
    ///
    /// Blocks for one round trip and a commit of the quorum; when the connection is lost, at most
    /// until the guard's deadline.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Lost`] if the lock was lost, with [`Error::Closed`], with
    /// [`Error::Suspect`] if there was no connection to send it on, with [`Error::Refused`] or
    /// [`Error::NoAuth`] for the step that the servers refused, such as a version that has changed,
    /// with [`Error::BadPath`] and [`Error::BadArgument`] for impossible steps, with
    /// [`Error::RequestTooLong`], and with [`Error::Unsupported`] on a handle of the `zookeeper`
    /// crate and over a database: nothing was done then. With [`Error::Unconfirmed`] it is not
    /// known whether the transaction was carried out.
    pub fn commit(self) -> Result<()> {
        if let Some(wrong) = self.wrong {
            return Err(wrong);
        }
        let lock = self.lock.ok_or(Error::Unsupported {
            what: "a transaction: write in one of the database's own, with the fencing token",
        })?;
        lock.commit(self.ops)
    }

    fn step(mut self, path: &str, op: impl FnOnce(String) -> Request) -> Self {
        match path::check(path) {
            Ok(()) => self.ops.push(op(path.to_owned())),
            Err(error) => {
                self.wrong.get_or_insert(error);
            }
        }
        self
    }
}

impl fmt::Debug for Transaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = self.ops.iter().map(Request::path);
        f.debug_list().entries(steps).finish()
    }
}
