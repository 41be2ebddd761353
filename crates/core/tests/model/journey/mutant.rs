//! Wrong ways, which the checker has to notice.
//!
//! The machines are not changed: a wrong decision comes from showing a machine, or doing,
//! something other than the real thing.

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Detour {
    /// None of them: the real thing.
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
    KeepsWhatItHas,

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
    /// The place in the line is taken for granted.
    pub(crate) fn trusts_the_line(self) -> bool {
        matches!(self, Self::RestartsTheLeaseAlone | Self::OutlivesTheLine)
    }
}
