//! How late a client is after an election, and how often it asks: the order, the time and the pauses of the
//! attempts, together.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use core::time::Duration;

use super::backoff::Service;
use super::rotation::{Refusal, Rotation, Round};

const TIMEOUT: Duration = Duration::from_secs(20);

/// What a server does from a moment on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Does {
    /// Its address accepts no connection.
    Unreached,
    /// It accepts a connection, and answers nothing.
    Nothing,
    HangsUp,
    Serves,
    /// It serves, and takes this long to greet, because many clients ask it at once.
    ServesAfter(Duration),
    /// It serves, and is so far away that its address accepts a connection, and it greets, only after this long.
    ServesFrom(Duration),
}

/// The servers: what each does, and from which moment on something else.
struct Servers(Vec<Vec<(Duration, Does)>>);

impl Servers {
    /// Creates servers one of which hangs and stays so. The others find that out after some time, and elect.
    fn whose_leader_hangs(found_out: Duration, elected: Duration) -> Self {
        let follower = [
            (Duration::ZERO, Does::Nothing),
            (found_out, Does::HangsUp),
            (elected, Does::Serves),
        ];
        Self::of(&[(Duration::ZERO, Does::Nothing)], &follower)
    }

    /// Creates one server, and two others.
    fn of(one: &[(Duration, Does)], others: &[(Duration, Does)]) -> Self {
        Self([one, others, others].map(<[_]>::to_vec).into())
    }

    /// Returns what a server does at a moment, and until when.
    fn does(&self, server: usize, now: Duration) -> (Does, Duration) {
        let phases = &self.0[server];
        let next = phases.iter().position(|(from, _)| now < *from);
        let until = next.map_or(Duration::MAX, |next| phases[next].0);
        (phases[next.unwrap_or(phases.len()) - 1].1, until)
    }

    /// Returns the end of an attempt, and what the server did.
    fn asked(
        &self,
        server: usize,
        now: Duration,
        limits: (Duration, Duration),
    ) -> (Does, Duration) {
        let (accept_limit, limit) = limits;
        match self.does(server, now) {
            (Does::Unreached, _) => (Does::Unreached, now + accept_limit),
            (Does::Nothing, until) if now + limit < until => (Does::Nothing, now + limit),
            // The client asks again, because a server closes its connections when it loses its leader.
            (Does::Nothing, until) => (Does::HangsUp, until),
            (Does::ServesAfter(slow), _) if limit < slow => (Does::Nothing, now + limit),
            (Does::ServesAfter(slow), _) => (Does::Serves, now + slow),
            (Does::ServesFrom(far), _) if accept_limit < far => {
                (Does::Unreached, now + accept_limit)
            }
            (Does::ServesFrom(far), _) if limit < far => (Does::Nothing, now + far + limit),
            (Does::ServesFrom(far), _) => (Does::Serves, now + 2 * far),
            (does, _) => (does, now + Duration::from_millis(2)),
        }
    }
}

/// Asks as a client that has lost its connection until it is served. Returns when that is, and how often it
/// has asked each server.
fn comes_back(servers: &Servers, order: &[usize], away_since: Duration) -> (Duration, Vec<u32>) {
    let mut rotation = Rotation::new(TIMEOUT, away_since);
    rotation.greeted(Duration::from_millis(2));
    goes_on(rotation, servers, order, away_since)
}

/// The same, for a client that has left the first server of the order because it fell silent.
fn leaves(servers: &Servers, order: &[usize]) -> (Duration, Vec<u32>) {
    let mut rotation = Rotation::new(TIMEOUT, Duration::ZERO);
    let _ = rotation.begin((order.to_vec(), Vec::new()), TIMEOUT, None, Duration::ZERO);
    rotation.accepted(Duration::from_millis(1));
    let service = Service {
        lived: Duration::from_secs(60),
        answered: true,
        unanswered: true,
    };
    rotation.leave(order[0], Some(&Round::Served(service)));
    goes_on(rotation, servers, order, Duration::ZERO)
}

