//! Ids for names that were never used.

use uuid::Builder;

use crate::system::random::unique_bytes;
use zklock_core::name::mark_as_hold;

/// Returns an id for a node's name that was never used.
///
/// The id is a UUID of version 8, which is for custom use. Other libraries write version 4, so our
/// nodes can be told from theirs.
pub(crate) fn fresh_id() -> String {
    written(unique_bytes())
}

/// Like [`fresh_id`], for a hold, which is recognised by its id.
pub(super) fn fresh_hold_id() -> String {
    let mut bytes = unique_bytes();
    mark_as_hold(&mut bytes);
    written(bytes)
}

fn written(bytes: [u8; 16]) -> String {
    Builder::from_custom_bytes(bytes).into_uuid().to_string()
}
