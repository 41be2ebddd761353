//! Names that were never used.

use uuid::Builder;

use crate::system::random::unique_bytes;

/// An id for a node's name that was never used.
///
/// It is of version 8, which is for custom use. Other libraries write version 4, so our nodes
/// can be told from theirs.
pub(super) fn fresh_id() -> String {
    Builder::from_custom_bytes(unique_bytes())
        .into_uuid()
        .to_string()
}
