//! The servers that were tried already, so that the others are tried first.

use alloc::vec::Vec;
use core::time::Duration;

use super::backoff::{PART, Service};

/// The least time for a server to greet while others elect a leader: as long as a server on another
/// continent takes. It grows, with the time without a server, to an equal share for each address of
/// the pause between rounds.
const ELECTING: Duration = Duration::from_millis(500);

/// The outcome of a round of attempts.
#[derive(Debug)]
pub enum Round {
    /// A server served the session.
    Served(Service),
    /// No server has given a session.
    Refused,
    /// The session expired: the next round starts at once.
    Expired,
    /// The client has ended.
    Over,
}

/// The history of earlier rounds, which tells how long a dial takes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Past {
    /// How many rounds without a server there were since one served.
    pub rounds: u32,
    /// How long the last greeting took.
    pub greeted: Option<Duration>,
}

/// The servers that were tried; see the module's documentation.
#[derive(Debug)]
pub struct Rotation<Address> {
    /// The server whose connection lasted, and those that were tried since, in this order.
    left: Vec<Address>,
    /// The addresses that did not accept a connection when they were tried, in a round in which another one
    /// served: they may be out of this client's reach for good, as those of a version of IP that it lacks.
    unreached: Vec<Address>,
    /// The addresses that servers had in the last round.
    offered: Vec<Address>,
    /// How many addresses were there to try in the last round, also those that servers had before.
    count: usize,
    /// The servers that were tried since one served.
    tried: Vec<Tried<Address>>,
    past: Past,
    /// How many connections in a row were useless.
    useless: usize,
}

/// How a server was tried since one served.
#[derive(Debug)]
struct Tried<Address> {
    address: Address,
    /// What the server did instead of greeting when it was tried last, if it took the connection.
    refusal: Option<Refusal>,
    /// Whether the server was given all of its time to greet.
    had_all: bool,
    /// Whether the server was given little time to greet.
    was_hurried: bool,
}

/// What a server does that takes a connection, and does not greet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Refusal {
    /// It hangs up, which means that it has no leader.
    HungUp,
    /// It takes the connect request, and does not let the client in: it may have extended the session.
    Silent,
}

impl<Address> Default for Rotation<Address> {
    fn default() -> Self {
        Self {
            left: Vec::new(),
            unreached: Vec::new(),
            offered: Vec::new(),
            count: 0,
            tried: Vec::new(),
            past: Past::default(),
            useless: 0,
        }
    }
}

impl<Address: Clone + Eq> Rotation<Address> {
    /// Begins a round with these addresses.
    pub fn offer(&mut self, targets: &[Address], kept: &[Address]) {
        self.offered = targets.to_vec();
        self.count = targets.len() + kept.len();
        let is_offered = |one: &Address| targets.contains(one) || kept.contains(one);
        self.left.retain(is_offered);
        self.unreached.retain(is_offered);
        self.tried.retain(|one| is_offered(&one.address));
    }

    /// Returns how long to wait for the greeting of a server that has this `limit`, when no other server
    /// has served for the time `away`.
    ///
    /// While others elect a leader, a server that does not answer at all may have been that leader, and
    /// would keep the client from the servers that find another. A server that hung up before, and now does
    /// not, is about to serve, and perhaps many clients at once. Where it is not most that hang up, the
    /// rest may have a leader and be slow: each of them is hurried once, after it had all of its time.
    pub fn limit(&mut self, target: &Address, limit: Duration, away: Duration) -> Duration {
        let most_elect = self.most(Refusal::HungUp);
        let none_elects = self.refusals(Refusal::HungUp) == 0;
        let count = self.count.max(1) as u32;
        let one = self.tried(target);
        let is_spared = none_elects || one.refusal == Some(Refusal::HungUp);
        if is_spared || !most_elect && (!one.had_all || one.was_hurried) {
            one.had_all = true;
            return limit;
        }
        one.was_hurried = true;
        limit.min(ELECTING.max(away / PART / count))
    }

    fn tried(&mut self, target: &Address) -> &mut Tried<Address> {
        let known = self.tried.iter().position(|one| one.address == *target);
        let at = known.unwrap_or(self.tried.len());
        if known.is_none() {
            self.tried.push(Tried {
                address: target.clone(),
                refusal: None,
                had_all: false,
                was_hurried: false,
            });
        }
        &mut self.tried[at]
    }

