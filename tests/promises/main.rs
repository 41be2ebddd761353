//! The promises of the locks: one module per lock, and one per promise that all locks keep.
//!
//! A promise is one function, which `in_every_place!` runs against the embedded server and a
//! real one, and there over both transports. All tests share one server of each kind; a test
//! that breaks its server starts its own.

mod abandonment;
mod api;
mod bad_input;
mod circles;
mod durations;
mod early_bad_news;
mod early_creates;
#[cfg(target_os = "linux")]
mod fairness;
mod faults;
mod first_mistakes;
mod fresh_reads;
mod giving_up;
mod guard_events;
mod guards;
#[cfg(unix)]
mod handovers;
mod holds;
mod job_history;
mod job_limits;
mod job_order;
mod job_records;
mod job_stakes;
mod job_state;
mod jobs;
mod killed_processes;
mod known_bugs;
mod least_hold_time;
mod local_handoffs;
mod lost_reasons;
mod lost_sight;
mod multi_lock;
mod mutex;
mod nightly_jobs;
mod overview;
mod queue;
mod readers_and_writers;
mod reentrant_mutex;
mod release_is_a_grant;
mod repeated_locks;
mod revocation;
mod rival_takers;
mod rwlock;
mod semaphore;
mod shards;
mod shared_paths;
mod standby;
mod standby_daemons;
mod transactions;
#[path = "../support/transport.rs"]
mod transport;

use zklock_testkit as support;
