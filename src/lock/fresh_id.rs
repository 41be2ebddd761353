//! Names that were never used.

use uuid::{Builder, Uuid};

/// An id for a node's name that was never used.
///
/// It is of version 8, the one for one's own purposes. Other libraries write version 4, and
/// so our nodes can be told from theirs.
pub(super) fn fresh_id() -> String {
    let random = Uuid::new_v4().into_bytes();
    Builder::from_custom_bytes(random).into_uuid().to_string()
}
