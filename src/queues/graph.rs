//! The waits-for graph: locks, their holders, and the locks that those wait for.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use super::queue::LockQueue;
use crate::contender::Contender;
use crate::path;
use zklock_core::dialect::Role;

/// The locks below a root, with indexes of their contenders.
pub(super) struct Graph<'a> {
    queues: BTreeMap<&'a str, &'a LockQueue>,
    /// The waiters by session, each with the lock that it waits for.
    waiters: HashMap<i64, Vec<(&'a str, &'a Contender)>>,
    /// The locks that processes under a node's lock wait for, by the node's name: its path depends on the chroot.
    inside: HashMap<&'a str, Vec<&'a str>>,
    asking: Option<Asking<'a>>,
}

/// A thread that asks whether it waits in a circle.
pub(super) struct Asking<'a> {
    /// The lock that the thread waits for.
    pub(super) path: &'a str,
    /// The names of the nodes that the thread holds, and of those that its process runs under.
    pub(super) nodes: HashSet<String>,
    /// The prefixes of the names of the thread's nodes in the queues in which it waits; at the head
    /// of some it blocks others.
    pub(super) own: HashSet<String>,
}

impl<'a> Graph<'a> {
    pub(super) fn of(queues: &'a [LockQueue], asking: Option<Asking<'a>>) -> Self {
        let mut graph = Self {
            queues: queues.iter().map(|queue| (queue.path(), queue)).collect(),
            waiters: HashMap::new(),
            inside: HashMap::new(),
            asking,
        };
        for (path, queue) in &graph.queues {
            for waiter in queue.waiters() {
                let session = graph.waiters.entry(waiter.session_id()).or_default();
                session.push((path, waiter));
                for node in &waiter.owner().inside {
                    graph.inside.entry(path::name(node)).or_default().push(path);
                }
            }
        }
        graph
    }

    /// Returns the holders of a lock, and then those of the locks that they wait for: held lock,
    /// holder, wanted lock.
    pub(super) fn holders_behind(
        &self,
        path: &'a str,
    ) -> Vec<(&'a str, &'a Contender, Option<&'a str>)> {
        let (mut found, mut seen, mut next) = (Vec::new(), HashSet::new(), vec![path]);
        while let Some(path) = next.pop() {
            if !seen.insert(path) {
                continue;
            }
            let links = self.links(path);
            for (holder, waits) in &links {
                match waits[..] {
                    [] => found.push((path, *holder, None)),
                    _ => found.extend(waits.iter().map(|wanted| (path, *holder, Some(*wanted)))),
                }
            }
            // A waiter for a permit gets one as soon as any holder releases.
            if !is_any_enough(&links) || links.iter().all(|(_, waits)| !waits.is_empty()) {
                next.extend(links.iter().flat_map(|(_, waits)| waits).rev());
            }
        }
        found
    }

    /// Returns the locks of a circle that keeps this lock taken for ever.
    pub(super) fn circle_from(&self, path: &'a str) -> Option<Vec<String>> {
        let stuck = self.stuck(path);
        let (mut way, mut places) = (Vec::new(), HashMap::new());
        let mut at = path;
        loop {
            if let Some(place) = places.insert(at, way.len()) {
                return Some(way[place..].to_vec());
            }
            way.push(at.to_owned());
            at = stuck.get(at)?.iter().copied().next()?;
        }
    }

    /// Returns the locks of the circle, from the one that this thread waits for to the one that it holds.
    pub(super) fn circle_of_the_asking(&self) -> Option<Vec<String>> {
        let asking = self.asking.as_ref()?;
        let stuck = self.stuck(asking.path);
        let mut came_from = HashMap::from([(asking.path, None)]);
        let mut next = VecDeque::from([asking.path]);
        while let Some(path) = next.pop_front() {
            let is_held = self
                .links(path)
                .iter()
                .any(|(holder, _)| asking.holds(holder));
            if is_held && stuck.contains_key(path) {
                let way = std::iter::successors(Some(path), |at| came_from.get(at).copied()?);
                let mut way: Vec<_> = way.map(str::to_owned).collect();
                way.reverse();
                return Some(way);
            }
            for other in stuck.get(path).into_iter().flatten() {
                if !came_from.contains_key(other) {
                    came_from.insert(other, Some(path));
                    next.push_back(other);
                }
            }
        }
        None
    }

