//! Whether a lock's directory can be created, by the answers to the creates of it and of its ancestors.

use super::answer::{Answered, Failure};
use zklock_jute::ErrorCode;

/// Returns why the directory cannot be created, if so. The answers are those to the creates of its ancestors,
/// outermost first, and of itself.
pub fn trouble(answers: &[Answered]) -> Option<Failure> {
    let refusals = answers.iter().map(|answer| match answer {
        Err(failure @ (Failure::Refused(_) | Failure::TooLong(_))) => Some(*failure),
        // Another create finds out whether one without an answer was carried out.
        _ => None,
    });
    // A refusal in between does not matter if the directory itself exists.
    match refusals.clone().next_back()?? {
        Failure::Refused(ErrorCode::NODE_EXISTS) => None,
        _ => refusals.enumerate().find_map(|(place, refusal)| {
            // Above the outermost ancestor there is only the chroot. Any other one lacks its parent because the
            // parent was refused, or was deleted at once.
            let is_a_consequence = |failure: &Failure| match failure {
                Failure::Refused(ErrorCode::NODE_EXISTS) => true,
                Failure::Refused(ErrorCode::NO_NODE) => 0 < place,
                _ => false,
            };
            refusal.filter(|failure| !is_a_consequence(failure))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zklock_jute::Reply;

    #[test]
    fn a_parent_that_cannot_be_made_is_trouble_unless_it_is_not_needed() {
        const OK: ErrorCode = ErrorCode::OK;
        const EXISTS: ErrorCode = ErrorCode::NODE_EXISTS;
        const NO_NODE: ErrorCode = ErrorCode::NO_NODE;
        const NO_AUTH: ErrorCode = ErrorCode::NO_AUTH;
        let table: [(&[ErrorCode], Option<ErrorCode>); 9] = [
            (&[OK, OK], None),
            (&[EXISTS, EXISTS], None),
            (&[NO_AUTH, EXISTS], None),
            (&[NO_AUTH, OK], None),
            (&[EXISTS, EXISTS, NO_NODE], None),
            (&[OK, NO_NODE], None),
            (&[NO_NODE, NO_NODE], Some(NO_NODE)),
            (&[EXISTS, NO_AUTH, NO_NODE], Some(NO_AUTH)),
            (&[EXISTS, NO_AUTH], Some(NO_AUTH)),
        ];
        for (codes, expected) in table {
            let answers = codes.iter().map(|code| match *code {
                OK => Ok(Reply::Nothing),
                code => Err(Failure::Refused(code)),
            });
            let found = trouble(&answers.collect::<Vec<_>>());
            assert_eq!(found, expected.map(Failure::Refused), "{codes:?}");
        }
    }
}
