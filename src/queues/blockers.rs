//! The holders that keep a lock from its first waiter, and the holders that those wait for.

use std::fmt;
use std::slice;

use super::graph::Graph;
use super::queue::LockQueue;
use crate::contender::Contender;

/// The contenders that keep a lock from its waiters: its holders, and the holders that those wait for.
///
/// Returned by [`Client::blockers`](crate::Client::blockers).
///
/// # Example
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zklock::embedded::Server::start()?;
/// # let [client, other] = [(); 2].map(|()| zklock::Client::connect(server.hosts()).unwrap());
/// let guard = client.mutex("/locks/report")?.lock()?;
/// let blockers = other.blockers("/locks/report", "/locks")?;
/// for blocker in &blockers {
///     match blocker.waits_for() {
///         Some(path) => println!("{} waits for {path}", blocker.holder()),
///         None => println!("{} is at work", blocker.holder()),
///     }
/// }
/// assert!(blockers.deadlock().is_none());
/// # drop(guard);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Blockers {
    blockers: Vec<Blocker>,
    deadlock: Option<Vec<String>>,
    unreadable: Vec<String>,
}

/// One holder of a lock that others wait for.
#[derive(Clone, Debug)]
pub struct Blocker {
    path: String,
    holder: Contender,
    waits_for: Option<String>,
}

impl Blockers {
    pub(super) fn of(path: &str, queues: &[LockQueue], unreadable: Vec<String>) -> Self {
        let graph = Graph::of(queues, None);
        let blockers = graph.holders_behind(path).into_iter();
        let blockers = blockers.map(|(path, holder, waits_for)| Blocker {
            path: path.to_owned(),
            holder: holder.clone(),
            waits_for: waits_for.map(str::to_owned),
        });
        Self {
            blockers: blockers.collect(),
            deadlock: graph.circle_from(path),
            unreadable,
        }
    }

    /// Returns the holders of the lock and, for each holder that waits, the holders of the lock
    /// that it waits for.
    ///
    /// A holder that waits for several locks appears once for each of them.
    pub fn iter(&self) -> slice::Iter<'_, Blocker> {
        self.blockers.iter()
    }

    /// Returns the paths of a circle in which each holder waits for the next one's lock; `None` if
    /// there is none.
    pub fn deadlock(&self) -> Option<&[String]> {
        self.deadlock.as_deref()
    }

    /// Returns the nodes that this client cannot read; a holder may wait unseen below them.
    pub fn unreadable(&self) -> &[String] {
        &self.unreadable
    }
}

impl<'a> IntoIterator for &'a Blockers {
    type Item = &'a Blocker;
    type IntoIter = slice::Iter<'a, Blocker>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl Blocker {
    /// Returns the lock that the blocker holds.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the holder.
    pub fn holder(&self) -> &Contender {
        &self.holder
    }

    /// Returns the lock that the holder waits for, if it waits for one.
    pub fn waits_for(&self) -> Option<&str> {
        self.waits_for.as_deref()
    }
}

/// Formats the blocker as `/locks/a is held by db1 pid 4711 (make), which waits for /locks/b`.
impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is held by {}", self.path, self.holder)?;
        match &self.waits_for {
            Some(path) => write!(f, ", which waits for {path}"),
            None => Ok(()),
        }
    }
}
