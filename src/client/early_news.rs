//! Reports early why no server has given a session yet.

use std::time::Duration;

use crate::error::{Result, UNRESOLVED, by_reason};
use crate::session::Session;
use crate::session::caller::Caller;
use crate::time::limit::{Limit, from_now};

/// When a name that cannot be resolved is worth a report: it is still wrong a moment later.
const NAMES: Duration = Duration::from_millis(250);
/// When everything is, after a silent server's time to answer.
const ALL: Duration = Duration::from_millis(1900);

/// Waits for a session for two seconds at most, and reports at most once why there is none.
pub(super) fn tell_early(
    session: &Session,
    caller: &mut Caller,
    limit: &Limit,
    told: impl FnOnce(&[String]),
) -> Result<()> {
    for (pause, is_last) in [(NAMES, false), (ALL - NAMES, true)] {
        let soon = limit.clone().until(Some(from_now(pause)));
        if caller.connected(&soon)?.is_some() || limit.is_over() {
            break;
        }
        let trouble = session.status.trouble();
        if is_last || no_name_is_resolved(&trouble) {
            told(&by_reason(&trouble));
            break;
        }
    }
    Ok(())
}

fn no_name_is_resolved(trouble: &[String]) -> bool {
    !trouble.is_empty() && trouble.iter().all(|line| line.contains(UNRESOLVED))
}
