//! What holding costs, and that locks are proven in time.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::answer::Failure;
use crate::lifetime::Lifetime;
use crate::validity::Stamp;
use zklock_jute::{ErrorCode, EventKind};

const T: Duration = Duration::from_secs(20);
const START: Duration = Duration::from_secs(1_000);

fn stamp(sent: Duration) -> Stamp {
    Stamp {
        sent,
        touched: sent - T / 4,
    }
}

fn look(now: Duration) -> Look {
    Look {
        now,
        timeout: T,
        connected: true,
        connects: 0,
    }
}

fn many(count: usize) -> (Renewals<()>, Vec<Trust>) {
    let mut renewals = Renewals::default();
    let begin = |_| renewals.begin((), START, START);
    let ids: Vec<_> = (0..count).map(begin).collect();
    let trust = |id| Trust {
        id,
        stamp: Some(stamp(START)),
        better_at: None,
        changes_at: None,
    };
    (renewals, ids.into_iter().map(trust).collect())
}

/// Looks at what is due. Returns how many leases it looked at, and what is due after that.
fn look_at(renewals: &mut Renewals<()>, trust: &[Trust], now: Duration) -> (usize, Due<()>) {
    let due = renewals.take_due(now);
    let seen: Vec<_> = due.iter().map(|(id, ())| trust[*id as usize]).collect();
    (seen.len(), renewals.settle(&look(now), &seen))
}

#[test]
fn a_lock_beside_many_that_are_held_costs_one_look_at_itself() {
    let (mut renewals, trust) = many(4_000);
    let now = START + WATCH_AFTER;
    assert_eq!(look_at(&mut renewals, &trust, now).0, 4_000);
    // Nothing is due again before T/8.
    assert_eq!(look_at(&mut renewals, &trust, now).0, 0);
    let one = renewals.begin((), now, now);
    assert_eq!(renewals.take_due(now), [(one, ())]);
    renewals.end(one);
    renewals.end(0);
    assert!(renewals.take_due(now).is_empty());
    // A change of the connection concerns all of them.
    renewals.look_at_all();
    assert_eq!(renewals.take_due(now).len(), 3_999);
}

#[test]
fn more_locks_than_one_check_names_are_checked_in_turns() {
    let (mut renewals, _) = many(4 * NODES_A_CHECK);
    renewals.checked = START;
    let pause = renewals.pause(&look(START)).unwrap();
    assert!(pause <= T / PROVEN_EVERY / 5, "{pause:?}");
    let mut asked = BTreeSet::new();
    for turn in 1..=4 {
        let due = renewals.settle(&look(START + turn * T / 24), &[]);
        assert_eq!(due.checks.len(), NODES_A_CHECK, "{turn}");
        asked.extend(due.checks.iter().map(|(id, ())| *id));
    }
    assert_eq!(asked.len(), 4 * NODES_A_CHECK);
}

#[test]
fn what_changes_during_a_look_is_looked_at_again() {
    let (mut renewals, trust) = many(1);
    renewals.take_due(START);
    renewals.look_at_these(&[0]);
    renewals.settle(&look(START), &trust);
    assert_eq!(renewals.take_due(START).len(), 1);
}

#[test]
fn a_watch_that_was_not_set_is_asked_for_again_in_a_moment_and_one_that_has_fired_at_once() {
    let (mut renewals, trust) = many(1);
    let mut due = |now, happens: fn(&mut Renewals<()>)| {
        happens(&mut renewals);
        renewals.settle(&look(now), &trust).watches.len()
    };
    let now = START + WATCH_AFTER;
    assert_eq!(due(now, |_| {}), 1);
    let throttled = |renewals: &mut Renewals<()>| {
        let answered = Err(Failure::Refused(ErrorCode::THROTTLED));
        assert_eq!(renewals.was_read(0, &answered), None);
    };
    assert_eq!(due(now, throttled), 0, "the server has too many requests");
    assert_eq!(due(now + WATCH_AFTER, |_| {}), 1);
    let fired = |renewals: &mut Renewals<()>| {
        renewals.happened(0, EventKind::DataChanged);
    };
    assert_eq!(due(now + WATCH_AFTER, fired), 1);
}

