//! Plans with one lock, a few clients that want it one after the other, and nothing that goes
//! wrong: they show how long each way to the lock takes, in trips, and what it costs.

use zklock::Dialect;

use super::{
    ClientEnd, ClientPlan, LinkPlan, Lock, Once, Plan, Release, Rng, Step, Threads, Trouble, What,
    pick,
};

/// The session timeouts of users, and so the ticks.
const TIMEOUTS: [u64; 5] = [4000, 10_000, 20_000, 30_000, 40_000];
/// Parts of the session timeout, in sixtieths, that may matter to the way in which a lock is
/// granted.
const PARTS: [u64; 11] = [0, 0, 1, 2, 5, 10, 20, 30, 60, 120, 180];

impl Plan {
    /// Returns a plan with some way to a lock: after a session, a silence and a wait of any length,
    /// at any place in the queue, on a connection that is steady or that was resumed.
    pub(super) fn cells(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0xce11);
        let trip = *pick(&mut rng, &[500, 2000, 5000]);
        let mut plan = Self {
            tick: 2000,
            timeout: *pick(&mut rng, &TIMEOUTS),
            hop: trip / 100,
            is_timed: true,
            old: false,
            containers_vanish: false,
            counters_end: false,
            threads: Threads {
                switch: *pick(&mut rng, &[0.0, 0.05, 0.2, 0.5]),
                pause: 0.0,
                longest: 1,
            },
            link: LinkPlan {
                latency: (trip, trip),
                window: 1 << 20,
                piece: usize::MAX,
            },
            troubles: Vec::new(),
            ..Self::mixed(seed)
        };
        let family = rng.u8(..8);
        let timeout = plan.timeout;
        plan.clients = (0..rng.usize(2..6))
            .map(|place| contender(&mut rng, timeout, family, place))
            .collect();
        if rng.u8(..3) == 0 {
            plan.troubles = resets(&mut rng, &plan);
        }
        plan
    }
}

/// Returns a time that may matter: a part of the timeout, and a little more.
fn part(rng: &mut Rng, timeout: u64) -> u64 {
    timeout * pick(rng, &PARTS) / 60 + rng.u64(0..=timeout / 200)
}

fn lock(rng: &mut Rng, family: u8) -> Lock {
    match family {
        0 | 1 => Lock::Mutex(1),
        2 | 3 => *pick(rng, &[Lock::Read, Lock::Write, Lock::Write]),
        4 => Lock::Permit,
        5 => *pick(
            rng,
            &[Lock::Several(1, 2), Lock::Several(2, 1), Lock::Mutex(1)],
        ),
        6 => Lock::Reentrant,
        _ => *pick(
            rng,
            &[
                Lock::Tracked,
                Lock::Standby(1),
                Lock::Once(Once {
                    slot: 0,
                    attempts: None,
                    waits: true,
                    any_order: false,
                    again: false,
                }),
            ],
        ),
    }
}

fn contender(rng: &mut Rng, timeout: u64, family: u8, place: usize) -> ClientPlan {
    let holds = match (place, rng.bool()) {
        (0, _) => part(rng, timeout),
        (_, true) => rng.u64(1..50),
        (_, false) => part(rng, timeout),
    };
    let first = Step {
        rest: match place {
            0 => part(rng, timeout) / 4,
            _ => part(rng, timeout) / 2,
        },
        lock: lock(rng, family),
        limit: (rng.u8(..8) == 0).then(|| part(rng, timeout) + rng.u64(1..500)),
        cancel: None,
        hold: holds,
        end: *pick(rng, &[Release::Unlock, Release::Drop]),
        panics_in_on_wait: false,
    };
    let again = |rng: &mut Rng| Step {
        rest: part(rng, timeout),
        lock: lock(rng, family),
        hold: part(rng, timeout) / 4,
        ..first.clone()
    };
    let mut threads = vec![vec![first.clone()]];
    for _ in 0..rng.usize(..3) {
        let step = again(rng);
        threads[0].push(step);
    }
    if rng.u8(..4) == 0 {
        threads.push(vec![again(rng)]);
    }
    ClientPlan {
        dialect: Dialect::Curator,
        starts: u64::from(rng.bool()) * part(rng, timeout),
        handoffs: *pick(rng, &[0, 0, 2]),
        threads,
        end: ClientEnd::Close,
    }
}

/// Returns resets after which connections are resumed, each once or twice.
fn resets(rng: &mut Rng, plan: &Plan) -> Vec<Trouble> {
    let mut troubles: Vec<_> = (0..rng.usize(1..4))
        .map(|_| Trouble {
            at: 600 + part(rng, plan.timeout),
            lasts: 1,
            what: What::Cut {
                client: rng.usize(..plan.clients.len()),
            },
        })
        .collect();
    troubles.sort_by_key(|trouble| trouble.at);
    troubles
}
