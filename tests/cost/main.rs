//! The costs of a lock, as figures that are the same on every machine.
//!
//! Allocations are counted in a separate binary, `allocations.rs`, because counting them
//! needs another allocator. System calls, threads and memory are those of a process that does
//! nothing else, which the test starts.

mod footprint;
mod requests;
mod system_calls;
#[path = "../support/transport.rs"]
mod transport;

use zklock_testkit as support;
