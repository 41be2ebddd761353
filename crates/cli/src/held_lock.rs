//! A lock of any kind that `run` holds.

use zklock::{FencingToken, LockGuard, MultiGuard, Permit};

use crate::stderr::say;

/// A lock that is held.
#[derive(Debug)]
pub(crate) struct HeldLock {
    pub(crate) guard: Box<dyn LockGuard>,
    /// The lock's node; for several locks, one node a line.
    pub(crate) node: String,
    pub(crate) token: Option<FencingToken>,
    /// The number of the permit.
    pub(crate) permit: Option<u32>,
}

impl HeldLock {
    pub(crate) fn of(guard: impl LockGuard + 'static) -> Self {
        Self {
            node: guard.node().to_owned(),
            token: guard.fencing_token(),
            permit: None,
            guard: Box::new(guard),
        }
    }

    pub(crate) fn of_several(guard: MultiGuard) -> Self {
        let node = guard.nodes().join("\n");
        Self {
            node,
            ..Self::of(guard)
        }
    }

    /// Blocks for a few round trips. A permit whose number is not available is still a permit.
    pub(crate) fn of_permit(guard: Permit) -> Self {
        let number = guard.number().inspect_err(|error| {
            if !error.is_lost() {
                say(&format!("the command gets no ZKLOCK_PERMIT: {error}"));
            }
        });
        Self {
            permit: number.ok(),
            ..Self::of(guard)
        }
    }
}