    /// Notes that a server was tried, with this outcome.
    pub fn leave(&mut self, target: Address, outcome: Option<&Round>) {
        if let Some(Round::Served(service)) = outcome {
            self.served(*service);
        }
        self.tried(&target).refusal = None;
        for places in [&mut self.left, &mut self.unreached] {
            places.retain(|one| *one != target);
        }
        self.left.push(target);
    }

    /// Notes that the server that was just left did not accept the connection.
    pub fn unreached(&mut self) {
        self.unreached.extend(self.left.last().cloned());
    }

    /// Notes what the server that was just left did instead of greeting.
    pub fn refused(&mut self, refusal: Refusal) {
        if let Some(target) = self.left.last().cloned() {
            self.tried(&target).refusal = Some(refusal);
        }
    }

    /// Returns whether most servers did this when they were tried last.
    pub fn most(&self, refusal: Refusal) -> bool {
        self.count / 2 < self.refusals(refusal)
    }

    fn refusals(&self, refusal: Refusal) -> usize {
        let did = |one: &&Tried<Address>| one.refusal == Some(refusal);
        self.tried.iter().filter(did).count()
    }

    fn served(&mut self, service: Service) {
        self.past.rounds = 0;
        self.tried.clear();
        if service.is_useless() {
            self.useless += 1;
        } else if service.answered {
            self.useless = 0;
        }
        if service.is_worthwhile() {
            self.left.clear();
        }
        if service.unanswered {
            // That server may hang, and the others may be there again.
            self.unreached.clear();
        }
    }

    /// Notes that no server of a round has served.
    pub fn next_round(&mut self) {
        self.past.rounds = self.past.rounds.saturating_add(1);
        // It may have been the client that had no network.
        self.unreached.clear();
    }

    /// Returns the addresses to try after all others, in this order.
    pub fn last(&self) -> Vec<Address> {
        let left = self.left.iter().filter(|one| !self.unreached.contains(one));
        left.chain(&self.unreached).cloned().collect()
    }

    /// Returns whether an address of the last round is left to try.
    pub fn has_others(&self) -> bool {
        let is_last = |one| self.left.contains(one) || self.unreached.contains(one);
        self.offered.iter().any(|one| !is_last(one))
    }

    /// Returns how long the last greeting took, unless servers that greet promptly do not answer promptly:
    /// moving on gains nothing then.
    pub fn trusted_greeting(&self) -> Option<Duration> {
        let is_trusted = self.useless < self.offered.len();
        self.past.greeted.filter(|_| is_trusted)
    }

    /// Notes that a server has greeted, which took this long.
    pub fn greeted(&mut self, took: Duration) {
        self.past.greeted = Some(took);
    }

