//! Randomness from the run's seed.
//!
//! `fastrand` needs no simulated side: every thread's own generator is seeded when the thread
//! begins.

/// Returns sixteen bytes that no other call returns.
pub(crate) fn unique_bytes() -> [u8; 16] {
    fastrand::u128(..).to_be_bytes()
}

/// Returns a number below this one. Half of all draws are 0, so that runs show what happens if two
/// processes draw the same number, which would otherwise take a billion draws.
pub(crate) fn rare_number(below: i32) -> i32 {
    match fastrand::bool() {
        true => 0,
        false => fastrand::i32(0..below),
    }
}
