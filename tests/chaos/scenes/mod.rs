//! The schedules of faults. `tests/chaos.sh` runs them one after the other.

mod availability;
mod clocks;
mod gap;
mod isolated;
mod named;
mod paused;
mod random;
mod soak;
mod steps;
mod transactions;
