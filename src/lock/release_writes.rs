//! What the release of a lock writes besides deleting its node.

use zklock_core::predecessor_mark::Mark;

/// What a release writes into the directory, in the transaction that deletes the node.
///
/// A write replaces data only if it still has the version that this client has seen: later data is not this client's.
#[derive(Debug)]
pub(crate) enum Closing {
    /// The data that the mark decides on.
    Mark(Mark),
    /// This data, over this version.
    Data(Vec<u8>, i32),
    /// This data, over this version, if the thread panics.
    IfPanicking(Vec<u8>, i32),
}

impl Closing {
    /// Returns the data to write and the version to replace, given whether the thread `panics` and
    /// whether the lock is `lost`.
    pub(super) fn data(&self, panics: bool, lost: bool) -> Option<(&[u8], i32)> {
        match self {
            Self::Mark(mark) => mark.closing(panics, lost),
            Self::Data(data, version) => Some((data, *version)),
            Self::IfPanicking(data, version) => panics.then_some((&data[..], *version)),
        }
    }
}
