//! The faults that the locks survive: real servers, real processes, real faults.
//!
//! Many client processes take locks of every kind on a few paths and write to a store that checks
//! fencing tokens, while servers, processes and links are broken under them. Each process writes a
//! history; [`checker`] judges all histories together. `tests/chaos.sh` runs the faults for any
//! length of time.
#![cfg(target_os = "linux")]

mod checker;
mod cluster;
#[path = "../interop/contender.rs"]
#[expect(dead_code, reason = "the tests of interoperability ask for more")]
mod contender;
mod forged;
mod gauge;
mod history;
mod holder;
#[path = "../sim/src/judge.rs"]
mod judge;
#[path = "../interop/libraries.rs"]
#[expect(dead_code, reason = "the tests of interoperability ask for more")]
mod libraries;
mod ops;
#[path = "../interop/peer.rs"]
#[expect(dead_code, reason = "the tests of interoperability ask for more")]
mod peer;
mod scenes;
mod sound;
mod store;
mod story;
mod stuck;
mod txn_log;
mod witness;
mod workload;
mod writer;

use zklock_testkit as support;
