//! Plans in which clients of several dialects want locks of every kind at the same few paths.

use zklock::Dialect;

use super::{Lock, Plan, Release, Rng, pick};

/// The paths at which there are locks of every kind.
pub(crate) const SHARED: [&str; 2] = ["/sim/s0", "/sim/s1"];

/// The lock that a step of such a plan asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shared {
    /// The mutex of this path, by its index in [`SHARED`].
    Alone(usize),
    /// The same, by a thread that may lock it again.
    Again(usize),
    Read(usize),
    Write(usize),
    /// So many of the permits of the semaphore at this path, which are as many for this client.
    Permits {
        at: usize,
        of: u8,
        count: u8,
    },
    /// Both paths, the second one perhaps for reading.
    Both {
        reads: bool,
    },
}

impl Plan {
    pub(super) fn dialects(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0xd1a1);
        let mut plan = Self::mixed(seed);
        let kinds = *pick(&mut rng, &[Kinds::Locks, Kinds::Permits, Kinds::All]);
        let dialects = *pick(
            &mut rng,
            &[ALL, ALL, [Dialect::Kazoo; 3], [Dialect::Recipe; 3]],
        );
        // Whether the clients of a semaphore are told different numbers.
        let differ = rng.bool();
        for client in &mut plan.clients {
            client.dialect = *pick(&mut rng, &dialects);
            for step in client.threads.iter_mut().flatten() {
                step.lock = Lock::Shared(shared(&mut rng, kinds, differ));
                if rng.u8(..3) == 0 {
                    step.end = Release::Unlock;
                }
            }
        }
        if rng.bool() {
            let within = 2 * plan.timeout.max(100);
            plan.be_cut_often(&mut rng, within);
        }
        plan
    }
}

const ALL: [Dialect; 3] = [Dialect::Curator, Dialect::Kazoo, Dialect::Recipe];

#[derive(Clone, Copy)]
enum Kinds {
    Locks,
    Permits,
    All,
}

fn shared(rng: &mut Rng, kinds: Kinds, differ: bool) -> Shared {
    let at = usize::from(rng.u8(..4) == 0);
    let permits = match kinds {
        Kinds::Locks => false,
        Kinds::Permits => true,
        Kinds::All => rng.u8(..3) == 0,
    };
    if permits {
        let of = if differ { rng.u8(2..4) } else { 2 };
        let count = *pick(rng, &[1, 1, 1, of]);
        return Shared::Permits { at, of, count };
    }
    match rng.u8(..9) {
        0..3 => Shared::Alone(at),
        3 => Shared::Again(at),
        4..6 => Shared::Read(at),
        6..8 => Shared::Write(at),
        _ => Shared::Both { reads: rng.bool() },
    }
}
