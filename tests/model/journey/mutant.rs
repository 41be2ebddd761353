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

    // Downgrades.
    DeletesTheWriterFirst,
    TakesANewNumber,

    // Several at once.
    PlacesOneByOne,

    // Marks.
    ClearsAfterwards,
    MarksInTheQueue,
    ClearsWithoutDeleting,
}
