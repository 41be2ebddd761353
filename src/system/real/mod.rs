//! The real side: what the client runs on.

pub(crate) mod channel;
pub(crate) mod clock;
pub(crate) mod net;
pub(crate) mod process;
pub(crate) mod thread;

pub(crate) mod sync {
    //! Locks that do not poison.

    pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
}

pub(crate) mod random {
    //! Unique numbers, which are not secret.

    /// Returns sixteen bytes that no other call returns, on this machine or another.
    pub(crate) fn unique_bytes() -> [u8; 16] {
        uuid::Uuid::new_v4().into_bytes()
    }

    /// Returns a number below this one, which another process hardly draws, too.
    pub(crate) fn rare_number(below: i32) -> i32 {
        fastrand::i32(0..below)
    }
}
