//! When a session ends, and where it may go before.

use std::time::Duration;

use super::lab::{Client, Lab, check, config, create, ms};
use crate::jute::{ConnectRequest, CreateMode, ErrorCode, Request};
use crate::sim::ensemble::{Ensemble, EnsembleConfig, Fault, SessionEnd, What};

/// Returns when a session ended, and why.
fn end_of(ensemble: &Ensemble, session: i64) -> Option<(Duration, SessionEnd)> {
    ensemble
        .history()
        .iter()
        .find_map(|change| match change.what {
            What::SessionEnded { session: each, why } if each == session => Some((change.at, why)),
            _ => None,
        })
}

#[test]
fn a_timeout_is_negotiated_at_each_handshake() {
    let mut lab = Lab::new(config(), 1);
    let client = lab.client(0, ms(1));
    assert_eq!(client.reply.timeout_ms, 200);
    let longer = ConnectRequest {
        timeout_ms: 1_000_000,
        ..client.again()
    };
    let client = lab.meet(1, &longer).unwrap();
    assert_eq!(client.reply.timeout_ms, 2000);
    let began = lab.now;
    lab.until("it ends", |lab| !lab.is_alive(client.session()));
    let lived = lab.now - began;
    assert!(ms(1990) < lived && lived < ms(2220), "{lived:?}");
}

#[test]
fn a_session_is_taken_up_again_with_its_password_only() {
    let mut lab = Lab::new(config(), 2);
    let client = lab.client(0, ms(2000));
    let mut wrong = client.again();
    wrong.password[0] ^= 1;
    assert!(lab.meet(1, &wrong).is_none());
    let mut unknown = client.again();
    unknown.session += 1;
    assert!(lab.meet(1, &unknown).is_none());
    assert!(lab.meet(1, &client.again()).is_some());
}

#[test]
fn a_session_that_has_moved_changes_nothing_through_its_old_connection() {
    let mut lab = Lab::new(config(), 3);
    let (leader, followers) = lab.roles();
    for from in [followers[0], leader] {
        let old = lab.client(from, ms(2000));
        let new = lab.meet(followers[1], &old.again()).unwrap();
        // The old connection of a follower can read.
        let is_leader = from == leader;
        let read = lab.code(old.connection, &Request::exists("/"));
        assert_eq!(read == ErrorCode::OK, !is_leader);
        if !is_leader {
            let lost = lab.call(old.connection, &create("/a", CreateMode::Persistent));
            assert_eq!(lost, None);
        }
        assert!(lab.is_closed(old.connection));
        let path = format!("/by-{from}");
        lab.create(new.connection, &path, CreateMode::Ephemeral);
        assert_eq!(lab.code(new.connection, &check(&path)), ErrorCode::OK);
    }
    assert!(!lab.ensemble.nodes().contains(&"/a".to_owned()));
}

#[test]
fn a_second_connection_to_the_same_server_ends_the_first() {
    let mut lab = Lab::new(config(), 4);
    let first = lab.client(0, ms(2000));
    let second = lab.meet(0, &first.again()).unwrap();
    assert!(lab.is_closed(first.connection));
    assert_eq!(lab.code(second.connection, &Request::Ping), ErrorCode::OK);
}

#[test]
fn an_administrator_ends_a_session_at_once() {
    let mut lab = Lab::new(config(), 5);
    let client = lab.client(1, ms(2000));
    lab.create(client.connection, "/mine", CreateMode::Ephemeral);
    let session = client.session();
    lab.fault(Fault::Expire { session });
    lab.run_for(ms(10));
    assert!(lab.is_closed(client.connection));
    assert!(lab.ensemble.nodes().is_empty());
    let (_, why) = end_of(&lab.ensemble, session).unwrap();
    assert_eq!(why, SessionEnd::ByHand);
    assert!(lab.meet(2, &client.again()).is_none());
}