fn goes_on(
    mut rotation: Rotation<usize>,
    servers: &Servers,
    order: &[usize],
    away_since: Duration,
) -> (Duration, Vec<u32>) {
    let mut now = away_since;
    let mut asked = vec![0; order.len()];
    loop {
        let tried = rotation.begin((order.to_vec(), Vec::new()), TIMEOUT, None, Duration::ZERO);
        for (number, mut candidate) in (1..).zip(tried) {
            let (server, began) = (candidate.target, now);
            asked[server] += 1;
            let is_hurried = rotation.hurry(&mut candidate, began - away_since);
            let limits = (candidate.accept_limit, candidate.limit);
            let (did, ended) = servers.asked(server, began, limits);
            if did == Does::Serves {
                return (ended, asked);
            }
            rotation.leave(server, None);
            match did {
                Does::Unreached => rotation.refused(Refusal::Unreached),
                Does::HangsUp => rotation.refused(Refusal::HungUp),
                _ => {}
            }
            let hurried = match is_hurried {
                true => ended - began,
                false => Duration::ZERO,
            };
            now = ended + rotation.pause_after_attempt(number == order.len(), hurried, ended);
        }
        rotation.next_round();
    }
}

const ORDERS: [[usize; 3]; 6] = [
    [0, 1, 2],
    [0, 2, 1],
    [1, 0, 2],
    [1, 2, 0],
    [2, 0, 1],
    [2, 1, 0],
];

/// Returns how late a client is on average and at most, and how often it has asked one server at most.
fn lateness(all: impl Iterator<Item = (Servers, Duration, Duration)>) -> (Duration, Duration, u32) {
    let (mut sum, mut count, mut longest, mut most) = (Duration::ZERO, 0, Duration::ZERO, 0);
    for (servers, served_from, away_since) in all {
        for order in ORDERS {
            let (back, asked) = comes_back(&servers, &order, away_since);
            let late = back - served_from;
            (sum, count) = (sum + late, count + 1);
            (longest, most) = (longest.max(late), asked.into_iter().fold(most, u32::max));
        }
    }
    (sum / count, longest, most)
}

/// Returns the lateness of clients that lose their servers when these lose their leader; the others elect
/// within 3 to 10 s.
fn lateness_of(servers: impl Fn(Duration) -> Servers) -> (Duration, Duration, u32) {
    let all = millis(3_000..10_000);
    lateness(all.map(|elected| (servers(elected), elected, Duration::ZERO)))
}

fn millis(all: Range<u64>) -> impl Iterator<Item = Duration> {
    all.step_by(23).map(Duration::from_millis)
}

/// The followers find out after ten seconds, as by default. The clients left their servers before.
#[test]
fn a_client_is_soon_back_after_an_election_although_one_server_hangs() {
    let (found_out, served_from) = (Duration::from_secs(10), Duration::from_millis(10_400));
    let all = millis(2_700..5_900).map(|away_since| {
        let servers = Servers::whose_leader_hangs(found_out, served_from);
        (servers, served_from, away_since)
    });
    let (average, longest, most) = lateness(all);
    assert!(average < Duration::from_millis(1_000), "{average:?}");
    assert!(longest < Duration::from_millis(3_500), "{longest:?}");
    assert!(most <= 5, "{most}");
}

#[test]
fn a_server_that_hangs_delays_little_while_the_others_take_long_to_elect() {
    let servers = |elected| Servers::whose_leader_hangs(Duration::ZERO, elected);
    let (average, longest, most) = lateness_of(servers);
    assert!(average < Duration::from_millis(500), "{average:?}");
    assert!(longest < Duration::from_millis(1_500), "{longest:?}");
    assert!(most <= 12, "{most}");
}

#[test]
fn while_all_look_for_a_leader_they_are_asked_in_turn() {
    let (average, longest, most) = lateness_of(|elected| {
        let mut servers = Servers::whose_leader_hangs(Duration::ZERO, elected);
        servers.0[0] = servers.0[1].clone();
        servers
    });
    assert!(average < Duration::from_millis(300), "{average:?}");
    assert!(longest < Duration::from_millis(1_000), "{longest:?}");
    assert!(most <= 25, "{most}");
}

