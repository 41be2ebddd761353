//! What the client takes from the operating system: mutexes, channels, threads, clocks, sockets,
//! names, randomness, and the description of the process.
//!
//! There are two sides. `real` is made of std, parking_lot and crossbeam. With `--cfg zklock_sim`,
//! `simulated` replaces it: the threads of a whole test share a baton, the clock jumps when no
//! thread can go on, the network is in memory, and a seed decides the rest, so a run can be
//! repeated. The rest of the client cannot tell the two apart, and takes none of this from anywhere
//! else (`tests/house`).
//!
//! Whatever the scheduler need not see (atomics, `Arc`, thread ids) is std's on both sides.

mod users_code;

#[cfg(not(zklock_sim))]
mod real;
#[cfg(zklock_sim)]
pub(crate) mod simulated;

use std::io::{Error, ErrorKind};

pub(crate) use self::users_code::contained;

#[cfg(not(zklock_sim))]
pub(crate) use self::real::{channel, clock, net, process, random, sync, thread};
#[cfg(zklock_sim)]
pub(crate) use self::simulated::{channel, clock, net, process, random, sync, thread};

/// Returns whether a call on a socket failed only because its time was up, or for a signal.
pub(crate) fn is_timeout(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Interrupted | ErrorKind::TimedOut | ErrorKind::WouldBlock
    )
}
