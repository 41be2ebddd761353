//! The wrong ways, which the checker must notice.
//!
//! The machines are not changed: a wrong decision comes from showing a machine, or doing,
//! something other than the real thing.

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Detour {
    /// The right way.
    None,

    // Permits.
    CountsWithoutItself,
    DoesNotWatchTheLeases,
    LetsTheNextInTooEarly,
    RestartsTheLeaseAlone,
    OverlooksTheNumber,
    OverlooksThoseOut,
    WritesWithoutTheLine,
    SleepsThroughTheLastOne,
    OutlivesTheLine,
    LetsTheLineGoForTheSecond,

    // Permits in kazoo's layout.
    DoesNotLook,
    LooksAfterItsTurn,

    // Downgrades.
    DeletesTheWriterFirst,
    TakesANewNumber,
    DowngradesUnchecked,
    DowngradesUnproved,
    KeepsTheWriter,
    ForgetsTheReader,

    // Several at once.
    PlacesOneByOne,
    HoldsAllUnproved,
    KeepsHalf,
    SkipsAQueue,
    TakesOldPlaces,
    OverlooksWhoWasListed,
    ForgetsWhatWasPlaced,
    ForgetsTheOtherQueue,

    // Marks.
    ClearsAfterwards,
    MarksInTheQueue,
    ClearsWithoutDeleting,
    ClearsInAPanic,
    DoesNotRead,
    DoesNotMark,
    MarksUnchecked,
    LeavesAMarkBehind,
}

impl Detour {
    /// Returns whether the client takes its place in the line for granted.
    pub(crate) fn trusts_the_line(self) -> bool {
        matches!(self, Self::RestartsTheLeaseAlone | Self::OutlivesTheLine)
    }
}
