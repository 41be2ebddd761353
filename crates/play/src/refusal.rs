//! The outcome for a thread whose transaction the servers refuse.

use super::ask::Outcome;
use zklock_core::guarded_write::Written;
use zklock_jute::ErrorCode;

/// Returns the outcome of a transaction that was refused, whose first step is the core's, and the others the user's.
pub(super) fn refusal(written: Written) -> Option<Outcome> {
    match written {
        Written::Gone => Some(Outcome::Refused(ErrorCode::NO_NODE)),
        Written::CheckRefused(_, code) | Written::AllRefused(code) => Some(Outcome::Refused(code)),
        Written::Refused(step, code) => Some(Outcome::StepRefused(step, code)),
        Written::TooLong(_) => Some(Outcome::Refused(ErrorCode::MARSHALLING_ERROR)),
        Written::Committed | Written::NotSent | Written::InDoubt => None,
    }
}
