//! The simulated side: threads that hold a baton, a clock that jumps, a network in memory.
//!
//! ```text
//!   the client's threads ── sync, channel, thread, clock, net ──► scheduler ──► Choice
//!                                                                    │         (the seed)
//!                                                                 Network ──► Peer
//! ```
//!
//! Every thread is a real one, and only the one that has the baton runs. At every point
//! where a thread could wait or wake another, the scheduler decides which goes on; when none
//! can, the clock jumps to the next timeout or to what the network brings next. All random
//! choices come from one seed, so a seed repeats a run. A [`Peer`] stands for the servers.

pub mod channel;
mod choice;
pub(crate) mod clock;
pub mod net;
mod one_core;
#[cfg(test)]
mod orders;
mod pool;
pub(crate) mod process;
pub(crate) mod random;
mod report;
mod scheduler;
mod state;
pub(crate) mod sync;
mod test;
#[cfg(test)]
mod tests;
pub(crate) mod thread;

pub use self::choice::{Bounded, Choice};
pub use self::clock::now;
pub use self::net::{Link, Network, Output, Peer, build, network};
#[cfg(test)]
pub(crate) use self::orders::all_orders;
pub use self::report::{Failure, Options, Report};
pub use self::scheduler::run;
pub use self::test::{
    elapsed, freeze, freeze_for_ever, is_inside, note, pauses, process, records, roll, sleeps,
    story, suspend, thaw, threads,
};
pub use self::thread::{JoinHandle, sleep, spawn};
