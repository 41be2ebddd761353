//! Every lock below a path, and its queue.

mod blockers;
mod graph;
mod queue;
mod tree;

use std::collections::HashSet;
use std::slice;
use std::sync::Arc;
use std::vec;

pub use self::blockers::{Blocker, Blockers};
use self::graph::{Asking, Graph, without_number};
pub use self::queue::LockQueue;
use self::tree::Extent;
use crate::error::{Error, Result};
use crate::path;
use crate::session::Session;
use crate::session::call_error::CallError;
use crate::system::process;
use crate::time::limit::Limit;
use zklock_core::connection::sync;

/// The locks below one path that a client holds or waits for.
///
/// Returned by [`Client::locks`](crate::Client::locks). Each lock is shown at one moment, and
/// different locks at different moments.
///
/// # Example
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zklock::embedded::Server::start()?;
/// # let client = zklock::Client::connect(server.hosts())?;
/// let guard = client.mutex("/locks/nightly/report")?.lock()?;
/// for queue in &client.locks("/locks")? {
///     let holder = queue.holders().next().expect("nobody waits here");
///     println!("{} is held by {holder}, and {} wait", queue.path(), queue.waiters().count());
/// }
/// # drop(guard);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Locks {
    queues: Vec<LockQueue>,
    unreadable: Vec<String>,
}

impl Locks {
    pub(crate) fn below(session: &Arc<Session>, root: &str) -> Result<Self> {
        let read = Self::below_within(session, root, Extent::All, Session::query_limit);
        read.map_err(|error| error.into_error(root, || session.unanswered()))
    }

    fn below_within(
        session: &Arc<Session>,
        root: &str,
        extent: Extent,
        limit: impl Fn() -> Limit,
    ) -> Result<Self, CallError> {
        let (queues, unreadable) = tree::read(session, root, extent, &limit)?;
        Ok(Self { queues, unreadable })
    }

    /// Returns the holders that keep a lock from its first waiter.
    pub(crate) fn blockers(session: &Arc<Session>, path: &str, root: &str) -> Result<Blockers> {
        let read = Self::with(session, path, root, Session::query_limit);
        let Self { queues, unreadable } =
            read.map_err(|error| error.into_error(path, || session.unanswered()))?;
        Ok(Blockers::of(path, &queues, unreadable))
    }

    /// Returns the locks below a root, and the lock at `path`, which may lie elsewhere. Fails if
    /// the client has no access to `path`.
    fn with(
        session: &Arc<Session>,
        path: &str,
        root: &str,
        limit: impl Fn() -> Limit,
    ) -> Result<Self, CallError> {
        let mut found = Self::below_within(session, root, Extent::Contenders, &limit)?;
        let known = found.queues.iter().find(|queue| queue.path == path);
        let kept = known.map(|queue| queue.kept.clone()).unwrap_or_default();
        let contenders = session.contenders_behind(&[], path, &limit)?;
        found.queues.retain(|queue| queue.path != path);
        found.queues.push(LockQueue {
            path: path.to_owned(),
            contenders,
            kept,
        });
        Ok(found)
    }

    /// Returns the locks in the order of their paths.
    pub fn iter(&self) -> slice::Iter<'_, LockQueue> {
        self.queues.iter()
    }

    /// Returns the number of locks.
    pub fn len(&self) -> usize {
        self.queues.len()
    }

    /// Returns `true` if there is no lock that a client holds or waits for.
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Returns the nodes below which there may be more locks: those that this client may not read,
    /// and those with so many children that their list is longer than the client accepts
    /// ([`ClientBuilder::max_buffer`](crate::ClientBuilder::max_buffer)).
    pub fn unreadable(&self) -> &[String] {
        &self.unreadable
    }
}

/// Fails if a contender that keeps this thread from the lock of `nearest` waits for a lock that
/// this thread holds.
///
/// Succeeds if the limit is reached or no server answers: the wait goes on.
pub(crate) fn fail_in_a_circle(
    session: &Arc<Session>,
    nearest: &str,
    several: bool,
    root: &str,
    limit: &Limit,
) -> Result<()> {
    let path = path::parent(nearest);
    match circle(session, path, several, root, limit) {
        Ok(Some(circle)) => Err(Error::Deadlock {
            path: path.to_owned(),
            circle,
        }),
        Ok(None) => Ok(()),
        Err(error) => error.or(path, ()),
    }
}

fn circle(
    session: &Arc<Session>,
    path: &str,
    several: bool,
    root: &str,
    limit: &Limit,
) -> Result<Option<Vec<String>>, CallError> {
    let held = session.leases.of_this_thread();
    let around = process::locks_around();
    let nodes: HashSet<_> = held
        .iter()
        .chain(&around)
        .map(|node| path::name(node).to_owned())
        .collect();
    // No contender waits for a thread that holds nothing.
    if nodes.is_empty() && !several {
        return Ok(None);
    }
    // If two waiters close a circle together, the later one sees the other.
    match session.caller().call(&sync(path), path, limit) {
        Ok(_) | Err(CallError::Refused(_)) => {}
        Err(error) => return Err(error),
    }
    let found = Locks::with(session, path, root, || limit.clone())?;
    let here = found.queues.iter().find(|queue| queue.path == path);
    let mine = here.into_iter().flat_map(LockQueue::waiters);
    let own = mine
        .filter(|one| one.is_of_this_thread())
        .map(|one| without_number(path::name(one.node())).to_owned());
    let asking = Asking {
        path,
        nodes,
        own: own.collect(),
    };
    Ok(Graph::of(&found.queues, Some(asking)).circle_of_the_asking())
}

impl<'a> IntoIterator for &'a Locks {
    type Item = &'a LockQueue;
    type IntoIter = slice::Iter<'a, LockQueue>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl IntoIterator for Locks {
    type Item = LockQueue;
    type IntoIter = vec::IntoIter<LockQueue>;

    fn into_iter(self) -> Self::IntoIter {
        self.queues.into_iter()
    }
}
