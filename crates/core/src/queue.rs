//! The place of a contender in a queue, and the node that it has to wait for.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use super::dialect::{Dialect, Kind, Role, Sharing, Stance};
use super::name::{NodeName, may_be_hold};
use zklock_jute::Names;

/// A contender's request to a queue, and the dialect it uses.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Contest {
    /// The names we use.
    pub dialect: Dialect,
    /// The role that we ask for.
    pub role: Role,
    /// How many may hold at once, for permits.
    pub permits: usize,
}

/// The place of a contender.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Place {
    /// The contender is not in the queue.
    Missing,
    /// Nothing that the contender cannot share with is ahead of it.
    First,
    /// The contender has to wait.
    Blocked(Blocked),
    /// The contender has to wait until this many children of the directory have gone.
    Crowded(usize),
    /// The numbers are used up: the order is that of these nodes' creation ids.
    Exhausted(Vec<String>),
    /// A contender in this queue would not wait for us.
    Foreign(Foreign),
}

/// The contenders ahead of one that has to wait.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct Blocked {
    /// The nearest node whose departure can help.
    pub nearest: String,
    /// How many contenders that we cannot share with are ahead.
    pub ahead: usize,
    /// Whether `nearest` has nobody ahead that it cannot share with.
    pub holds: bool,
    /// Whether nothing can be ahead once `nearest` is deleted.
    ///
    /// This is so if we can share with all others ahead, and `nearest` cannot be turned into another node with the
    /// same number that we could not share with, as a writer may become a reader.
    pub last: bool,
    /// The node that `nearest` waits for, if its departure may leave `nearest` alone ahead, and
    /// so `last`.
    pub beyond: Option<String>,
    /// Whether `nearest` is alone ahead once `beyond` is deleted, and so `last`: nothing else was there.
    pub last_but_one: bool,
}

impl Blocked {
    /// Returns what is ahead once `beyond` is deleted.
    pub fn without_beyond(self) -> Self {
        Self {
            ahead: 1,
            holds: true,
            last: true,
            beyond: None,
            last_but_one: false,
            ..self
        }
    }
}

/// A contender that would not wait for us.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Foreign {
    /// The contender's node.
    pub node: String,
    /// The library that the contender looks like.
    pub library: &'static str,
    /// The dialect that excludes with the contender, if there is one.
    pub dialect: Option<Dialect>,
    /// Whether the contender orders by number although the numbers are used up. Until they were, it waited for us.
    pub by_number: bool,
}

/// One contender, with the key that orders it.
struct Listed<'a> {
    name: NodeName<'a>,
    sharing: Sharing,
    order: i64,
}

impl Foreign {
    fn of(node: &str, library: &'static str, dialect: Option<Dialect>) -> Self {
        Self {
            node: node.to_owned(),
            library,
            dialect,
            by_number: false,
        }
    }
}

impl Contest {
    /// Returns where the contender with the node `mine` stands.
    pub fn place(self, children: &Names, mine: &str) -> Place {
        if self.role == Role::Permit {
            return self.place_in_crowd(children, mine);
        }
        let entries = match self.entries(children) {
            Ok(entries) => entries,
            Err(foreign) => return Place::Foreign(foreign),
        };
        if entries.iter().any(|entry| entry.name.is_exhausted()) {
            let names = entries.iter().map(|entry| entry.name.text.to_owned());
            return match entries.iter().any(|entry| entry.name.text == mine) {
                true => Place::Exhausted(names.collect()),
                false => Place::Missing,
            };
        }
        self.stand(&entries, mine, true)
    }

    /// Returns our place. Every child counts as a permit, because the other clients count them all.
    fn place_in_crowd(self, children: &Names, mine: &str) -> Place {
        if let Err(foreign) = self.is_taken(children) {
            return Place::Foreign(foreign);
        }
        match children.len().saturating_sub(self.permits) {
            _ if !children.contains(mine) => Place::Missing,
            0 => Place::First,
            more => Place::Crowded(more),
        }
    }

    /// Returns whether a permit's node is created only where there is room for it.
    ///
    /// Curator creates the node and then counts; to kazoo every node is a permit in use.
    pub fn looks_first(self) -> bool {
        (self.dialect, self.role) == (Dialect::Kazoo, Role::Permit)
    }