#[test]
fn a_check_that_a_server_throws_away_is_sent_again_long_before_the_lock_is_suspect() {
    let (mut renewals, trust) = many(1);
    let checks = |renewals: &mut Renewals<()>, now| look_at(renewals, &trust, now).1.checks.len();
    let mut now = START + T / PROVEN_EVERY;
    assert_eq!(checks(&mut renewals, START), 0);
    assert_eq!(checks(&mut renewals, now), 1);
    for _ in 0..2 {
        let thrown_away = [Err(Failure::Refused(ErrorCode::THROTTLED))];
        let check = Check::of_one(0, stamp(now));
        assert_eq!(renewals.checked(&check, &thrown_away, true), []);
        // Not at once: the server has too many requests.
        assert_eq!(checks(&mut renewals, now), 0);
        now += T / AGAIN_PART;
        assert_eq!(checks(&mut renewals, now), 1);
    }
    // An answer that only takes long is not asked for again as soon.
    assert_eq!(checks(&mut renewals, now + T / AGAIN_PART), 0);
}

#[test]
fn without_a_connection_nothing_is_due_until_a_lock_fades() {
    let (mut renewals, mut trust) = many(1);
    let fades = START + T / 3;
    trust[0].changes_at = Some(fades);
    renewals.take_due(START);
    let cut = Look {
        connected: false,
        ..look(START)
    };
    let due = renewals.settle(&cut, &trust);
    assert!(due.checks.is_empty() && due.watches.is_empty());
    assert_eq!(renewals.pause(&cut), Some(T / 3));
    assert_eq!(renewals.take_due(fades).len(), 1);
}

/// A client that holds locks, and whose servers answer every check after the same time.
struct World {
    now: Duration,
    renewals: Renewals<()>,
    lifetime: Lifetime,
    held: HashMap<u64, Held>,
    answers: Vec<(Duration, Stamp, Vec<u64>)>,
    answer_after: Duration,
    /// When the next ping is answered.
    ping: Duration,
    looks: usize,
    checks: usize,
    watches: usize,
}

#[derive(Clone, Copy)]
struct Held {
    stamp: Stamp,
    since: Duration,
    watched: bool,
}

impl World {
    fn new(answer_after: Duration) -> Self {
        let before = START - 2 * T;
        let mut lifetime = Lifetime::new(T, before, before);
        for pings in 1..12 {
            let at = before + T / 6 * pings;
            lifetime.answered(at, at);
        }
        Self {
            now: START,
            renewals: Renewals::default(),
            lifetime,
            held: HashMap::new(),
            answers: Vec::new(),
            answer_after,
            ping: START,
            looks: 0,
            checks: 0,
            watches: 0,
        }
    }

    fn begin(&mut self) {
        let stamp = self.lifetime.stamp(self.now);
        let id = self.renewals.begin((), stamp.sent, self.now);
        let (since, watched) = (self.now, false);
        let held = Held {
            stamp,
            since,
            watched,
        };
        self.held.insert(id, held);
    }

    fn end(&mut self, nth: usize) {
        let mut ids: Vec<_> = self.held.keys().copied().collect();
        ids.sort_unstable();
        if let Some(id) = ids.get(nth % ids.len().max(1)) {
            self.held.remove(id);
            self.renewals.end(*id);
        }
    }

    /// Looks as the background thread does. Returns when it would look again.
    fn look(&mut self) -> Duration {
        let due = self.renewals.take_due(self.now);
        self.looks += due.len();
        let seen = due.iter().filter_map(|(id, ())| self.trust(*id));
        let seen: Vec<_> = seen.collect();
        let due = self.renewals.settle(&look(self.now), &seen);
        if !due.checks.is_empty() {
            self.checks += 1;
            let ids = due.checks.iter().map(|(id, ())| *id).collect();
            let stamp = self.lifetime.stamp(self.now);
            self.answers
                .push((self.now + self.answer_after, stamp, ids));
        }
        for (id, ()) in due.watches {
            let held = self.held.get_mut(&id).expect("it is held");
            assert!(!held.watched && held.since + WATCH_AFTER <= self.now);
            held.watched = true;
            self.watches += 1;
        }
        let pause = self.renewals.pause(&look(self.now)).unwrap_or(T);
        assert!(self.renewals.looks.len() <= self.held.len());
        // A pause of nothing would be a loop.
        assert!(Duration::ZERO < pause || !self.answers.is_empty());
        self.now + pause
    }