/// As where each server's name has an address of a version of IP that the network drops, too.
#[test]
fn addresses_that_accept_no_connection_delay_little_while_the_others_take_long_to_elect() {
    let (mut sum, mut count, mut longest) = (Duration::ZERO, 0, Duration::ZERO);
    for elected in millis(3_000..6_000) {
        let follower = [(Duration::ZERO, Does::HangsUp), (elected, Does::Serves)];
        let unreached = [(Duration::ZERO, Does::Unreached)];
        let phases = [&follower[..], &follower, &unreached, &unreached, &unreached];
        let servers = Servers(phases.map(<[_]>::to_vec).into());
        let mut order = [0, 1, 2, 3, 4];
        for _ in 0..order.len() {
            order.rotate_left(1);
            let (back, asked) = comes_back(&servers, &order, Duration::ZERO);
            let late = back - elected;
            (sum, count, longest) = (sum + late, count + 1, longest.max(late));
            assert!(asked.iter().all(|asked| *asked <= 8), "{asked:?}");
        }
    }
    let average = sum / count;
    assert!(average < Duration::from_millis(1_500), "{average:?}");
    assert!(longest < Duration::from_millis(3_000), "{longest:?}");
}

/// Each attempt that is given up costs a server that many clients ask more than it can do.
#[test]
fn a_lone_server_that_is_slow_to_greet_is_not_asked_without_a_pause() {
    let minute = Duration::from_secs(60);
    let phases = vec![(Duration::ZERO, Does::Nothing), (minute, Does::Serves)];
    let (_, asked) = comes_back(&Servers(vec![phases]), &[0], Duration::ZERO);
    assert!(asked[0] <= 14, "{asked:?}");
}

/// One server has no leader, and never finds one. The others have, and many clients ask them at once.
#[test]
fn servers_that_are_slow_to_greet_are_given_time_although_another_one_hangs_up() {
    for slow in [300, 600, 1_000, 1_400, 2_000, 2_900].map(Duration::from_millis) {
        for order in ORDERS {
            let slows = [(Duration::ZERO, Does::ServesAfter(slow))];
            let hangs_up = [(Duration::ZERO, Does::HangsUp)];
            let servers = Servers::of(&hangs_up, &slows);
            let (back, asked) = comes_back(&servers, &order, Duration::ZERO);
            let first = match slow < Duration::from_millis(1_500) {
                true => Duration::from_millis(10),
                false => Duration::from_millis(5_500),
            };
            assert!(back < slow + first, "{slow:?}: {back:?}");
            assert!(asked.iter().all(|asked| *asked <= 3), "{slow:?}: {asked:?}");
        }
    }
}

/// The server that the client has left was near, and is gone.
#[test]
fn a_server_that_is_far_away_is_reached_at_once_although_another_one_hangs_up() {
    for far in [300, 600, 1_000, 1_400].map(Duration::from_millis) {
        for order in ORDERS {
            let all = [Does::HangsUp, Does::Unreached, Does::ServesFrom(far)];
            let servers = Servers(all.map(|does| vec![(Duration::ZERO, does)]).into());
            let (back, asked) = comes_back(&servers, &order, Duration::ZERO);
            let first = Duration::from_millis(1_600);
            assert!(back < 2 * far + first, "{far:?}: {back:?}");
            assert!(asked.iter().all(|asked| *asked <= 1), "{far:?}: {asked:?}");
        }
    }
}

/// The machines of two servers vanish, or that of one that has two addresses. Once, the second took 1.5 s.
#[test]
fn a_command_outlasts_a_second_address_that_vanished() {
    let all = [Does::Unreached, Does::Unreached, Does::Serves];
    let servers = Servers(all.map(|does| vec![(Duration::ZERO, does)]).into());
    for order in [[0, 1, 2], [0, 2, 1]] {
        let (back, _) = leaves(&servers, &order);
        assert!(back < TIMEOUT / 40, "{order:?}: {back:?}");
    }
}

/// The others are farther away than the server that vanished.
#[test]
fn a_server_that_is_far_away_is_reached_although_a_near_one_vanished() {
    for (far, asked_at_most, late) in [(300, 1, 0), (310, 1, 0), (600, 2, 2_500), (1_400, 2, 2_500)]
    {
        let (far, late) = (Duration::from_millis(far), Duration::from_millis(late));
        for order in [[0, 1, 2], [0, 2, 1]] {
            let all = [
                Does::Unreached,
                Does::ServesFrom(far),
                Does::ServesFrom(far),
            ];
            let servers = Servers(all.map(|does| vec![(Duration::ZERO, does)]).into());
            let (back, asked) = leaves(&servers, &order);
            assert!(back <= 2 * far + late, "{far:?}: {back:?}");
            let asked = asked.into_iter().max();
            assert!(asked <= Some(asked_at_most), "{far:?}: {asked:?}");
        }
    }
}
