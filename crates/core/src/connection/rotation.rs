//! Which server is asked next, for how long, for which session, and after which pause: those that were tried
//! already come last.

mod hurry;

use alloc::vec::Vec;
use core::time::Duration;

use super::backoff::{Backoff, Service};

/// The longest time for one address to answer.
const DIAL_LIMIT: Duration = Duration::from_secs(5);
/// The longest time in the first round, or this part of a short session timeout: a guard is trusted for
/// half of it after a check, and for a third at the end of a pause between two checks. Each further round
/// doubles the time. For a lone address, which may be a balancer's with another server behind it each time,
/// only rounds after the second do.
const FIRST_ROUND: Duration = Duration::from_millis(1500);
const FIRST_PART: u32 = 6;
/// The longest time in the first round where there are other addresses and no session yet. Not less: an ensemble
/// where thousands begin at once is slow to greet, and opens a session for each dial that was given up.
const FIRST_ROUND_ANEW: Duration = Duration::from_secs(1);
/// A lone address where the last greeting was quick has, instead, this many times as long as that took, and
/// at least this part of the session timeout within these bounds. A balancer may lead twice to a server
/// that hangs, and a command under a lock goes on for T/30 after its client has left a server.
///
/// In the first rounds only: a good server may have become slow.
const QUICK_ROUNDS: u32 = 2;
const QUICK_TIMES: u32 = 8;
const QUICK_PART: u32 = 100;
const QUICK_LEAST: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(250));
/// After a server has fallen silent, other addresses have this part of the session timeout within these bounds to
/// accept the connection, or twice as long as the last one took for that. A command under a lock goes on for
/// T/30 after its client has left a server.
const BRIEF_PART: u32 = 64;
const BRIEF_LEAST: (Duration, Duration) = (Duration::from_millis(250), Duration::from_millis(500));
/// The shortest time for one address in other cases, however short the session timeout.
const DIAL_LEAST: Duration = Duration::from_millis(250);
/// The shortest time for one address that a short wait for the first connection leaves: as long as a server
/// on another continent takes.
const FIRST_LEAST: Duration = Duration::from_millis(500);

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

/// The session to ask a server for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Resumption {
    /// The present session, or a new one if there is none.
    Resume,
    /// The present session and no other, because the server may belong to another ensemble.
    ResumeOnly,
    /// A new session, as if the client had none.
    Anew,
}

/// One address of a round.
#[derive(Debug, Eq, PartialEq)]
pub struct Candidate<Address> {
    /// The address.
    pub target: Address,
    /// How long to wait for it to accept the connection.
    pub accept_limit: Duration,
    /// How long to wait for the server's greeting.
    pub limit: Duration,
    /// The session to ask for there.
    pub wish: Resumption,
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
    /// How many rounds without a server there were since one served.
    rounds: u32,
    /// How long the last address took to accept the connection: a round trip, however burdened its server is.
    accepted: Option<Duration>,
    /// How long the last greeting took.
    greeted: Option<Duration>,
    /// Whether the last server that served answered nothing in the end.
    fell_silent: bool,
    backoff: Backoff,
}

/// How a server was tried since one served.
#[derive(Debug)]
struct Tried<Address> {
    address: Address,
    /// What the server did instead of serving when it was tried last, if that is known.
    refusal: Option<Refusal>,
    /// Whether the server was given all of its time to greet.
    had_all: bool,
    /// Whether the server was given little time to greet.
    was_hurried: bool,
}

/// What a server does that does not serve.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Refusal {
    /// It accepts no connection.
    Unreached,
    /// It hangs up instead of greeting, which means that it has no leader.
    HungUp,
    /// It takes the connect request, and does not let the client in: it may have extended the session.
    Silent,
}

impl<Address: Clone + Eq> Rotation<Address> {
    /// Creates the rotation of a client that begins now, and asks for this session timeout.
    pub fn new(session_timeout: Duration, now: Duration) -> Self {
        Self {
            left: Vec::new(),
            unreached: Vec::new(),
            offered: Vec::new(),
            count: 0,
            tried: Vec::new(),
            rounds: 0,
            accepted: None,
            greeted: None,
            fell_silent: false,
            backoff: Backoff::new(session_timeout, now),
        }
    }

