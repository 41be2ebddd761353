//! Plans with locks of several kinds that are taken together, beside threads that want one of them, and with
//! several permits of one semaphore.

use super::{Lock, Plan, Rng, Role, Together, pick};

impl Plan {
    /// Returns a plan in which each client takes some locks alone and shares others with readers, or in which they
    /// take any number of permits of one semaphore.
    pub(super) fn several(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0x5e7e);
        let mut plan = Self::mixed(seed);
        let permits = rng.u8(..3) == 0;
        let threads = plan
            .clients
            .iter_mut()
            .flat_map(|client| &mut client.threads);
        for step in threads.flatten() {
            step.lock = match permits {
                true => Lock::Seats(rng.u8(1..4)),
                false => one_or_more(&mut rng),
            };
        }
        plan
    }
}

/// Returns a call: most are for several locks.
fn one_or_more(rng: &mut Rng) -> Lock {
    const ROLES: [Option<Role>; 5] = [
        None,
        Some(Role::Alone),
        Some(Role::Reads),
        Some(Role::Reads),
        Some(Role::Reads),
    ];
    let roles = [0; 3].map(|_| *pick(rng, &ROLES));
    match roles.iter().flatten().count() {
        0 => Lock::Read,
        1 => *pick(rng, &[Lock::Mutex(0), Lock::Mutex(1), Lock::Write]),
        _ => Lock::Together(Together { roles }),
    }
}
