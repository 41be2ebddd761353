//! The wrong ways, which the checker must notice.
//!
//! The machine is not changed: a wrong decision comes from showing it, or doing, something
//! other than the real thing.

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Shortcut {
    /// The right way.
    None,

    // The shortcuts of writes.
    BeginsOnAnyVersion,
    BeginsWithoutItsNode,
    EndsWithoutItsNode,
    EndsInTwoSteps,
    CountsAfterwards,
    DoesNotTouch,
    LeavesStateAtTheBeginning,
    LeavesStateOfAFailure,

    // The shortcuts of reads.
    TakesAnyRunForItsOwn,
    RunsTheSameSlotAgain,
    ForgetsSingleSlots,
    ForgetsTheDead,
    TrustsALaggingServer,
    ReadsInAnySession,

    // The shortcuts of what callers are told.
    TakesALostAnswerForAnEnd,
    ReadsWhileItIsAdrift,
    MarksAPanic,
    MarksAFailure,
}
