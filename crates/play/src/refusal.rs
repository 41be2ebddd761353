//! The outcome for a thread whose transaction the servers refuse.

use super::ask::Outcome;
use zklock_core::answer::{Answered, Failure};
use zklock_jute::{ErrorCode, Reply, culprit};

/// Returns the outcome that this answer leads to, if it refuses a transaction whose first step is the
/// core's, and the others the user's.
pub(super) fn refusal(answered: &Answered) -> Option<Outcome> {
    match answered {
        Ok(Reply::Multi(results)) => {
            culprit(results).map(|(place, code)| match place.checked_sub(1) {
                None => Outcome::Refused(code),
                Some(step) => Outcome::StepRefused(step, code),
            })
        }
        Err(Failure::Refused(code)) => Some(Outcome::Refused(*code)),
        Err(Failure::TooLong(_)) => Some(Outcome::Refused(ErrorCode::MARSHALLING_ERROR)),
        _ => None,
    }
}
