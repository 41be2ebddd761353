//! What the client takes from the operating system: locks, channels, threads, clocks,
//! sockets, names, chance, and what a process is called.
//!
//! There are two sides. `real` is std's, parking_lot's and crossbeam's own, under one roof.
//! With `--cfg zklock_sim`, `simulated` takes its place: the threads of a whole test share a
//! baton, the clock jumps when no thread can go on, the network is in memory, and a seed
//! decides all the rest, so that a run can be repeated. The rest of the client cannot tell
//! the one from the other, and takes none of this from anywhere else (`tests/house`).
//!
//! What is sequential in itself (atomics, `Arc`, the id of a thread) is std's on both sides.

#[cfg(not(zklock_sim))]
mod real;
#[cfg(zklock_sim)]
pub(crate) mod simulated;

#[cfg(not(zklock_sim))]
pub(crate) use self::real::{channel, clock, net, process, random, sync, thread};
#[cfg(zklock_sim)]
pub(crate) use self::simulated::{channel, clock, net, process, random, sync, thread};
