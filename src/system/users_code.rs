//! Code of the user's that a thread of the client's runs: a logger, or a recorder of numbers.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs what may call code of the user's. A panic of that ends neither a thread that serves the whole client,
/// nor the drop of a guard.
pub(crate) fn contained(run: impl FnOnce()) {
    // The panic hook has told of it.
    let _ = catch_unwind(AssertUnwindSafe(run));
}
