//! Every lock below a path, and who is in its queue.

mod blockers;
mod queue;
mod tree;

use std::slice;
use std::sync::Arc;
use std::vec;

pub use self::blockers::{Blocker, Blockers};
pub use self::queue::Queue;
use crate::error::{Error, Result};
use crate::owner::Owner;
use crate::path;
use crate::session::Session;

/// The locks that somebody holds or waits for, below one path.
///
/// Made by [`Client::locks`](crate::Client::locks). It shows each lock as it was at one moment, and
/// different locks at different ones.
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
pub struct Queues {
    queues: Vec<Queue>,
    unreadable: Vec<String>,
}

impl Queues {
    pub(crate) fn below(session: &Arc<Session>, root: &str) -> Result<Self> {
        let read = tree::read(session, root);
        let (queues, unreadable) =
            read.map_err(|error| error.into_error(root, || session.unanswered()))?;
        Ok(Self { queues, unreadable })
    }

    /// Tells who keeps a lock from its first waiter.
    pub(crate) fn blockers(session: &Arc<Session>, path: &str, root: &str) -> Result<Blockers> {
        path::check_root(root)?;
        let Self {
            mut queues,
            unreadable,
        } = Self::below(session, root)?;
        // It need not lie below the root; and whoever may not read it is told so.
        let contenders = session.contenders(path)?;
        queues.retain(|queue| queue.path != path);
        queues.push(Queue {
            path: path.to_owned(),
            contenders,
            permits: None,
        });
        Ok(Blockers::of(path, &queues, unreadable))
    }

    /// Returns the locks in the order of their paths.
    pub fn iter(&self) -> slice::Iter<'_, Queue> {
        self.queues.iter()
    }

    /// Returns the number of locks.
    pub fn len(&self) -> usize {
        self.queues.len()
    }

    /// Returns `true` if there is no lock that somebody holds or waits for.
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Returns the nodes below which there may be more locks, for this client may not read them.
    pub fn unreadable(&self) -> &[String] {
        &self.unreadable
    }
}

/// Fails if this thread holds a lock that somebody waits for who keeps it from the lock of `nearest`.
pub(crate) fn fail_in_a_circle(session: &Arc<Session>, nearest: &str, root: &str) -> Result<()> {
    let path = path::parent(nearest);
    // Of two that close a circle together, the later one sees the other.
    session.catch_up(path)?;
    let blockers = Queues::blockers(session, path, root)?;
    let me = Owner::parse(&session.settings.card.text(None));
    let is_ours = |blocker: &&Blocker| {
        let holder = blocker.holder().owner();
        // Threads without a name look alike.
        let named = me.thread.is_some() && holder.thread == me.thread;
        let here = (&holder.host, holder.pid, holder.started) == (&me.host, me.pid, me.started);
        named && here && blocker.waits_for() == Some(path)
    };
    match blockers.deadlock() {
        Some(circle) if blockers.iter().any(|one| is_ours(&one)) => Err(Error::Deadlock {
            path: path.to_owned(),
            circle: circle.to_vec(),
        }),
        _ => Ok(()),
    }
}

impl<'a> IntoIterator for &'a Queues {
    type Item = &'a Queue;
    type IntoIter = slice::Iter<'a, Queue>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl IntoIterator for Queues {
    type Item = Queue;
    type IntoIter = vec::IntoIter<Queue>;

    fn into_iter(self) -> Self::IntoIter {
        self.queues.into_iter()
    }
}
