//! Plans with clients of many threads that want one lock, and that often give up soon.

use super::{
    ClientEnd, ClientPlan, LinkPlan, Lock, Plan, Rng, Step, Threads, What, client, pick, step,
};

impl Plan {
    /// Returns a plan without faults, so that only threads can disturb each other, or with many
    /// faults.
    pub(super) fn crowd(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0xc40d);
        let mut plan = Self::mixed(seed);
        let (timeout, count) = (plan.timeout, rng.usize(2..4));
        let calm = rng.bool();
        plan.clients = (0..count)
            .map(|_| crowded(&mut rng, timeout, calm))
            .collect();
        if calm {
            plan.troubles.clear();
            plan.counters_end = false;
            let latency = *pick(&mut rng, &[50, 200, 1000]);
            plan.link = LinkPlan {
                latency: (latency / 10, latency),
                window: 1 << 20,
                piece: usize::MAX,
            };
            plan.threads = Threads {
                switch: *pick(&mut rng, &[0.05, 0.2, 0.5]),
                pause: *pick(&mut rng, &[0.01, 0.03, 0.1]),
                longest: *pick(&mut rng, &[2, 5, 20]),
            };
            return plan;
        }
        plan.troubles.retain(|trouble| match trouble.what {
            What::Cut { client }
            | What::Hold { client, .. }
            | What::Slow { client, .. }
            | What::CutAfter { client, .. }
            | What::Freeze { client }
            | What::Suspend { client }
            | What::Garbage { client, .. } => client < count,
            _ => true,
        });
        for _ in 0..rng.usize(1..6) {
            let trouble = plan.trouble(&mut rng);
            plan.troubles.push(trouble);
        }
        plan.troubles.sort_by_key(|trouble| trouble.at);
        plan
    }
}

fn crowded(rng: &mut Rng, timeout: u64, calm: bool) -> ClientPlan {
    let around = timeout.max(100);
    let mut plan = client(rng, timeout);
    plan.handoffs = *pick(rng, &[0, 0, 0, 2]);
    if calm {
        plan.end = ClientEnd::Close;
    }
    let step = |rng: &mut Rng| Step {
        rest: rng.u64(0..10),
        hold: rng.u64(0..10.max(around / 20)),
        limit: match rng.u8(..3) {
            0 => Some(rng.u64(0..20)),
            1 => Some(rng.u64(0..around.min(100))),
            _ => None,
        },
        lock: match rng.u8(..8) {
            0 => step(rng, around).lock,
            _ => Lock::Mutex(0),
        },
        ..step(rng, around)
    };
    let threads = (0..rng.usize(2..7)).map(|_| (0..rng.usize(1..7)).map(|_| step(rng)).collect());
    plan.threads = threads.collect();
    plan
}