    /// Begins a round, and returns the addresses to try in it: first the `targets`, then those that names had before,
    /// `kept`. No server has served for the time `away`. Without a session, the round fits into the time to make
    /// the `first` connection.
    pub fn begin(
        &mut self,
        (targets, kept): (Vec<Address>, Vec<Address>),
        timeout: Duration,
        first: Option<Duration>,
        away: Duration,
    ) -> Vec<Candidate<Address>> {
        self.offer(&targets, &kept);
        let limit = self.dial_limit(timeout, first);
        let mut candidates = self.in_order(targets, kept, limit, away);
        if let Some(took) = self.accepted.filter(|_| self.is_brief()) {
            let limit = brief_limit(timeout, took);
            for one in &mut candidates {
                one.accept_limit = one.accept_limit.min(limit);
            }
        }
        candidates
    }

    /// Returns whether the addresses of this round have little time to accept the connection. The machine of the
    /// last server may have vanished, another one with it, and that one's other addresses; a guard, and above all a
    /// command, can no longer wait for them. A server that is there and near accepts at once, however burdened it
    /// is; one that is farther away than the last has its time in the next round.
    fn is_brief(&self) -> bool {
        self.fell_silent && self.rounds == 0 && self.count > 1
    }

    fn offer(&mut self, targets: &[Address], kept: &[Address]) {
        self.offered = targets.to_vec();
        self.count = targets.len() + kept.len();
        let is_offered = |one: &Address| targets.contains(one) || kept.contains(one);
        self.left.retain(is_offered);
        self.unreached.retain(is_offered);
        self.tried.retain(|one| is_offered(&one.address));
    }

    /// Returns the time for one address, so that the session outlasts a round and the next. Without a session,
    /// a round fits into the time to make the `first` connection.
    ///
    /// A silent address costs little in the first round: another one may answer, or the same one if its server
    /// was just started or a packet was lost. Servers that are slow because they are burdened get more time in
    /// each further round.
    fn dial_limit(&self, timeout: Duration, first: Option<Duration>) -> Duration {
        let count = self.count.max(1) as u32;
        let share = |whole: Duration| (whole * 2 / 3 / count).clamp(DIAL_LEAST, DIAL_LIMIT);
        let begins = first.is_some();
        let first = first.map_or(Duration::MAX, |first| {
            share(first.min(timeout)).max(FIRST_LEAST)
        });
        let is_alone = self.count <= 1;
        let was_quick = self.greeted.filter(|_| is_alone);
        let as_the_first = u32::from(is_alone) + u32::from(was_quick.is_some());
        let doubled = self.rounds.saturating_sub(as_the_first);
        let in_first_round = match was_quick.filter(|_| !begins && self.rounds < QUICK_ROUNDS) {
            Some(took) => quick_round(timeout, took),
            None if begins && !is_alone => first_round(timeout).min(FIRST_ROUND_ANEW),
            // Silent ones among many addresses may all come first.
            None => first_round(timeout)
                .min(timeout / 2 / count)
                .max(DIAL_LEAST),
        };
        // A server greets a new session when the quorum has written it down.
        let growth = if begins { 4_u32 } else { 2 };
        let longest = in_first_round * growth.pow(doubled.min(4));
        share(timeout).min(first).min(longest)
    }