    fn trust(&self, id: u64) -> Option<Trust> {
        let stamp = self.held.get(&id)?.stamp;
        let validity = self.lifetime.terms().validity(stamp);
        Some(Trust {
            id,
            stamp: Some(stamp),
            better_at: self.lifetime.better_at(stamp),
            changes_at: Some(validity.suspect_from),
        })
    }

    /// Lets time pass until this moment.
    fn pass(&mut self, until: Duration) {
        loop {
            let next = self.look().min(until).min(self.ping);
            let answer = self.answers.iter().map(|(at, ..)| *at).min();
            self.now = answer.map_or(next, |at| at.min(next)).max(self.now);
            let now = self.now;
            if self.ping <= now {
                self.lifetime.answered(now - self.answer_after, now);
                self.ping = now + T / 6;
            }
            let arrived = self.answers.extract_if(.., |(at, ..)| *at <= now);
            let arrived: Vec<_> = arrived.collect();
            for (at, stamp, ids) in arrived {
                self.lifetime.answered(stamp.sent, at);
                self.lifetime.committed(stamp.sent, 0);
                for id in &ids {
                    if let Some(held) = self.held.get_mut(id) {
                        held.stamp.sent = held.stamp.sent.max(stamp.sent);
                        held.stamp.touched = held.stamp.touched.max(stamp.touched);
                    }
                }
                self.renewals.look_at_these(&ids);
            }
            for held in self.held.values() {
                let suspect = self.lifetime.terms().validity(held.stamp).suspect_from;
                assert!(now < suspect, "suspect at {:?}", now - START);
            }
            if until <= now {
                return;
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Begin,
    End(usize),
    Pass(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => Just(Step::Begin),
        2 => (0usize..64).prop_map(Step::End),
        4 => (0u32..8_000).prop_map(Step::Pass),
    ]
}

/// As where the disks of the servers get slower and slower: the next check waits for no answer.
#[test]
fn locks_stay_held_where_answers_take_up_to_three_twentieths_of_the_session_timeout() {
    let mut world = World::new(Duration::ZERO);
    world.begin();
    for percent in 1..=15 {
        world.answer_after = T * percent / 100;
        world.checks = 0;
        world.pass(world.now + T * 3);
        // A second check is sent only where the first takes longer than that.
        let every = if percent <= 8 { 8 } else { 12 };
        let most = 3 * every + 1;
        assert!(world.checks <= most, "{} at {percent} %", world.checks);
    }
}

proptest! {
    /// While answers arrive within a twelfth of the timeout, no lock is suspect; the quorum is asked
    /// every eighth at most, whatever is held; and a lease is looked at when it begins, when it is
    /// confirmed and when it would fade.
    #[test]
    fn every_lock_is_proven_in_time_and_no_more_often_than_it_must(
        answer_after in 0u32..1_500,
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        let mut world = World::new(Duration::from_millis(answer_after.into()));
        let mut begun = 0;
        for step in steps {
            match step {
                Step::Begin => { world.begin(); begun += 1; }
                Step::End(nth) => world.end(nth),
                Step::Pass(ms) => world.pass(world.now + Duration::from_millis(ms.into())),
            }
        }
        let time = (world.now - START).as_secs_f64() / T.as_secs_f64();
        // A lock's own proof is one, too: the next check is due an eighth after it.
        let most = 8.0 * time + 1.0;
        prop_assert!(world.checks as f64 <= most, "{} checks in {time} T", world.checks);
        prop_assert!(world.watches <= begun);
        let looks = begun * (3 + (16.0 * time) as usize);
        prop_assert!(world.looks <= looks, "{} looks for {begun} in {time} T", world.looks);
    }
}
