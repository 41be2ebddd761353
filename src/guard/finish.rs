//! Runs something under a guard.

use super::LockGuard;
use crate::error::Error;

/// Runs `run` under a guard and releases the guard. It waits for the server's confirmation unless
/// `run` panics.
pub(crate) fn finish_with<G: LockGuard, T, E: From<Error>>(
    guard: G,
    run: impl FnOnce(&G) -> Result<T, E>,
) -> Result<T, E> {
    let path = guard.paths().join(", ");
    match (run(&guard), guard.unlock()) {
        (Ok(value), released) => Ok(released.map(|()| value)?),
        (Err(error), released) => {
            if let Err(second) = released {
                log::warn!("{path} was not released in order after another error: {second}");
            }
            Err(error)
        }
    }
}