#[test]
fn commits_by_a_follower_touch_only_with_its_answer_to_a_ping() {
    // With a tick of 2 s, half a tick is long against all else.
    let slow = EnsembleConfig {
        tick: ms(2000),
        ..EnsembleConfig::default()
    };
    let mut early = 0;
    for seed in 0..40 {
        let mut lab = Lab::new(slow.clone(), seed);
        let (_, followers) = lab.roles();
        let client = lab.client(followers[0], ms(4000));
        lab.create(client.connection, "/mine", CreateMode::Ephemeral);
        lab.run_for(ms(3000));
        assert_eq!(lab.code(client.connection, &check("/mine")), ErrorCode::OK);
        let committed = lab.now;
        lab.fault(Fault::Cut {
            server: followers[0],
        });
        lab.until("it ends", |lab| !lab.is_alive(client.session()));
        early += usize::from(lab.now < committed + ms(4000));
    }
    // The touch that the commit did not bring was cut off in most runs.
    assert!(30 < early, "{early}");
}

/// One hard case of bound.py: a client of a follower that stops at some moment.
struct Hard {
    timeout: Duration,
    sends: Vec<Duration>,
    arrivals: Vec<Duration>,
    /// Which message creates the node.
    lock: usize,
    stop: Duration,
}

impl Hard {
    fn draw(chance: &mut fastrand::Rng, timeout: Duration) -> Self {
        let t = timeout.as_secs_f64();
        let (mut at, mut sends) = (0.0, vec![0.0]);
        for _ in 0..chance.usize(0..=5) {
            at += 1.0 / 3.0;
            sends.push(at);
        }
        // The last choice is a silence.
        at += match chance.u8(..3) {
            2 => chance.f64() * 0.95,
            _ => chance.f64() / 3.0,
        };
        let lock = sends.len();
        sends.push(at);
        for _ in 0..chance.usize(0..=12) {
            at += 1.0 / 6.0;
            sends.push(at);
        }
        let net = [0.001, 0.01, 0.05][chance.usize(..3)];
        let (mut last, mut arrivals) = (0.0_f64, Vec::new());
        for send in &sends {
            let is_late = chance.f64() < 0.15;
            let late = if is_late { chance.f64() * 0.9 } else { 0.0 };
            last = last.max(send + chance.f64() * net + late);
            arrivals.push(last);
        }
        let stop = arrivals[lock] + chance.f64() * (last + 1.0 - arrivals[lock]);
        let scale = |all: Vec<f64>| {
            let scale = |each: f64| Duration::from_secs_f64(each * t);
            all.into_iter().map(scale).collect()
        };
        Self {
            timeout,
            sends: scale(sends),
            arrivals: scale(arrivals),
            lock,
            stop: Duration::from_secs_f64(stop * t),
        }
    }

    /// Plays it; returns the client, when each message was answered, and its start.
    fn play(&self, lab: &mut Lab, server: usize) -> (Client, Vec<Option<Duration>>, Duration) {
        let start = lab.now;
        lab.run_to(start + self.arrivals[0]);
        let client = lab.client(server, self.timeout);
        let mut xids = vec![];
        for (place, arrival) in self.arrivals.iter().enumerate().skip(1) {
            if self.stop <= *arrival {
                break;
            }
            lab.run_to((start + *arrival).max(lab.now));
            let request = match place {
                place if place < self.lock => Request::exists("/"),
                place if place == self.lock => create("/mine", CreateMode::Ephemeral),
                _ => check("/mine"),
            };
            xids.push(lab.ask(client.connection, &request));
        }
        lab.run_to((start + self.stop).max(lab.now));
        lab.fault(Fault::Crash { server });
        let mut answered = vec![Some(start + self.arrivals[0])];
        answered.extend(xids.iter().map(|xid| {
            let heard = lab.heard_at(client.connection).iter();
            let mut replies = heard.filter_map(|(at, heard)| match heard {
                super::lab::Heard::Reply(header, _) => (header.xid == *xid).then_some(*at),
                _ => None,
            });
            replies.next()
        }));
        (client, answered, start)
    }
}

