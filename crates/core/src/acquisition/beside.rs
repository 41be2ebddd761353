//! What a contender knows of a semaphore at its path.

use alloc::vec::Vec;

use zklock_jute::{ErrorCode, Names, Reply};

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Beside {
    pub(super) look: Option<Look>,
    /// It has directories here, and `Some(true)` if nobody used it while our node stood.
    pub(super) was_idle: Option<bool>,
}

/// A listing that shows its directories, and the answers that have come: the data of its node, and who is
/// in its queue and has its permits.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) names: Names,
    pub(super) answers: Vec<Result<Reply, ErrorCode>>,
}

impl Beside {
    /// The connection broke.
    pub(super) fn broke(&mut self) {
        self.look = None;
    }
}
