//! The servers to dial: those that the user named, or those that the ensemble names.
//!
//! A client cannot know whether it reaches the members that the ensemble names. Until one of them
//! has served, the former servers are tried when none of the members serves. A client with a
//! session tries them only to resume it, because another ensemble may have their addresses by now.

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::time::Duration;

use super::hosts::{Server, Target};
use super::members::Members;
use crate::error::UNRESOLVED;

/// How long a lookup may take before the name is looked up again beside it: as long as the system's
/// resolver usually waits for one server.
const AGAIN: Duration = Duration::from_secs(5);
/// The most lookups of one name at a time.
const MOST_LOOKUPS: usize = 8;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct ServerList {
    pub(super) servers: Vec<Listed>,
    /// The version of the list, if the present ensemble gave it.
    version: Option<i64>,
    /// The addresses to try if no server of the list serves.
    former: Vec<Target>,
    /// Whether a change has removed the server of the connection.
    left_out: bool,
}

/// A server of the list.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) server: Server,
    pub(super) name: Lookup,
}

impl ServerList {
    pub(super) fn new(servers: &[Server]) -> Self {
        Self {
            servers: servers.iter().map(Listed::new).collect(),
            version: None,
            former: Vec::new(),
            left_out: false,
        }
    }

    pub(super) fn former(&self) -> &[Target] {
        &self.former
    }

    /// Returns whether the client should leave the server of the connection for another one.
    pub(super) fn is_left_out(&self) -> bool {
        self.left_out
    }

    pub(super) fn knows_no_address(&self) -> bool {
        let mut servers = self.servers.iter();
        self.former.is_empty() && servers.all(|listed| listed.name.addresses.is_empty())
    }

    /// Returns whether to wait for a lookup. A name that was late before delays no client that has a
    /// session, for which it has its earlier addresses, while another name is answered.
    pub(super) fn awaits_a_name(&self, has_session: bool) -> bool {
        let mut names = self.servers.iter().map(|listed| &listed.name);
        let skips_late = has_session && names.clone().any(Lookup::is_answered);
        names.any(|name| name.under_way && !(skips_late && name.was_late))
    }

    /// Notes which names are not answered in time.
    pub(super) fn note_late(&mut self) {
        for listed in &mut self.servers {
            listed.name.was_late |= listed.name.under_way;
        }
    }

    /// Forgets the version: the next session may be in another ensemble, which counts anew.
    pub(super) fn forget_version(&mut self) {
        self.version = None;
    }

    /// Notes that the client has a connection to this server.
    pub(super) fn is_served_by(&mut self, target: &Target) {
        self.left_out = false;
        if self.has(target) {
            self.former.clear();
        }
    }

    /// Takes the members from the server at `target`, unless newer ones are known; returns whether
    /// it took them. They count from the next round on.
    pub(super) fn follow(&mut self, members: &Members, target: &Target) -> bool {
        let before = self.version;
        if before >= Some(members.version) {
            return false;
        }
        self.version = Some(members.version);
        let was_member = before.is_some() && self.has(target);
        let left = self.replace(&members.servers);
        let is_member = self.has(target);
        // The server may end at any time. A server that was never in a list may be a load balancer.
        self.left_out = was_member && !is_member;
        match is_member {
            true => self.former.clear(),
            false => self.keep(&left),
        }
        true
    }

    /// Replaces the list; returns the servers that are no longer in it.
    fn replace(&mut self, servers: &[Server]) -> Vec<Listed> {
        let mut old = mem::take(&mut self.servers);
        for server in servers {
            let known = old.iter().position(|listed| listed.server == *server);
            let mut listed = known.map_or_else(|| Listed::new(server), |at| old.swap_remove(at));
            // The answer under way may be for another place in the list.
            listed.name.forget_lookups();
            self.servers.push(listed);
        }
        old
    }

    fn keep(&mut self, left: &[Listed]) {
        let mut former = mem::take(&mut self.former);
        former.extend(left.iter().flat_map(Listed::targets));
        former.retain(|target| !self.has(target));
        self.former = former;
    }

    fn has(&self, target: &Target) -> bool {
        self.servers.iter().any(|listed| listed.is_at(target))
    }
}

impl Listed {
    fn new(server: &Server) -> Self {
        Self {
            server: server.clone(),
            name: Lookup::default(),
        }
    }

