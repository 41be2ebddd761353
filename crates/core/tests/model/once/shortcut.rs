//! Wrong ways, which the checker has to notice.
//!
//! The machine is not changed: a wrong decision comes from showing it, or doing, something
//! other than the real thing.

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Shortcut {
    /// None of them: the real thing.
    None,

    // What is written.
    BeginsOnAnyVersion,
    BeginsWithoutItsNode,
    EndsWithoutItsNode,
    EndsInTwoSteps,
    CountsAfterwards,
    DoesNotTouch,
    LeavesStateAtTheBeginning,
    LeavesStateOfAFailure,

    // What is read.
    TakesAnyRunForItsOwn,
    RunsTheSameSlotAgain,
    ForgetsSingleSlots,
    ForgetsTheDead,
    TrustsALaggingServer,
    ReadsInAnySession,

    // What is told.
    TakesALostAnswerForAnEnd,
    ReadsWhileItIsAdrift,
    MarksAPanic,
    MarksAFailure,
}
