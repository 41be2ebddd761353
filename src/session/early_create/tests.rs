//! What each answer to a release with a create says of the two.

use super::*;
use crate::transport::TooLong;

#[test]
fn what_is_wrong_with_one_part_is_told_to_whom_it_belongs() {
    let (ok, after) = (ErrorCode::OK, ErrorCode::RUNTIME_INCONSISTENCY);
    let (no_node, no_auth) = (ErrorCode::NO_NODE, ErrorCode::NO_AUTH);
    let refused = |code| Err(Failure::Refused(code));
    let (not_sent, lost) = (Err(Failure::NotSent), Err(Failure::Lost));
    let long = Err(Failure::TooLong(TooLong {
        reply: false,
        bytes: 2,
        limit: 1,
    }));
    let multi = |results| Ok(Reply::Multi(results));
    let (path, stat) = ("/m/n-0000000007".to_owned(), None);
    let created = OpReply::Created {
        path: path.clone(),
        stat,
    };
    #[rustfmt::skip]
    let table = [
        (multi(vec![Ok(OpReply::Deleted), Ok(created)]), (Ok(Reply::Nothing), Ok(Reply::Created { path, stat }))),
        (multi(vec![Err(no_node), Err(after)]), (refused(no_node), not_sent.clone())),
        (multi(vec![Err(no_auth), Err(after)]), (refused(no_auth), not_sent.clone())),
        // A quota still counts the node that was to go.
        (multi(vec![Err(ok), Err(no_auth)]), (not_sent.clone(), not_sent.clone())),
        (multi(vec![Err(after), Err(no_auth)]), (not_sent.clone(), not_sent.clone())),
        (multi(vec![Err(ok), Err(after)]), (not_sent.clone(), not_sent.clone())),
        // Neither pays for what is wrong with both together.
        (long, (not_sent.clone(), not_sent.clone())),
        (refused(ErrorCode::UNIMPLEMENTED), (not_sent.clone(), not_sent.clone())),
        (refused(ErrorCode::MARSHALLING_ERROR), (lost.clone(), lost.clone())),
        (lost.clone(), (lost.clone(), lost.clone())),
        (not_sent.clone(), (not_sent.clone(), not_sent)),
        // What no server answers.
        (multi(vec![]), (lost.clone(), lost.clone())),
        (multi(vec![Ok(OpReply::Deleted)]), (lost.clone(), lost.clone())),
        (Ok(Reply::Nothing), (lost.clone(), lost)),
    ];
    for (answered, expected) in table {
        assert_eq!(parts(answered.clone()), expected, "{answered:?}");
    }
}
