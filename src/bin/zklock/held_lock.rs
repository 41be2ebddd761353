//! A lock that `run` holds, of whichever kind.

use zklock::{
    FencingToken, LockGuard, MultiGuard, MutexGuard, Permit, RwLockReadGuard, RwLockWriteGuard,
};

/// A lock that is held.
#[derive(Debug)]
pub(crate) struct HeldLock {
    pub(crate) guard: Box<dyn LockGuard>,
    /// Its node; of several locks one a line.
    pub(crate) node: String,
    pub(crate) token: Option<FencingToken>,
}

macro_rules! held_lock_from {
    ($($guard:ty)*) => {
        $(
            impl From<$guard> for HeldLock {
                fn from(guard: $guard) -> Self {
                    Self {
                        node: guard.node().to_owned(),
                        token: LockGuard::fencing_token(&guard),
                        guard: Box::new(guard),
                    }
                }
            }
        )*
    };
}

held_lock_from! { MutexGuard RwLockReadGuard RwLockWriteGuard Permit }

impl From<MultiGuard> for HeldLock {
    fn from(guard: MultiGuard) -> Self {
        Self {
            node: guard.nodes().join("\n"),
            token: guard.fencing_token(),
            guard: Box::new(guard),
        }
    }
}
