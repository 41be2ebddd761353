//! Whether anybody uses the semaphore at a path that another kind of lock wants.

use crate::session::Session;
use crate::session::call_error::CallError;
use crate::session::caller::Caller;
use crate::time::limit::Limit;
use zklock_core::permits;
use zklock_jute::{ErrorCode, Names, Reply, Request};

impl Session {
    /// Whether nobody uses the semaphore at this path; see [`is_idle`](permits::is_idle).
    pub(crate) fn is_idle_semaphore(
        &self,
        caller: &mut Caller,
        path: &str,
        stood: bool,
        limit: &Limit,
    ) -> Result<bool, CallError> {
        // A client leaves the queue when it has its permit, so the queue is listed first.
        let looks = [
            Request::get(path),
            Request::list(&format!("{path}/locks")),
            Request::list(&format!("{path}/leases")),
        ];
        let mut answers = caller.call_all(&looks, path, limit)?.into_iter();
        let Some(Ok(Reply::Data { data, .. })) = answers.next() else {
            return Ok(false);
        };
        let mut names = || match answers.next() {
            Some(Ok(Reply::Children { names, .. })) => Some(names),
            Some(Err(ErrorCode::NO_NODE)) => Some(Names::default()),
            // Who may not see them must not assume that there are none.
            _ => None,
        };
        let (line, permits) = (names(), names());
        let idle = |(line, out)| permits::is_idle(&Vec::from(data), &line, &out, stood);
        Ok(line.zip(permits).is_some_and(idle))
    }
}

/// The other children.
pub(crate) fn without_permits(names: &Names) -> Names {
    names.iter().filter(|name| *name != "leases").collect()
}