    /// As [`place`](Self::place), ordered by creation ids.
    ///
    /// A node without a creation id is gone.
    pub fn place_by_birth(self, births: &BTreeMap<String, i64>, mine: &str) -> Place {
        let names: Names = births.keys().collect();
        let mut entries = match self.entries(&names) {
            Ok(entries) => entries,
            Err(foreign) => return Place::Foreign(foreign),
        };
        for entry in &mut entries {
            entry.order = births[entry.name.text];
        }
        self.stand(&entries, mine, false)
    }

    /// Returns whether a newcomer would have to wait.
    pub fn is_taken(self, children: &Names) -> Result<bool, Foreign> {
        if self.looks_first() {
            if let Some(foreign) = beside_semaphore(self.dialect, children) {
                return Err(foreign);
            }
        }
        if self.role == Role::Permit {
            return Ok(self.permits <= children.len());
        }
        let sharing = self.role.sharing();
        let entries = self.entries(children)?;
        Ok(entries.iter().any(|entry| entry.sharing.conflicts(sharing)))
    }

    /// Returns the contenders that this contest is about, in order of arrival.
    pub fn contenders(self, children: &Names) -> Vec<NodeName<'_>> {
        let names = children.iter().filter_map(NodeName::parse);
        let contends = |name: &NodeName<'_>| matches!(self.stance(name), Stance::Contends(_));
        let mut names: Vec<_> = names.filter(contends).collect();
        // Names without numbers are ordered by their text, however they are listed.
        names.sort_by_key(|name| (name.sequence, name.text));
        names
    }

    /// Returns the nodes ahead of `mine` that may be holds, or all that may be if `mine` is `None`. Beside
    /// each is the number of contenders of this library in between, which see the hold too.
    ///
    /// A listing without a hold costs a look at the beginnings of its names.
    pub fn holds_ahead<'a>(
        self,
        children: &'a Names,
        mine: Option<&str>,
    ) -> Vec<(NodeName<'a>, usize)> {
        if !children.iter().any(may_be_hold) {
            return Vec::new();
        }
        let mut ahead = self.contenders(children);
        if let Some(mine) = mine {
            let place = ahead.iter().position(|name| name.text == mine);
            ahead.truncate(place.unwrap_or(0));
        }
        let mut between = 0;
        let mut holds = Vec::new();
        for name in ahead.into_iter().rev() {
            match name.is_hold() {
                true => holds.push((name, between)),
                false => between += usize::from(name.is_ours()),
            }
        }
        holds.reverse();
        holds
    }

    /// Returns how a contender with this name relates to ours.
    ///
    /// All mutexes and read-write locks of this library wait for each other, whatever their kind and
    /// dialect. Other libraries know only the names of their own kind.
    fn stance(self, name: &NodeName<'_>) -> Stance {
        match self.dialect.stance(self.role, name.kind) {
            Stance::Refused(_) if name.kind.role() != Role::Permit && name.is_ours() => {
                Stance::Contends(name.kind.role().sharing())
            }
            stance => stance,
        }
    }

    fn entries(self, children: &Names) -> Result<Vec<Listed<'_>>, Foreign> {
        if self.role != Role::Permit {
            if let Some(foreign) = curators_semaphore(children) {
                return Err(foreign);
            }
        }
        let mut entries = Vec::with_capacity(children.len());
        for name in children.iter().filter_map(NodeName::parse) {
            match self.stance(&name) {
                Stance::Contends(sharing) => entries.push(Listed {
                    name,
                    sharing,
                    order: name.sequence,
                }),
                Stance::Ignored => {}
                Stance::Refused(dialect) => {
                    return Err(Foreign::of(name.text, name.maker(), dialect));
                }
            }
        }
        match by_number(&entries) {
            Some(foreign) => Err(foreign),
            None => Ok(entries),
        }
    }

    fn stand(self, entries: &[Listed<'_>], mine: &str, numbered: bool) -> Place {
        let Some(me) = entries.iter().find(|entry| entry.name.text == mine) else {
            return Place::Missing;
        };
        let conflicts = |entry: &&Listed<'_>| entry.sharing.conflicts(self.role.sharing());
        let before = entries.iter().filter(|entry| entry.order < me.order);
        let ahead = before.clone().filter(conflicts);
        let Some(nearest) = ahead.clone().max_by_key(|entry| entry.order) else {
            return Place::First;
        };
        let blocks = |entry: &Listed<'_>| {
            entry.order < nearest.order && entry.sharing.conflicts(nearest.sharing)
        };
        let farther = before.clone().filter(|entry| blocks(entry));
        let farther = farther.max_by_key(|entry| entry.order);
        // Behind a node that only this library waits for, a node of another library may have come in.
        let is_plain = |entry: &Listed<'_>| {
            let known = self.dialect.stance(self.role, entry.name.kind);
            numbered && entry.name.kind.passes_on(self.role) && matches!(known, Stance::Contends(_))
        };
        let plain = is_plain(nearest);
        let last = plain && ahead.clone().count() == 1;
        // Many readers may wait for one node, and a writer for many readers: they would look in vain.
        let beyond = farther.filter(|_| plain && !last && self.role == Role::Exclusive);
        // A hold ahead counts as reported until a listing shows that it is gone, so a listing is needed.
        let goes = |entry: &Listed<'_>| {
            let passes_on = entry.name.kind.passes_on(nearest.name.kind.role());
            is_plain(entry) && passes_on && !entry.name.is_hold()
        };
        Place::Blocked(Blocked {
            nearest: nearest.name.text.to_owned(),
            ahead: ahead.count(),
            holds: farther.is_none(),
            last,
            last_but_one: before.count() == 2 && beyond.is_some_and(goes),
            beyond: beyond.map(|entry| entry.name.text.to_owned()),
        })
    }
}

