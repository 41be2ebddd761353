//! The places where the contenders of a path have their nodes, for every kind of lock.
//!
//! The contenders of a mutex or a read-write lock are the path's own children. Curator's semaphore has its
//! permits in `leases` and its line in `locks`; the first in the line has a node in both while it waits for
//! a permit. kazoo's semaphore has its permits as the path's own children, and its line beside the path.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use super::dialect::{Kind, Role};
use super::name::NodeName;
use zklock_jute::Names;

/// The directories of Curator's semaphore, and of the numbers of our permits, below the path.
pub const OF_A_SEMAPHORE: [&str; 3] = ["leases", "locks", "numbers"];

/// Returns the children of kazoo's semaphore that count as permits.
///
/// A client with another dialect may have created its directories there before it noticed that it was wrong.
/// The server does not remove those that were never used.
pub fn permits_of_kazoos(children: &Names) -> Names {
    children.without(&["locks", "numbers"])
}

/// The directories where a path may have contenders.
#[derive(Clone, Debug)]
pub struct Places {
    /// The path itself.
    pub own: String,
    /// The permits of Curator's semaphore.
    pub leases: String,
    /// The line of Curator's semaphore.
    pub locks: String,
    /// The line of kazoo's semaphore.
    pub beside: String,
}

/// The node of a holder or a waiter.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Spot {
    /// The full path.
    pub node: String,
    /// The role that the contender asks for.
    pub role: Role,
    /// Whether the contender holds, as far as the names tell.
    pub holds: bool,
}

/// All holders and waiters of a path, as far as the names tell.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Spots {
    /// The contenders of a mutex or a read-write lock, and the permits of kazoo's semaphore.
    pub own: Vec<Spot>,
    /// Curator's permits. The last one may be requested and not granted yet.
    pub permits: Vec<Spot>,
    /// The line of a semaphore.
    pub line: Vec<Spot>,
}

impl Places {
    /// Names the directories of `path`.
    pub fn of(path: &str) -> Self {
        Self {
            own: path.to_owned(),
            leases: format!("{path}/leases"),
            locks: format!("{path}/locks"),
            beside: format!("{path}-__lock__"),
        }
    }

    /// Returns the holders and waiters, each list in order of arrival.
    ///
    /// `list` is asked for the names in each directory, `None` if there is none, in the order of the fields; and
    /// told whether they count. Other nodes may have such a name by chance. The path's own children show when
    /// another directory is created, except for kazoo's.
    pub fn spots<E>(
        &self,
        mut list: impl FnMut(&str, bool) -> Result<Option<Names>, E>,
    ) -> Result<Spots, E> {
        let own = list(&self.own, true)?;
        let has = |child| own.as_ref().is_some_and(|own| own.contains(child));
        let lease = |name: NodeName<'_>| name.kind == Kind::KazooLease;
        let may_be_kazoos = |own: &Names| own.iter().filter_map(NodeName::parse).all(lease);
        let is_curators = has("leases");
        let may_be_kazoos = !is_curators && own.as_ref().is_some_and(may_be_kazoos);
        let leases = list(&self.leases, is_curators)?;
        let locks = list(&self.locks, is_curators && has("locks"))?;
        let beside = list(&self.beside, may_be_kazoos)?;
        let own = sorted(own.as_ref(), |_| true);
        let own = (0..own.len()).map(|place| spot(&self.own, &own, place));
        let mut spots = Spots {
            own: own.collect(),
            ..Spots::default()
        };
        if is_curators {
            let leases = sorted(leases.as_ref(), |kind| kind == Kind::Lease);
            let line = sorted(locks.as_ref(), |kind| kind.role() == Role::Exclusive);
            spots.permits = permits(&self.leases, &leases, true);
            spots.line = permits(&self.locks, &line, false);
        } else if may_be_kazoos {
            let line = sorted(beside.as_ref(), |kind| kind == Kind::KazooLock);
            spots.line = permits(&self.beside, &line, false);
        }
        Ok(spots)
    }
}