    pub(super) fn targets(&self) -> impl Iterator<Item = Target> + '_ {
        self.name.addresses.iter().map(|address| Target {
            server: self.server.clone(),
            address: *address,
        })
    }

    /// Returns whether this is the server that was dialled at `target`.
    fn is_at(&self, target: &Target) -> bool {
        let address = target.address;
        self.server == target.server
            || self.server.literal() == Some(address)
            || self.name.addresses.contains(&address)
    }
}

/// The addresses of a server's name, which are kept until a lookup finds others.
#[derive(Debug, Default)]
pub(super) struct Lookup {
    pub(super) addresses: Vec<SocketAddr>,
    under_way: bool,
    /// Whether a lookup was not answered in time, and none has found an address since.
    was_late: bool,
    /// Why the last lookup found nothing.
    pub(super) complaint: Option<String>,
    /// The number of the last lookup, and when it began.
    last: Option<(u32, Duration)>,
    /// The number of the last lookup that was answered.
    answered: u32,
    /// How many lookups are without an answer.
    open: usize,
}

impl Lookup {
    /// Returns the number of the lookup that begins now; `None` if it is better to wait for one that
    /// has begun.
    pub(super) fn begins(&mut self, now: Duration) -> Option<u32> {
        let is_early = |since| now.saturating_sub(since) < AGAIN;
        let waits = self.under_way && self.last.is_some_and(|(_, since)| is_early(since));
        self.under_way = true;
        if waits || MOST_LOOKUPS <= self.open {
            return None;
        }
        let number = self.last.map_or(1, |(last, _)| last + 1);
        self.last = Some((number, now));
        self.open += 1;
        Some(number)
    }

    fn forget_lookups(&mut self) {
        self.under_way = false;
        self.open = 0;
    }

    pub(super) fn answered(&mut self, number: u32, answer: io::Result<Vec<SocketAddr>>) {
        self.open = self.open.saturating_sub(1);
        if number <= self.answered {
            // It was asked for before the last answer was.
            return;
        }
        self.answered = number;
        self.under_way = false;
        self.complaint = match answer {
            Ok(addresses) if addresses.is_empty() => Some("it has no address".to_owned()),
            Ok(addresses) => {
                (self.addresses, self.was_late) = (addresses, false);
                None
            }
            Err(error) => Some(error.to_string()),
        };
    }

    /// Returns whether the addresses are those of the last lookup.
    pub(super) fn is_answered(&self) -> bool {
        !self.under_way && self.complaint.is_none()
    }

    /// Returns why the name is not resolved; `None` if it is.
    pub(super) fn reason(&self) -> Option<String> {
        match &self.complaint {
            Some(complaint) => Some(format!("{UNRESOLVED}: {complaint}")),
            None if self.addresses.is_empty() => Some("the name is not resolved yet".to_owned()),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_addresses_until_there_are_others() {
        let mut name = Lookup::default();
        let (old, new) = (SocketAddr::from(([1; 4], 1)), SocketAddr::from(([2; 4], 1)));
        assert!(name.reason().is_some());
        name.answered(1, Ok(vec![old]));
        assert_eq!((&*name.addresses, name.reason()), (&[old][..], None));
        for (number, nothing) in [(2, Ok(vec![])), (3, Err(io::Error::other("no")))] {
            name.answered(number, nothing);
            assert_eq!((&*name.addresses, name.is_answered()), (&[old][..], false));
            assert!(name.reason().unwrap().starts_with("the name cannot"));
        }
        name.answered(4, Ok(vec![new]));
        assert_eq!((&*name.addresses, name.reason()), (&[new][..], None));
    }

    #[test]
    fn a_lookup_that_hangs_gets_a_few_others_beside_it_and_the_latest_answer_counts() {
        let mut name = Lookup::default();
        let address = SocketAddr::from(([1; 4], 1));
        let start = Duration::from_nanos(0);
        assert_eq!(name.begins(start), Some(1));
        assert_eq!(name.begins(start + AGAIN / 2), None);
        assert_eq!(name.begins(start + AGAIN), Some(2));
        name.answered(2, Ok(vec![address]));
        assert!(name.is_answered());
        name.answered(1, Err(io::Error::other("late")));
        assert!(name.is_answered(), "an older question tells nothing");
        let begun = (1..100).filter_map(|n| name.begins(start + n * AGAIN));
        assert_eq!(begun.collect::<Vec<_>>(), (3..=10).collect::<Vec<_>>());
        assert!(!name.is_answered());
        name.answered(3, Ok(vec![address]));
        assert_eq!(name.begins(start), Some(11));
    }
}
