//! What each action of a cleanup means on the wire, and what its answer says.

use crate::transport::{Answered, Capabilities, Failure};
use zklock_core::cleanup::{Action, Event};
use zklock_jute::{ErrorCode, Op, Reply, Request, failure};

/// Deletes a node and writes into its directory over this version, or does neither.
pub(crate) fn close(dir: &str, name: &str, data: &[u8], version: i32) -> Request {
    Request::Multi(vec![
        Op::Delete {
            path: format!("{dir}/{name}"),
            version: -1,
        },
        Op::SetData {
            path: dir.to_owned(),
            data: data.to_vec().into(),
            version,
        },
    ])
}

/// The request that carries out an action.
pub(super) fn request(action: &Action, dir: &str, capabilities: Capabilities) -> Option<Request> {
    Some(match action {
        Action::Sync => capabilities.sync(dir),
        Action::List => Request::list(dir),
        Action::Delete(name) => Request::delete(format!("{dir}/{name}")),
        Action::Done => return None,
    })
}

/// The event that the answer to an action is.
pub(super) fn event(action: &Action, dir: &str, answered: Answered) -> Result<Event, Failure> {
    match (action, answered) {
        (Action::List, Ok(Reply::Children { names, .. })) => Ok(Event::Children(names)),
        (Action::List, Ok(Reply::Ephemerals(paths))) => {
            let name =
                |path: &'_ String| Some(path.strip_prefix(dir)?.strip_prefix('/')?.to_owned());
            let names: Vec<_> = paths.iter().filter_map(name).collect();
            Ok(Event::Children(names.iter().map(String::as_str).collect()))
        }
        (Action::Sync, Ok(_)) => Ok(Event::Synced),
        // A refusal passes through the quorum as well.
        (Action::Sync, Err(Failure::Refused(code))) if !code.is_passing() => Ok(Event::Synced),
        (Action::Delete(_), Ok(Reply::Multi(results))) => match failure(&results) {
            None | Some(ErrorCode::NO_NODE) => Ok(Event::Gone),
            Some(code) => Err(Failure::Refused(code)),
        },
        (Action::Delete(_), Ok(Reply::Nothing)) => Ok(Event::Gone),
        (_, Err(Failure::Refused(ErrorCode::NO_NODE))) => Ok(Event::Gone),
        (_, Err(Failure::Refused(code))) if code.is_passing() => Err(Failure::Lost),
        (_, Err(failure)) => Err(failure),
        (_, Ok(_)) => Err(Failure::Lost),
    }
}