/// Finds a contender in a semaphore's directory that is not one of the semaphore's own.
///
/// Such a contender counts differently and would not wait for us. Only kazoo's semaphore has its permits
/// here; the others have them in a directory below, and no contender belongs here.
pub fn beside_semaphore(dialect: Dialect, children: &Names) -> Option<Foreign> {
    let named = children.iter().filter_map(NodeName::parse);
    let other = |name: &NodeName<'_>| dialect != Dialect::Kazoo || name.kind != Kind::KazooLease;
    let mut named = named.filter(other).map(|name| {
        let dialect = (name.kind == Kind::KazooLease).then_some(Dialect::Kazoo);
        Foreign::of(name.text, name.maker(), dialect)
    });
    let curators = || {
        let foreign = curators_semaphore(children).filter(|_| dialect == Dialect::Kazoo)?;
        Some(Foreign {
            dialect: Some(Dialect::Curator),
            ..foreign
        })
    };
    named.next().or_else(curators)
}

/// Finds the permits of Curator's semaphore in a directory that is used for something else.
///
/// Its queue, `locks`, tells nothing: the server deletes that container while nobody waits.
fn curators_semaphore(children: &Names) -> Option<Foreign> {
    let leases = children.iter().find(|child| *child == "leases")?;
    Some(Foreign::of(leases, Kind::Lease.library(), None))
}

/// Returns our own nodes, which are those with our prefix, lowest number first.
pub fn own<'a>(children: &'a Names, prefix: &str) -> Vec<NodeName<'a>> {
    let names = children.iter().filter(|text| text.starts_with(prefix));
    let mut names: Vec<_> = names.filter_map(NodeName::parse).collect();
    names.sort_by_key(|name| name.sequence);
    names
}

/// Returns the children that are not contenders in any dialect, for diagnostics.
pub fn strangers(children: &Names) -> impl Iterator<Item = &str> {
    children
        .iter()
        .filter(|text| NodeName::parse(text).is_none())
}

/// Finds another library's contender where the numbers are used up. It orders by number and we order by
/// birth, and the two orders differ.
fn by_number(entries: &[Listed<'_>]) -> Option<Foreign> {
    let used_up = entries.iter().any(|entry| entry.name.is_exhausted());
    let mut others = entries.iter().filter(|entry| !entry.name.is_ours());
    let other = used_up.then(|| others.next())??;
    Some(Foreign {
        by_number: true,
        ..Foreign::of(other.name.text, other.name.maker(), None)
    })
}

#[cfg(test)]
mod tests;
