//! A lock of any kind that `run` holds.

use zklock::{
    FencingToken, LockGuard, MultiGuard, MutexGuard, Permit, RwLockReadGuard, RwLockWriteGuard,
};

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

macro_rules! held_lock_from {
    ($($guard:ty)*) => {
        $(
            impl From<$guard> for HeldLock {
                fn from(guard: $guard) -> Self {
                    Self {
                        node: guard.node().to_owned(),
                        token: LockGuard::fencing_token(&guard),
                        permit: None,
                        guard: Box::new(guard),
                    }
                }
            }
        )*
    };
}

held_lock_from! { MutexGuard RwLockReadGuard RwLockWriteGuard }

impl From<Permit> for HeldLock {
    /// Blocks for a few round trips. A permit whose number is not available is still a permit.
    fn from(guard: Permit) -> Self {
        let number = guard.number().inspect_err(|error| {
            if !error.is_lost() {
                say(&format!("the command gets no ZKLOCK_PERMIT: {error}"));
            }
        });
        Self {
            node: guard.node().to_owned(),
            token: None,
            permit: number.ok(),
            guard: Box::new(guard),
        }
    }
}

impl From<MultiGuard> for HeldLock {
    fn from(guard: MultiGuard) -> Self {
        Self {
            node: guard.nodes().join("\n"),
            token: guard.fencing_token(),
            permit: None,
            guard: Box::new(guard),
        }
    }
}
