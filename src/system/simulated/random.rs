//! Randomness from the run's seed.
//!
//! `fastrand` needs no simulated side: every thread's own generator is seeded as it begins.

/// Returns sixteen bytes that no other call returns.
pub(crate) fn unique_bytes() -> [u8; 16] {
    fastrand::u128(..).to_be_bytes()
}