impl Spots {
    /// Returns all holders and waiters, holders first.
    pub fn all(&self) -> impl Iterator<Item = &Spot> + Clone {
        self.own.iter().chain(&self.permits).chain(&self.line)
    }
}

fn sorted(names: Option<&Names>, wanted: impl Fn(Kind) -> bool) -> Vec<NodeName<'_>> {
    let names = names.into_iter().flat_map(|names| names.iter());
    let mut names: Vec<_> = names
        .filter_map(NodeName::parse)
        .filter(|name| wanted(name.kind))
        .collect();
    names.sort_by_key(|name| name.sequence);
    names
}

/// Returns one contender in the path's own queue.
fn spot(dir: &str, queue: &[NodeName<'_>], place: usize) -> Spot {
    let name = queue[place];
    let role = name.kind.role();
    let conflicts = |other: &NodeName<'_>| {
        let other = other.kind.role().sharing();
        other.conflicts(role.sharing())
    };
    Spot {
        node: format!("{dir}/{}", name.text),
        role,
        // A permit's node is the permit.
        holds: role == Role::Permit || !queue[..place].iter().any(conflicts),
    }
}

fn permits(dir: &str, names: &[NodeName<'_>], holds: bool) -> Vec<Spot> {
    let spot = |name: &NodeName<'_>| Spot {
        node: format!("{dir}/{}", name.text),
        role: Role::Permit,
        holds,
    };
    names.iter().map(spot).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KAZOO: &str = "0123456789abcdef0123456789abcdef";

    fn names(text: &str) -> Option<Names> {
        match text {
            "-" => None,
            text => Some(text.split_whitespace().collect()),
        }
    }

    /// `own | leases | locks | beside`, the holders (`+`) and waiters, and the directories that count
    /// besides the path itself.
    #[test]
    fn whoever_is_at_a_path_is_found_where_the_kind_of_lock_has_them() {
        let table = [
            ("-", "-", "-", "a__lock__0000000001", "", ""),
            (
                "a-lock-0000000002 a-lock-0000000001",
                "-",
                "-",
                "-",
                "+a-lock-0000000001 a-lock-0000000002",
                "",
            ),
            (
                "leases locks",
                "a-lease-0000000003 x",
                "b-lock-0000000009",
                "-",
                "+a-lease-0000000003 b-lock-0000000009",
                "/p/leases /p/locks",
            ),
            // A lock named `locks` below a path that is no lock.
            ("locks", "-", "b-lock-0000000009", "-", "", "/p-__lock__"),
            (
                "leases",
                "a-lease-0000000003",
                "-",
                "-",
                "+a-lease-0000000003",
                "/p/leases",
            ),
            (
                "",
                "-",
                "-",
                "a__lock__0000000001",
                "a__lock__0000000001",
                "/p-__lock__",
            ),
            (
                KAZOO,
                "-",
                "-",
                "a__lock__0000000001 b-lock-0000000001",
                "+0123456789abcdef0123456789abcdef a__lock__0000000001",
                "/p-__lock__",
            ),
            // A mutex with another one beside it.
            (
                "a-lock-0000000001",
                "-",
                "-",
                "a__lock__0000000001",
                "+a-lock-0000000001",
                "",
            ),
        ];
        for (own, leases, locks, beside, expected, counted) in table {
            let mut counts = Vec::new();
            let list = |dir: &str, counts_too: bool| {
                counts.extend(counts_too.then(|| dir.to_owned()));
                match dir {
                    "/p" => Ok(names(own)),
                    "/p/leases" => Ok(names(leases)),
                    "/p/locks" => Ok(names(locks)),
                    "/p-__lock__" => Ok(names(beside)),
                    _ => Err(()),
                }
            };
            let spots = Places::of("/p").spots(list).unwrap();
            assert_eq!(
                counts.join(" "),
                format!("/p {counted}").trim_end(),
                "{own}"
            );
            let told = spots.all().map(|spot| {
                let name = spot.node.rsplit('/').next().unwrap_or_default();
                format!("{}{name}", if spot.holds { "+" } else { "" })
            });
            assert_eq!(told.collect::<Vec<_>>().join(" "), expected, "{own}");
        }
    }
}
