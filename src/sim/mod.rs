//! What a deterministic run of the client needs in place of the system and the servers.
//!
//! It is compiled with `--cfg zklock_sim` only, and is no part of the public interface.

pub mod ensemble;
mod peer;

pub use crate::system::simulated::*;