    /// Returns what to expect of a dial.
    pub fn past(&self) -> Past {
        self.past
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(millis: u64, unanswered: bool) -> Round {
        Round::Served(Service {
            lived: Duration::from_millis(millis),
            answered: false,
            unanswered,
        })
    }

    #[test]
    fn the_others_are_tried_first_until_a_connection_lasts() {
        let all = [1, 2, 3];
        let mut rotation = Rotation::default();
        rotation.offer(&all, &[]);
        rotation.next_round();
        let served = |millis| served(millis, false);
        let short = || served(0);
        for (port, others) in [(1, true), (2, true), (3, false), (1, false)] {
            rotation.leave(port, Some(&short()));
            assert_eq!(rotation.has_others(), others, "{port}");
        }
        assert_eq!(rotation.last(), [2, 3, 1]);
        assert_eq!(rotation.past().rounds, 0);
        rotation.leave(2, Some(&served(1000)));
        assert_eq!(rotation.last(), [2]);
        assert!(rotation.has_others());
        rotation.offer(&all[..1], &[]);
        assert!(rotation.last().is_empty(), "its address is gone");
    }

    #[test]
    fn servers_that_answer_nothing_are_left_soon_once_each() {
        let all = [1, 2];
        let mut rotation = Rotation::default();
        rotation.offer(&all, &[]);
        rotation.greeted(Duration::ZERO);
        for port in [1, 2] {
            assert!(rotation.trusted_greeting().is_some());
            rotation.leave(port, Some(&served(1000, true)));
        }
        assert!(rotation.trusted_greeting().is_none());
        assert_eq!(rotation.last(), all, "neither was worthwhile");
        rotation.leave(1, Some(&served(1000, false)));
        assert!(rotation.trusted_greeting().is_none(), "nothing was asked");
        let answered = Service {
            lived: Duration::ZERO,
            answered: true,
            unanswered: true,
        };
        rotation.leave(1, Some(&Round::Served(answered)));
        assert!(rotation.trusted_greeting().is_some());
    }

    #[test]
    fn addresses_that_accept_no_connection_are_tried_after_the_server_that_was_left() {
        let mut rotation = Rotation::default();
        rotation.offer(&[1, 2, 3], &[]);
        for port in [1, 2] {
            rotation.leave(port, None);
            rotation.unreached();
        }
        rotation.leave(3, Some(&served(1000, false)));
        assert_eq!(rotation.last(), [3, 1, 2]);
        assert!(!rotation.has_others(), "or it would ask again at once");
        rotation.leave(1, None);
        assert_eq!(rotation.last(), [3, 1, 2], "it has refused");
        rotation.leave(3, Some(&served(1000, false)));
        assert_eq!(rotation.last(), [3, 2]);
        let mut other = Rotation::default();
        other.offer(&[1, 2], &[]);
        other.leave(1, None);
        other.unreached();
        other.leave(2, Some(&served(1000, true)));
        assert_eq!(other.last(), [1, 2], "a server that hangs is not better");
        other.leave(1, None);
        other.unreached();
        other.next_round();
        assert_eq!(other.last(), [2, 1], "no address was better");
    }

    /// The limits of three servers, in milliseconds.
    fn limits(rotation: &mut Rotation<i32>, away: u64) -> [u128; 3] {
        let (limit, away) = (Duration::from_secs(3), Duration::from_secs(away));
        [1, 2, 3].map(|port| rotation.limit(&port, limit, away).as_millis())
    }

    fn offered() -> Rotation<i32> {
        let mut rotation = Rotation::default();
        rotation.offer(&[1, 2, 3], &[]);
        rotation
    }

    fn hangs_up(rotation: &mut Rotation<i32>, port: i32) {
        rotation.leave(port, None);
        rotation.refused(Refusal::HungUp);
    }

    #[test]
    fn most_servers_are_silent_while_that_is_what_they_did_last() {
        let mut rotation = offered();
        let silent = |rotation: &mut Rotation<i32>, port| {
            rotation.leave(port, None);
            rotation.refused(Refusal::Silent);
            rotation.most(Refusal::Silent)
        };
        hangs_up(&mut rotation, 1);
        for (port, most) in [(2, false), (2, false), (3, true)] {
            assert_eq!(silent(&mut rotation, port), most);
        }
        hangs_up(&mut rotation, 1);
        assert!(rotation.most(Refusal::Silent), "it is one");
        hangs_up(&mut rotation, 3);
        assert!(!rotation.most(Refusal::Silent));
        assert!(silent(&mut rotation, 3));
        rotation.leave(2, None);
        assert!(!rotation.most(Refusal::Silent), "it takes no connection");
    }

    #[test]
    fn servers_whose_names_are_not_resolved_any_more_are_counted() {
        for (targets, kept) in [(&[][..], &[1, 2, 3][..]), (&[1], &[2, 3])] {
            let mut rotation = Rotation::default();
            rotation.offer(targets, kept);
            rotation.leave(1, None);
            rotation.refused(Refusal::Silent);
            assert!(!rotation.most(Refusal::Silent), "{targets:?}");
            hangs_up(&mut rotation, 2);
            assert_eq!(limits(&mut rotation, 0), [3000; 3], "{targets:?}");
        }
    }

    #[test]
    fn while_most_look_for_a_leader_a_silent_server_gets_little_time_and_one_that_hung_up_all_of_it()
     {
        let mut rotation = offered();
        assert_eq!(limits(&mut rotation, 0), [3000; 3], "nothing is known");
        rotation.leave(1, None);
        hangs_up(&mut rotation, 2);
        hangs_up(&mut rotation, 3);
        assert_eq!(limits(&mut rotation, 0), [500, 3000, 3000]);
        assert_eq!(limits(&mut rotation, 15), [1000, 3000, 3000]);
        assert_eq!(limits(&mut rotation, 60), [3000; 3]);
        rotation.leave(2, None);
        rotation.leave(3, None);
        assert_eq!(limits(&mut rotation, 0), [3000; 3], "none hung up last");
    }

    #[test]
    fn while_one_looks_for_a_leader_the_others_get_little_time_once_after_they_had_all() {
        let mut rotation = offered();
        for _ in 0..2 {
            hangs_up(&mut rotation, 2);
            assert_eq!(limits(&mut rotation, 0), [3000; 3], "they may be slow");
            assert_eq!(limits(&mut rotation, 0), [500, 3000, 500]);
            assert_eq!(limits(&mut rotation, 0), [3000; 3]);
            rotation.leave(3, Some(&served(0, false)));
        }
    }
}
