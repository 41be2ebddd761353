//! What the release of a lock writes besides deleting its node.

use zklock_core::abandonment::Mark;

/// What a release writes into the directory, in the transaction that deletes the node.
/// The data that is replaced must have the version that was seen: what came since then is not this
/// client's.
#[derive(Debug)]
pub(crate) enum Closing {
    /// What the mark says.
    Mark(Mark),
    /// This, over this version.
    Data(Vec<u8>, i32),
    /// This, over this version, if the thread panics.
    IfPanicking(Vec<u8>, i32),
}

impl Closing {
    /// What is written, over which version, if the thread `panics` or the lock is `lost`, or neither.
    pub(super) fn data(&self, panics: bool, lost: bool) -> Option<(&[u8], i32)> {
        match self {
            Self::Mark(mark) => mark.closing(panics, lost),
            Self::Data(data, version) => Some((data, *version)),
            Self::IfPanicking(data, version) => panics.then_some((&data[..], *version)),
        }
    }
}