    /// Puts the addresses of a round in order. Those that were tried already come last of their kind.
    ///
    /// The addresses that names had before are tried after the others. If a server has moved,
    /// perhaps nothing answers at its old address, and its name is looked up again only after the
    /// round. If it has not moved, it may be slow. So an old address gets a quarter of the limit,
    /// and more the longer no server has served.
    fn in_order(
        &self,
        targets: Vec<Address>,
        kept: Vec<Address>,
        limit: Duration,
        away: Duration,
    ) -> Vec<Candidate<Address>> {
        let last = self.last();
        let kept_limit = (away / 2).clamp((limit / 4).max(DIAL_LEAST).min(limit), limit);
        let of = |mut targets: Vec<Address>, limit, wish| {
            targets.sort_by_key(|target| last.iter().position(|one| one == target));
            let candidate = move |target| Candidate {
                target,
                accept_limit: limit,
                limit,
                wish,
            };
            targets.into_iter().map(candidate)
        };
        let fresh = of(targets, limit, Resumption::Resume);
        fresh
            .chain(of(kept, kept_limit, Resumption::ResumeOnly))
            .collect()
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

    /// Notes that the client leaves a server whose data are wrong: any other one is better, and may be there again.
    pub fn diverged(&mut self) {
        self.unreached.clear();
    }

    /// Notes what the server that was just left did instead of serving.
    pub fn refused(&mut self, refusal: Refusal) {
        let Some(target) = self.left.last().cloned() else {
            return;
        };
        let is_unreached = refusal == Refusal::Unreached;
        let had_no_time = is_unreached && self.is_brief();
        self.tried(&target).refusal = Some(refusal).filter(|_| !had_no_time);
        if is_unreached {
            self.unreached.push(target);
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
        self.rounds = 0;
        self.fell_silent = service.unanswered;
        self.tried.clear();
        if service.is_worthwhile() {
            self.left.clear();
        }
        if service.unanswered {
            // That server may hang, and the others may be there again.
            self.unreached.clear();
        }
    }

    /// Returns the pause after an attempt, perhaps the `last` of its round: its share of the round's pause,
    /// because one of several servers may serve again long before the round is over. The first round asks each
    /// server at once. The time of an attempt that was `hurried` is part of the pause; one that had all its time
    /// may be to a server that many ask.
    pub fn pause_after_attempt(&self, last: bool, hurried: Duration, now: Duration) -> Duration {
        if self.rounds == 0 && !last {
            return Duration::ZERO;
        }
        let share = self.backoff.after_failure(now) / self.count.max(1) as u32;
        share.saturating_sub(hurried)
    }

    /// Returns the pause after a round, in which each attempt had one of its own.
    pub fn pause_after(&mut self, round: &Round, now: Duration) -> Duration {
        match round {
            Round::Expired => self.backoff.after_expiry(now),
            Round::Served(service) => {
                let others = self.has_others();
                self.backoff.after_service(*service, others, now)
            }
            Round::Refused | Round::Over => Duration::ZERO,
        }
    }

    /// Notes that no server of a round has served.
    pub fn next_round(&mut self) {
        self.rounds = self.rounds.saturating_add(1);
        // It may have been the client that had no network.
        self.unreached.clear();
    }

    /// Returns the addresses to try after all others, in this order.
    fn last(&self) -> Vec<Address> {
        let left = self.left.iter().filter(|one| !self.unreached.contains(one));
        left.chain(&self.unreached).cloned().collect()
    }

    /// Returns whether an address of the last round is left to try.
    fn has_others(&self) -> bool {
        let is_last = |one| self.left.contains(one) || self.unreached.contains(one);
        self.offered.iter().any(|one| !is_last(one))
    }

    /// Returns how long the last greeting took, unless the server before answered nothing in the end. To greet, this
    /// one has asked the leader, so it is likely that commits take long, and moving on gains nothing.
    pub fn trusted_greeting(&self) -> Option<Duration> {
        self.greeted.filter(|_| !self.fell_silent)
    }

    /// Notes that an address has accepted the connection, which took this long.
    pub fn accepted(&mut self, took: Duration) {
        self.accepted = Some(took);
    }

    /// Notes that a server has greeted, which took this long.
    pub fn greeted(&mut self, took: Duration) {
        self.greeted = Some(took);
    }
}

fn first_round(timeout: Duration) -> Duration {
    FIRST_ROUND.min(timeout / FIRST_PART).max(DIAL_LEAST)
}

fn brief_limit(timeout: Duration, accepted: Duration) -> Duration {
    let least = (timeout / BRIEF_PART).clamp(BRIEF_LEAST.0, BRIEF_LEAST.1);
    least.max(2 * accepted)
}

fn quick_round(timeout: Duration, greeted: Duration) -> Duration {
    let least = (timeout / QUICK_PART).clamp(QUICK_LEAST.0, QUICK_LEAST.1);
    least.max(greeted * QUICK_TIMES).min(first_round(timeout))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::backoff;

    /// A client that begins.
    fn begun<Address: Clone + Eq>() -> Rotation<Address> {
        Rotation::new(Duration::from_secs(20), Duration::ZERO)
    }

    fn after(rounds: u32, greeted: Option<Duration>, count: usize) -> Rotation<u16> {
        Rotation {
            rounds,
            greeted,
            count,
            ..begun()
        }
    }

    fn addresses(candidates: &[Candidate<u16>]) -> Vec<u16> {
        candidates.iter().map(|it| it.target).collect()
    }

    #[test]
    fn a_round_fits_into_the_session_timeout_and_the_first_into_the_wait() {
        let limit = |timeout, first: Option<u64>, addresses| {
            let first = first.map(Duration::from_secs);
            after(9, None, addresses)
                .dial_limit(Duration::from_secs(timeout), first)
                .as_millis()
        };
        assert_eq!(limit(20, None, 1), 5_000);
        assert_eq!(limit(18, None, 3), 4_000);
        assert_eq!(limit(18, Some(9), 3), 2_000);
        assert_eq!(limit(18, Some(60), 3), 4_000);
        assert_eq!(limit(18, Some(u64::MAX), 0), 5_000);
        assert_eq!(limit(18, Some(1), 3), 500);
        assert_eq!(limit(1, Some(1), 3), 250);
    }

    #[test]
    fn a_silent_address_costs_little_at_first_even_if_it_is_the_only_one() {
        let of = |addresses, rounds| {
            let wait = Some(Duration::from_secs(60));
            after(rounds, None, addresses).dial_limit(Duration::from_secs(20), wait)
        };
        for (addresses, grows_in, first_round) in [(1, 2, FIRST_ROUND), (2, 1, FIRST_ROUND_ANEW)] {
            assert_eq!(of(addresses, grows_in - 1), first_round);
            assert_eq!(of(addresses, grows_in), (4 * first_round).min(DIAL_LIMIT));
            assert_eq!(of(addresses, u32::MAX), DIAL_LIMIT);
        }
    }

    /// A guard is trusted for T/2, and its last proof may be T/8 old.
    #[test]
    fn a_guard_outlasts_a_first_round_whose_silent_half_comes_first() {
        for (seconds, addresses) in [(4, 6), (10, 4), (10, 6), (20, 6), (20, 10), (40, 10)] {
            let timeout = Duration::from_secs(seconds);
            let limit = after(0, None, addresses).dial_limit(timeout, None);
            let silent = limit * addresses as u32 / 2;
            assert!(silent <= timeout / 4, "{silent:?} of {timeout:?}");
        }
    }

    /// As behind a balancer, whose only address leads to another server each time.
    #[test]
    fn a_guard_outlasts_two_silent_servers() {
        for seconds in [4, 10, 20] {
            let timeout = Duration::from_secs(seconds);
            let silent: Duration = (0..2)
                .map(|round| after(round, None, 1).dial_limit(timeout, None))
                .sum();
            assert!(silent <= timeout / 3, "{silent:?} of {timeout:?}");
        }
    }

    /// A client has left a server that hangs T/8 and T/6 after the last proof was sent, and a command is
    /// told to stop T/2, less an eighth and a twentieth, after that.
    #[test]
    fn a_command_outlasts_silent_servers_behind_an_address_that_was_quick() {
        let limit = |timeout, round| {
            let took = Some(Duration::from_millis(9));
            after(round, took, 1).dial_limit(timeout, None)
        };
        for (seconds, silent) in [(10, 1), (20, 2), (40, 2)] {
            let timeout = Duration::from_secs(seconds);
            let left = timeout / 6 + timeout / 8;
            let stopped = timeout / 2 - timeout / 8 - timeout / 20;
            let dials: Duration = (0..silent)
                .map(|round| limit(timeout, round) + backoff::LEAST)
                .sum();
            assert!(left + dials < stopped, "{dials:?} of {timeout:?}");
        }
        // Servers that are slow because many dial at once are given time.
        let timeout = Duration::from_secs(20);
        let dials: Vec<_> = (0..8).map(|round| limit(timeout, round)).collect();
        assert_eq!(dials.last(), Some(&DIAL_LIMIT));
        assert_eq!(dials[1..3], [Duration::from_millis(200), FIRST_ROUND]);
    }

    #[test]
    fn where_the_last_greeting_was_slow_the_next_one_may_be() {
        let timeout = Duration::from_secs(20);
        let of = |addresses, took| {
            let took = Some(Duration::from_millis(took));
            after(0, took, addresses)
                .dial_limit(timeout, None)
                .as_millis()
        };
        assert_eq!((of(1, 1), of(1, 100), of(1, 1000)), (200, 800, 1500));
        assert_eq!(of(3, 1), 1500, "another server may be farther away");
    }

    #[test]
    fn the_server_that_was_left_last_is_tried_last() {
        let limit = Duration::from_secs(4);
        let rotation = Rotation {
            left: vec![3, 1],
            ..begun()
        };
        let tried = rotation.in_order(vec![1, 2, 3], Vec::new(), limit, Duration::ZERO);
        assert_eq!(addresses(&tried), [2, 3, 1]);
    }

    #[test]
    fn addresses_that_names_had_before_come_last_and_resume_only() {
        let rotation = Rotation {
            left: vec![1],
            ..begun()
        };
        let limit = Duration::from_secs(4);
        let tried = |away| rotation.in_order(vec![1, 2], vec![3, 4], limit, away);
        let all = tried(Duration::ZERO);
        assert_eq!(addresses(&all), [2, 1, 3, 4]);
        assert!(
            all[..2]
                .iter()
                .all(|one| one.limit == limit && one.wish == Resumption::Resume)
        );
        assert!(all[2..].iter().all(|one| one.limit == limit / 4));
        assert!(
            all[2..]
                .iter()
                .all(|one| one.wish == Resumption::ResumeOnly)
        );
        assert_eq!(tried(limit)[2].limit, limit / 2);
        assert_eq!(tried(4 * limit)[2].limit, limit);
    }

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
        let mut rotation = begun();
        rotation.offer(&all, &[]);
        rotation.next_round();
        let served = |millis| served(millis, false);
        let short = || served(0);
        for (port, others) in [(1, true), (2, true), (3, false), (1, false)] {
            rotation.leave(port, Some(&short()));
            assert_eq!(rotation.has_others(), others, "{port}");
        }
        assert_eq!(rotation.last(), [2, 3, 1]);
        assert_eq!(rotation.rounds, 0);
        rotation.leave(2, Some(&served(1000)));
        assert_eq!(rotation.last(), [2]);
        assert!(rotation.has_others());
        rotation.offer(&all[..1], &[]);
        assert!(rotation.last().is_empty(), "its address is gone");
    }

    #[test]
    fn of_servers_that_answer_nothing_one_is_left_soon() {
        let mut rotation = begun();
        rotation.offer(&[1, 2], &[]);
        rotation.greeted(Duration::ZERO);
        assert!(rotation.trusted_greeting().is_some());
        rotation.leave(1, Some(&served(1000, true)));
        assert!(rotation.trusted_greeting().is_none());
        rotation.leave(2, Some(&served(1000, true)));
        assert!(rotation.trusted_greeting().is_none());
        assert_eq!(rotation.last(), [1, 2], "neither was worthwhile");
        rotation.leave(1, Some(&served(1000, false)));
        assert!(rotation.trusted_greeting().is_some());
    }

    #[test]
    fn addresses_that_accept_no_connection_are_tried_after_the_server_that_was_left() {
        let mut rotation = begun();
        rotation.offer(&[1, 2, 3], &[]);
        for port in [1, 2] {
            rotation.leave(port, None);
            rotation.refused(Refusal::Unreached);
        }
        rotation.leave(3, Some(&served(1000, false)));
        assert_eq!(rotation.last(), [3, 1, 2]);
        assert!(!rotation.has_others(), "or it would ask again at once");
        rotation.leave(1, None);
        assert_eq!(rotation.last(), [3, 1, 2], "it has refused");
        rotation.leave(3, Some(&served(1000, false)));
        assert_eq!(rotation.last(), [3, 2]);
        let mut other = begun();
        other.offer(&[1, 2], &[]);
        other.leave(1, None);
        other.refused(Refusal::Unreached);
        other.leave(2, Some(&served(1000, true)));
        assert_eq!(other.last(), [1, 2], "a server that hangs is not better");
        other.leave(1, None);
        other.refused(Refusal::Unreached);
        other.next_round();
        assert_eq!(other.last(), [2, 1], "no address was better");
        other.leave(1, None);
        other.refused(Refusal::Unreached);
        other.diverged();
        other.leave(2, Some(&served(1000, false)));
        assert_eq!(other.last(), [2], "a server with wrong data is not better");
    }

    /// The limits of three servers, in milliseconds.
    fn limits(rotation: &mut Rotation<i32>, away: u64) -> [u128; 3] {
        let (limit, away) = (Duration::from_secs(3), Duration::from_secs(away));
        [1, 2, 3].map(|port| rotation.limit(&port, limit, away).as_millis())
    }

    fn offered() -> Rotation<i32> {
        let mut rotation = begun();
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
    fn an_attempt_pauses_for_its_share_and_the_first_round_only_when_it_is_over() {
        let (mut rotation, away) = (offered(), Duration::from_secs(9));
        let pause = |rotation: &Rotation<i32>, last, hurried| {
            let hurried = Duration::from_millis(hurried);
            rotation
                .pause_after_attempt(last, hurried, away)
                .as_millis()
        };
        let each = [(false, 0), (true, 0), (false, 500), (false, 700)];
        let all = |rotation: &_| each.map(|(last, hurried)| pause(rotation, last, hurried));
        assert_eq!(all(&rotation), [0, 600, 0, 0]);
        rotation.next_round();
        assert_eq!(all(&rotation), [600, 600, 100, 0]);
        rotation.offer(&[1], &[2, 3]);
        assert_eq!(pause(&rotation, true, 0), 600, "three are asked");
        rotation.offer(&[], &[]);
        assert_eq!(pause(&rotation, true, 0), 1800, "nobody is asked");
    }

    #[test]
    fn a_round_is_followed_by_a_pause_unless_its_attempts_paused_or_a_server_is_left_to_try() {
        let (mut rotation, away) = (offered(), Duration::from_secs(9));
        let pause = |rotation: &mut Rotation<i32>, round: &Round| {
            rotation.pause_after(round, away).as_millis()
        };
        assert_eq!(pause(&mut rotation, &Round::Refused), 0);
        let again = [0, 1800].map(|_| pause(&mut rotation, &Round::Expired));
        assert_eq!(again, [0, 1800], "the server answers");
        let short = served(0, false);
        for (port, expected) in [(1, 0), (2, 0), (3, 1800)] {
            rotation.leave(port, Some(&short));
            assert_eq!(pause(&mut rotation, &short), expected, "{port}");
        }
    }

    #[test]
    fn servers_whose_names_are_not_resolved_any_more_are_counted() {
        for (targets, kept) in [(&[][..], &[1, 2, 3][..]), (&[1], &[2, 3])] {
            let mut rotation = begun();
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
    fn while_one_looks_for_a_leader_an_address_that_accepted_no_connection_has_little_time() {
        let mut rotation = offered();
        let limits = |rotation: &Rotation<i32>, away| {
            let (limit, away) = (Duration::from_secs(3), Duration::from_secs(away));
            [1, 2, 3].map(|port| rotation.accept_limit(&port, limit, away).as_millis())
        };
        let goes_unreached = |rotation: &mut Rotation<i32>, port| {
            rotation.leave(port, None);
            rotation.refused(Refusal::Unreached);
        };
        goes_unreached(&mut rotation, 1);
        hangs_up(&mut rotation, 2);
        assert_eq!(limits(&rotation, 0), [3000; 3], "they may be far away");
        rotation.greeted(Duration::from_millis(400));
        assert_eq!(limits(&rotation, 0), [800, 3000, 3000]);
        rotation.greeted(Duration::ZERO);
        assert_eq!(limits(&rotation, 0), [500, 3000, 3000]);
        assert_eq!(limits(&rotation, 15), [1000, 3000, 3000]);
        goes_unreached(&mut rotation, 3);
        assert_eq!(limits(&rotation, 0), [500, 3000, 500]);
        rotation.leave(1, None);
        assert_eq!(limits(&rotation, 0), [3000, 3000, 500], "it is there");
        rotation.leave(2, None);
        assert_eq!(limits(&rotation, 0), [3000; 3], "none hung up last");
        rotation.leave(1, Some(&served(1000, false)));
        hangs_up(&mut rotation, 2);
        assert_eq!(limits(&rotation, 0), [3000, 3000, 500], "nor before");
    }

    /// A client that has not been greeted yet does not know how far away the servers are.
    #[test]
    fn who_gets_little_time_to_greet_gets_no_more_to_accept_the_connection() {
        for greeted in [None, Some(Duration::from_secs(1))] {
            let mut rotation = offered();
            rotation.greeted = greeted;
            rotation.leave(1, None);
            rotation.refused(Refusal::Unreached);
            hangs_up(&mut rotation, 2);
            hangs_up(&mut rotation, 3);
            let limit = Duration::from_secs(3);
            let tried = rotation.in_order(vec![1], Vec::new(), limit, Duration::ZERO);
            for mut candidate in tried {
                assert!(rotation.hurry(&mut candidate, Duration::ZERO));
                let limits = [candidate.accept_limit, candidate.limit];
                assert_eq!(limits, [Duration::from_millis(500); 2]);
            }
        }
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
