//! A transaction under a guard.

use alloc::vec::Vec;

use super::ask::{GuardId, Ticket};
use zklock_jute::Request;

/// A transaction under a guard.
#[derive(Debug)]
pub(super) struct Commit {
    pub(super) ticket: Ticket,
    pub(super) guard: GuardId,
    pub(super) ops: Vec<Request>,
}
