//! Wrong ways, which the checker has to notice.

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Detour {
    /// None of them: the real thing.
    None,

    // Permits.
    CountsWithoutItself,
    DoesNotWatchTheLeases,
    LetsTheNextInTooEarly,
    RestartsTheLeaseAlone,

    // Permits in kazoo's layout.
    DoesNotLook,
    LooksAfterItsTurn,

    // Downgrades.
    DeletesTheWriterFirst,
    TakesANewNumber,
    DowngradesUnchecked,

    // Several at once.
    PlacesOneByOne,
    HoldsAllUnproved,

    // Marks.
    ClearsAfterwards,
    MarksInTheQueue,
    ClearsWithoutDeleting,
}
