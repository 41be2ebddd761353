//! Who keeps a lock from its first waiter, and who keeps them.

use std::collections::BTreeMap;
use std::fmt;
use std::slice;

use super::queue::Queue;
use crate::contender::Contender;
use crate::recipe::dialect::Role;

/// Who keeps a lock from its waiters: its holders, and those that these wait for.
///
/// Made by [`Client::blockers`](crate::Client::blockers).
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
    pub(super) fn of(path: &str, queues: &[Queue], unreadable: Vec<String>) -> Self {
        let queues: BTreeMap<_, _> = queues.iter().map(|queue| (queue.path(), queue)).collect();
        let mut found = Self {
            unreadable,
            ..Self::default()
        };
        found.follow(path, &queues, &mut Vec::new());
        found
    }

    /// Returns the holders of the lock, and behind each that waits the holders of what it waits for.
    pub fn iter(&self) -> slice::Iter<'_, Blocker> {
        self.blockers.iter()
    }

    /// Returns the paths of a circle in which each holder waits for the next one's lock; `None` if there
    /// is none.
    pub fn deadlock(&self) -> Option<&[String]> {
        self.deadlock.as_deref()
    }

    /// Returns the nodes below which a holder may wait unseen, for this client may not read them.
    pub fn unreadable(&self) -> &[String] {
        &self.unreadable
    }

    /// Goes on at a lock; `way` has the locks that led there.
    fn follow(&mut self, path: &str, queues: &BTreeMap<&str, &Queue>, way: &mut Vec<String>) {
        if let Some(place) = way.iter().position(|before| before == path) {
            self.deadlock.get_or_insert_with(|| way[place..].to_vec());
            return;
        }
        let Some(queue) = queues.get(path) else {
            return;
        };
        if self.blockers.iter().any(|known| known.path == path) {
            return;
        }
        let holders = queue.holders().map(|holder| Blocker {
            path: path.to_owned(),
            holder: holder.clone(),
            waits_for: waits_for(holder, queues),
        });
        let holders: Vec<_> = holders.collect();
        self.blockers.extend(holders.iter().cloned());
        // Whoever waits for a permit has one as soon as any of the holders lets go.
        let any_will_do = holders.iter().all(|one| one.holder.role() == Role::Permit);
        if any_will_do && holders.iter().any(|one| one.waits_for.is_none()) {
            return;
        }
        way.push(path.to_owned());
        for next in holders.iter().filter_map(Blocker::waits_for) {
            self.follow(next, queues, way);
        }
        way.pop();
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
    /// Returns the lock that it holds.
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

/// As `/locks/a is held by db1 pid 4711 (make), which waits for /locks/b`.
impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is held by {}", self.path, self.holder)?;
        match &self.waits_for {
            Some(path) => write!(f, ", which waits for {path}"),
            None => Ok(()),
        }
    }
}

/// The lock that a holder waits for: its thread, its session, or what `zklock` runs under its lock.
fn waits_for(holder: &Contender, queues: &BTreeMap<&str, &Queue>) -> Option<String> {
    let same = |waiter: &&Contender| {
        let (one, other) = (&holder.owner().thread, &waiter.owner().thread);
        let threads = one.is_none() || other.is_none() || one == other;
        let inside = waiter
            .owner()
            .inside
            .iter()
            .any(|node| node == holder.node());
        inside || waiter.session_id() == holder.session_id() && threads
    };
    let waited_for = |queue: &&&Queue| queue.waiters().any(|waiter| same(&waiter));
    queues
        .values()
        .find(waited_for)
        .map(|queue| queue.path().to_owned())
}
