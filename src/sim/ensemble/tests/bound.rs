//! The end of a session whose follower stops: what a client may count on.
//!
//! The cases, the rule and its rivals are those of the derivation in `docs/guarantees.md`: a
//! client of a follower connects, may fall silent, locks, and proves its lock again and again,
//! with bytes that may be late, until the follower stops.

use std::time::Duration;

use super::lab::{Client, Heard, Lab, check, create, end_of, ms};
use crate::sim::ensemble::state::Event;
use crate::sim::ensemble::{EnsembleConfig, Fault, SessionEnd};
use zklock_jute::{CreateMode, Request};

const TICK: Duration = ms(2000);

/// A hard case: a client of a follower that stops at some moment.
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

    /// Plays the case; returns the client, when each message was answered, and the start.
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
                Heard::Reply(header, _) => (header.xid == *xid).then_some(*at),
                _ => None,
            });
            replies.next()
        }));
        (client, answered, start)
    }
}

/// When a guard stops trusting its lock, by the rule of `validity`: the client relies on the last
/// message that was answered at least a quarter of the timeout before the last check was sent.
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

fn setting(hop: Duration) -> EnsembleConfig {
    EnsembleConfig {
        tick: TICK,
        hop: Duration::ZERO..=hop,
        // So that late pings part no follower from its leader.
        sync_limit: 100,
        ..EnsembleConfig::default()
    }
}

/// The results of many hard cases.
#[derive(Debug, Default)]
struct Verdict {
    judged: usize,
    /// The session ended while the guard trusted its lock.
    wrong: usize,
    /// The same for a guard that relies on the last commit alone.
    wrong_by_commit: usize,
}

/// Plays many hard cases, with pings that are late by up to a part of the timeout.
fn judge(late: f64) -> Verdict {
    let mut verdict = Verdict::default();
    for seed in 0..3000 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let ticks = [2, 4, 10][chance.usize(..3)];
        let hard = Hard::draw(&mut chance, TICK * ticks);
        let mut lab = Lab::new(setting(hard.timeout / 500), seed);
        let by = hard.timeout.mul_f64(late);
        lab.fault(Fault::LatePings { by });
        lab.run_for(ms(chance.u64(0..4000)));
        let (_, followers) = lab.roles();
        let (client, answered, start) = hard.play(&mut lab, followers[0]);
        lab.until("it ends", |lab| !lab.is_alive(client.session()));
        let (end, why) = end_of(&lab.ensemble, client.session()).unwrap();
        assert_eq!(why, SessionEnd::Expired);
        let last = answered.iter().flatten().max().copied().unwrap();
        let [trusted, by_commit] =
            [true, false].map(|bounded| deadline(&hard, &answered, start, bounded));
        let is_wrong = |until: Option<Duration>| until.is_some_and(|until| end.max(last) < until);
        verdict.judged += usize::from(trusted.is_some());
        verdict.wrong += usize::from(is_wrong(trusted));
        verdict.wrong_by_commit += usize::from(is_wrong(by_commit));
    }
    verdict
}

#[test]
fn no_session_ends_before_the_bound_that_guards_rely_on() {
    let verdict = judge(0.1);
    assert!(2000 < verdict.judged, "{verdict:?}");
    assert_eq!(verdict.wrong, 0, "{verdict:?}");
    assert!(10 < verdict.wrong_by_commit, "{verdict:?}");
}

#[test]
fn with_pings_that_are_late_by_more_than_the_bound_allows_a_guard_can_be_wrong() {
    let verdict = judge(0.5);
    assert!(0 < verdict.wrong, "{verdict:?}");
}

/// Returns when the leader pings next.
fn next_ping(lab: &Lab) -> Duration {
    let is_round = |event: &&Event| matches!(event, Event::Round { .. });
    let rounds = lab.ensemble.agenda.planned();
    let round = rounds
        .filter(|(_, event)| is_round(event))
        .map(|(at, _)| at);
    round.min().expect("the leader pings")
}

/// Returns the end of the session, worked out from the leader's clock and its pings.
fn expected_end(hard: &Hard, start: Duration, first_ping: Duration, phase: Duration) -> Duration {
    let ticks = |time: Duration| time.as_millis() / TICK.as_millis() + 1;
    let ends = |touched: Duration| {
        let ticks = u32::try_from(ticks(touched + phase + hard.timeout)).unwrap();
        TICK * ticks - phase
    };
    let arrivals: Vec<_> = hard
        .arrivals
        .iter()
        .map(|arrival| start + *arrival)
        .collect();
    let stop = start + hard.stop;
    let (mut end, mut before, mut ping) = (ends(arrivals[0]), Duration::ZERO, first_ping);
    while ping < stop && ping < end {
        // The beginning of a session counts as something heard from it.
        if arrivals
            .iter()
            .any(|a| before < *a && *a <= ping && *a < stop)
        {
            end = end.max(ends(ping));
        }
        (before, ping) = (ping, ping + TICK / 2);
    }
    end
}

#[test]
fn a_session_ends_exactly_where_the_rules_put_it() {
    for seed in 0..1000 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let ticks = [2, 4, 10][chance.usize(..3)];
        let hard = Hard::draw(&mut chance, TICK * ticks);
        let mut lab = Lab::new(setting(Duration::ZERO), seed);
        let first_ping = next_ping(&lab);
        let (leader, followers) = lab.roles();
        let leading = lab.ensemble.servers[leader].leading();
        let phase = ms(leading.unwrap().phase_ms);
        let (client, _, start) = hard.play(&mut lab, followers[0]);
        lab.until("it ends", |lab| !lab.is_alive(client.session()));
        let (end, _) = end_of(&lab.ensemble, client.session()).unwrap();
        assert_eq!(end, expected_end(&hard, start, first_ping, phase), "{seed}");
    }
}