    /// Returns the locks behind this one that cannot be released, each with the stuck locks that
    /// its holders wait for.
    fn stuck(&self, path: &'a str) -> HashMap<&'a str, Vec<&'a str>> {
        let (mut links, mut next) = (BTreeMap::new(), vec![path]);
        while let Some(path) = next.pop() {
            if links.contains_key(path) {
                continue;
            }
            let here = self.links(path);
            next.extend(here.iter().flat_map(|(_, waits)| waits));
            links.insert(path, here);
        }
        // Remove the locks that come free, and those that come free as a result.
        let mut behind: HashMap<&str, Vec<&str>> = HashMap::new();
        for (path, here) in &links {
            for other in here.iter().flat_map(|(_, waits)| waits) {
                behind.entry(other).or_default().push(path);
            }
        }
        let mut look: Vec<&str> = links.keys().copied().collect();
        let mut stuck: HashSet<&str> = look.iter().copied().collect();
        while let Some(path) = look.pop() {
            if stuck.contains(path) && self.comes_free(path, &links[path], &stuck) {
                stuck.remove(path);
                look.extend(behind.get(path).into_iter().flatten());
            }
        }
        let still = |path: &&&'a str| stuck.contains(**path);
        let waits = |path: &&'a str| {
            let waits = links[path].iter().flat_map(|(_, waits)| waits);
            (*path, waits.filter(still).copied().collect())
        };
        links.keys().filter(still).map(waits).collect()
    }

    fn comes_free(&self, path: &str, links: &Links<'_>, stuck: &HashSet<&str>) -> bool {
        let lets_go =
            |(_, waits): &(&Contender, Vec<&str>)| waits.iter().all(|path| !stuck.contains(path));
        let permits = self.queues.get(path).and_then(|queue| queue.permits());
        match is_any_enough(links) {
            // The lock is free for the first waiter.
            true if links.is_empty() => true,
            true => {
                permits.is_some_and(|all| links.len() < all as usize) || links.iter().any(lets_go)
            }
            false => links.iter().all(lets_go),
        }
    }

    /// Returns the holders of a lock, and what each of them waits for.
    fn links(&self, path: &'a str) -> Links<'a> {
        let holders = self
            .queues
            .get(path)
            .into_iter()
            .flat_map(|one| one.holders());
        holders
            .map(|holder| (holder, self.waits(path, holder)))
            .collect()
    }

    /// Returns the locks that a holder waits for: its thread, its session, or what `zklock` runs
    /// under its lock.
    fn waits(&self, path: &str, holder: &Contender) -> Vec<&'a str> {
        let waiters = self.waiters.get(&holder.session_id());
        let waiters = waiters.map_or(&[][..], Vec::as_slice);
        // A writer that also waits as a reader is downgrading.
        let turns = |at: &str, waiter: &Contender| {
            at == path && (holder.role(), waiter.role()) == (Role::Write, Role::Read)
        };
        let same = |(at, waiter): &&(&str, &Contender)| {
            holder.is_same_thread(waiter) == Some(true) && !turns(at, waiter)
        };
        let mut waits: Vec<_> = waiters.iter().filter(same).map(|(at, _)| *at).collect();
        let inside = self.inside.get(path::name(holder.node()));
        waits.extend(inside.into_iter().flatten());
        let asking = self.asking.iter().filter(|one| one.holds(holder));
        waits.extend(asking.map(|one| one.path));
        if waits.is_empty() {
            waits.extend(self.guess(path, holder, waiters));
        }
        waits.sort_unstable();
        waits.dedup();
        waits
    }

    /// Returns what a holder that names no thread may wait for. At one lock, the contenders of its
    /// session are different threads.
    fn guess(
        &self,
        path: &str,
        holder: &Contender,
        waiters: &[(&'a str, &Contender)],
    ) -> Option<&'a str> {
        // A contender of this library that was asked to release names no thread either. Among
        // several waiters any of them may be the one, so no wait is refused for that.
        let sure = |(_, waiter): &(&str, &Contender)| {
            waiters.len() == 1 && !waiter.tells_its_thread() && !holder.tells_its_thread()
        };
        let unknown = |(at, waiter): &&(&'a str, &Contender)| {
            *at != path && holder.is_same_thread(waiter).is_none()
        };
        let first = waiters.iter().find(unknown)?;
        (self.asking.is_none() || sure(first)).then_some(first.0)
    }
}

impl Asking<'_> {
    fn holds(&self, holder: &Contender) -> bool {
        let name = path::name(holder.node());
        self.nodes.contains(name) || self.own.contains(without_number(name))
    }
}

/// Strips the number from a name: the nodes of a multi-lock have the same name except for it.
pub(super) fn without_number(name: &str) -> &str {
    name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '-')
}

/// The holders of a lock, with what each of them waits for.
type Links<'a> = Vec<(&'a Contender, Vec<&'a str>)>;

fn is_any_enough(links: &Links<'_>) -> bool {
    links
        .iter()
        .all(|(holder, _)| holder.role() == Role::Permit)
}