/// When a guard stops to trust its lock, with the rule of `validity`: the client relies on the
/// last message that was answered a quarter of the timeout before the last check was sent.
fn deadline(
    hard: &Hard,
    answered: &[Option<Duration>],
    start: Duration,
    bounded: bool,
) -> Option<Duration> {
    let t = hard.timeout;
    let last = (hard.lock..answered.len())
        .rev()
        .find(|place| answered[*place].is_some())?;
    let s1 = start + hard.sends[last];
    let earlier = (0..answered.len()).filter(|place| {
        let at = answered[*place];
        *place == 0 || at.is_some_and(|at| at + t / 4 <= s1)
    });
    let s0 = start + hard.sends[earlier.max()?];
    let by_commit = s1 + t / 2;
    Some(if bounded {
        by_commit.min(s0 + t * 5 / 6)
    } else {
        by_commit
    })
}

#[test]
fn no_session_ends_before_the_bound_that_guards_rely_on() {
    let mut naive = 0;
    let mut judged = 0;
    for seed in 0..3000 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let ticks = [2, 4, 10][chance.usize(..3)];
        let settings = EnsembleConfig {
            tick: ms(2000),
            hop: Duration::ZERO..=ms(1000 * ticks / 500),
            ..EnsembleConfig::default()
        };
        let timeout = ms(2000) * u32::try_from(ticks).unwrap();
        let hard = Hard::draw(&mut chance, timeout);
        let mut lab = Lab::new(settings, seed);
        lab.run_for(ms(chance.u64(0..4000)));
        let (_, followers) = lab.roles();
        let (client, answered, start) = hard.play(&mut lab, followers[0]);
        lab.until("it ends", |lab| !lab.is_alive(client.session()));
        let (end, why) = end_of(&lab.ensemble, client.session()).unwrap();
        assert_eq!(why, SessionEnd::Expired);
        let last = answered.iter().flatten().max().copied().unwrap();
        let Some(trusted) = deadline(&hard, &answered, start, true) else {
            continue;
        };
        judged += 1;
        assert!(
            trusted <= end || trusted <= last,
            "seed {seed}: trusted until {trusted:?}, ended at {end:?}"
        );
        let trusted = deadline(&hard, &answered, start, false).unwrap();
        naive += usize::from(end < trusted && last < trusted);
    }
    println!("{naive} of {judged} would be wrong by the last commit alone");
    assert!(2000 < judged && 0 < naive, "{naive} of {judged}");
}

#[test]
fn a_session_ends_exactly_at_a_tick_of_its_leader() {
    let mut phases = std::collections::BTreeSet::new();
    for seed in 0..30 {
        let mut lab = Lab::new(config(), seed);
        let (leader, _) = lab.roles();
        // The leader's own clients are touched at once.
        let ends = [0, 37, 222].map(|wait| {
            lab.run_for(ms(wait));
            let began = lab.now;
            let client = lab.client(leader, ms(250));
            lab.until("it ends", |lab| !lab.is_alive(client.session()));
            let (end, _) = end_of(&lab.ensemble, client.session()).unwrap();
            assert!(ms(250) < end - began, "{:?}", end - began);
            assert!(end - began < ms(250 + 100 + 5), "{:?}", end - began);
            end
        });
        // The commit takes two hops after the tick.
        let into = |end: &Duration| u64::try_from(end.as_micros()).unwrap() % 100_000;
        let first = into(&ends[0]);
        for end in &ends {
            let apart = (into(end) + 100_000 - first) % 100_000;
            assert!(apart < 4500 || 95_500 < apart, "{ends:?}");
        }
        phases.insert(first / 20_000);
    }
    assert!(3 < phases.len(), "each leader has its own clock");
}
