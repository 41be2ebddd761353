//! Names that were never used.

use uuid::Builder;

use crate::system::random::unique_bytes;
use zklock_core::name::mark_as_hold;

/// An id for a node's name that was never used.
///
/// It is of version 8, which is for custom use. Other libraries write version 4, so our nodes
/// can be told from theirs.
pub(crate) fn fresh_id() -> String {
    written(unique_bytes())
}

/// As [`fresh_id`], for a hold, which is known by it.
pub(super) fn fresh_hold_id() -> String {
    let mut bytes = unique_bytes();
    mark_as_hold(&mut bytes);
    written(bytes)
}

fn written(bytes: [u8; 16]) -> String {
    Builder::from_custom_bytes(bytes).into_uuid().to_string()
}
