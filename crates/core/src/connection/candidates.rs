//! The addresses of a round of attempts: in which order they are tried, for how long each, and which
//! session is asked for there.

use alloc::vec::Vec;
use core::time::Duration;

use super::rotation::Past;

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
/// The shortest time for one address in other cases, however short the session timeout.
const DIAL_LEAST: Duration = Duration::from_millis(250);
/// The shortest time for one address that a short wait for the first connection leaves: as long as a server
/// on another continent takes.
const FIRST_LEAST: Duration = Duration::from_millis(500);

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
    /// How long to wait for the server's greeting.
    pub limit: Duration,
    /// The session to ask for there.
    pub wish: Resumption,
}

/// Returns the time for one address, so that the session outlasts a round and the next. Without a session,
/// a round fits into the time to make the `first` connection.
///
/// A silent address costs little in the first round: another one may answer, or the same one if its server
/// was just started or a packet was lost. Servers that are slow because they are burdened get more time in
/// each further round.
pub fn dial_limit(
    timeout: Duration,
    first: Option<Duration>,
    addresses: usize,
    past: Past,
) -> Duration {
    let share = |whole: Duration| {
        let share = whole * 2 / 3 / addresses.max(1) as u32;
        share.clamp(DIAL_LEAST, DIAL_LIMIT)
    };
    let begins = first.is_some();
    let first = first.map_or(Duration::MAX, |first| {
        share(first.min(timeout)).max(FIRST_LEAST)
    });
    let is_alone = addresses <= 1;
    let was_quick = past.greeted.filter(|_| is_alone);
    let as_the_first = u32::from(is_alone) + u32::from(was_quick.is_some());
    let doubled = past.rounds.saturating_sub(as_the_first);
    let in_first_round = match was_quick.filter(|_| !begins && past.rounds < QUICK_ROUNDS) {
        Some(took) => quick_round(timeout, took),
        None if begins && !is_alone => first_round(timeout).min(FIRST_ROUND_ANEW),
        None => first_round(timeout),
    };
    let longest = in_first_round * 2_u32.pow(doubled.min(4));
    share(timeout).min(first).min(longest)
}

fn first_round(timeout: Duration) -> Duration {
    FIRST_ROUND.min(timeout / FIRST_PART).max(DIAL_LEAST)
}

fn quick_round(timeout: Duration, greeted: Duration) -> Duration {
    let least = (timeout / QUICK_PART).clamp(QUICK_LEAST.0, QUICK_LEAST.1);
    least.max(greeted * QUICK_TIMES).min(first_round(timeout))
}

/// Puts the addresses of a round in order. Those of `last` come last of their kind, in their order.
///
/// The addresses that names had before are tried after the others. If a server has moved,
/// perhaps nothing answers at its old address, and its name is looked up again only after the
/// round. If it has not moved, it may be slow. So an old address gets a quarter of the limit,
/// and more the longer no server has served.
pub fn candidates<Address: Eq>(
    targets: Vec<Address>,
    kept: Vec<Address>,
    last: &[Address],
    limit: Duration,
    away: Duration,
) -> Vec<Candidate<Address>> {
    let kept_limit = (away / 2).clamp((limit / 4).max(DIAL_LEAST).min(limit), limit);
    let of = |mut targets: Vec<Address>, limit, wish| {
        targets.sort_by_key(|target| last.iter().position(|one| one == target));
        let candidate = move |target| Candidate {
            target,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::backoff;

    fn after(rounds: u32, greeted: Option<Duration>) -> Past {
        Past { rounds, greeted }
    }

    fn addresses(candidates: &[Candidate<u16>]) -> Vec<u16> {
        candidates.iter().map(|it| it.target).collect()
    }

    #[test]
    fn a_round_fits_into_the_session_timeout_and_the_first_into_the_wait() {
        let limit = |timeout, first: Option<u64>, addresses| {
            let first = first.map(Duration::from_secs);
            dial_limit(
                Duration::from_secs(timeout),
                first,
                addresses,
                after(9, None),
            )
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
            dial_limit(
                Duration::from_secs(20),
                wait,
                addresses,
                after(rounds, None),
            )
        };
        for (addresses, doubles_in, first_round) in [(1, 2, FIRST_ROUND), (2, 1, FIRST_ROUND_ANEW)]
        {
            assert_eq!(of(addresses, doubles_in - 1), first_round);
            assert_eq!(of(addresses, doubles_in), 2 * first_round);
            assert_eq!(of(addresses, u32::MAX), DIAL_LIMIT);
        }
    }

    /// As behind a balancer, whose only address leads to another server each time.
    #[test]
    fn a_guard_outlasts_two_silent_servers() {
        for seconds in [4, 10, 20] {
            let timeout = Duration::from_secs(seconds);
            let silent: Duration = (0..2)
                .map(|round| dial_limit(timeout, None, 1, after(round, None)))
                .sum();
            assert!(silent <= timeout / 3, "{silent:?} of {timeout:?}");
        }
    }

    /// A client has left a server that hangs T/6 and T/8 after the last proof was sent, and a command is
    /// told to stop T/2, less an eighth and a twentieth, after that.
    #[test]
    fn a_command_outlasts_silent_servers_behind_an_address_that_was_quick() {
        let limit = |timeout, round| {
            let took = Some(Duration::from_millis(9));
            dial_limit(timeout, None, 1, after(round, took))
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
            dial_limit(timeout, None, addresses, after(0, took)).as_millis()
        };
        assert_eq!((of(1, 1), of(1, 100), of(1, 1000)), (200, 800, 1500));
        assert_eq!(of(3, 1), 1500, "another server may be farther away");
    }

    #[test]
    fn the_server_that_was_left_last_is_tried_last() {
        let limit = Duration::from_secs(4);
        let left = vec![3, 1];
        let tried = candidates(vec![1, 2, 3], Vec::new(), &left, limit, Duration::ZERO);
        assert_eq!(addresses(&tried), [2, 3, 1]);
    }

    #[test]
    fn addresses_that_names_had_before_come_last_and_resume_only() {
        let last = vec![1];
        let limit = Duration::from_secs(4);
        let tried = |away| candidates(vec![1, 2], vec![3, 4], &last, limit, away);
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
}
