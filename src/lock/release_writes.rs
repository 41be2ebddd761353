//! What the release of a lock writes besides deleting its node.

use crate::recipe::abandonment::Mark;

/// What a release writes into the directory, in the transaction that deletes the node.
#[derive(Debug)]
pub(crate) enum Closing {
    /// What the mark says.
    Mark(Mark),
    /// This.
    Data(Vec<u8>),
    /// This, if the thread panics.
    IfPanicking(Vec<u8>),
}

impl Closing {
    /// What is written if the thread `panics` or the lock is `lost`, or neither.
    pub(super) fn data(&self, panics: bool, lost: bool) -> Option<&[u8]> {
        match self {
            Self::Mark(mark) => mark.closing(panics, lost),
            Self::Data(data) => Some(data),
            Self::IfPanicking(data) => Some(&data[..]).filter(|_| panics),
        }
    }
}
