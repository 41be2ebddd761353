//! Gives a job the path of a lock that nobody uses any more.
//!
//! Such a lock leaves an empty node, which the server removes a minute or two later, or never if another
//! library made it. A job need not wait for that: the node gets an empty record. A container would not keep
//! it, and is replaced in one transaction, which fails if anything is below it. So a path that is in use, and one
//! that is the directory of other paths, stays what it is.
//!
//! What was a job's is never taken over, whoever has written there since: a job's node is no container, and
//! the first thing that was written into it is a record.

use super::Job;
use super::driver::JobDriver;
use crate::error::Result;
use crate::session::call_error::CallError;
use zklock_core::journal::Journal;
use zklock_core::mending::{Standing, standing};
use zklock_jute::{ErrorCode, Reply, Request};

impl JobDriver<'_, '_> {
    /// Returns whether it is worth another look: the path may be a job's now.
    pub(super) fn take_over(&self) -> Result<bool> {
        let (session, path, limit) = (self.session(), &**self.path, &self.request.limit);
        let mut caller = session.caller();
        let looks = [
            session.transport.capabilities().sync(path),
            Request::get(path),
        ];
        let answers = match caller.call_all(&looks, path, limit) {
            Ok(answers) => answers,
            // The next look comes to the same end.
            Err(error) => return error.or(path, true),
        };
        let Some(Ok(Reply::Data { data, stat })) = answers.into_iter().nth(1) else {
            return Ok(true);
        };
        let data: Vec<u8> = data.into();
        let was_no_jobs = stat.is_container() || stat.version == 0;
        if standing(&data) != Standing::Unclaimed || stat.has_session() || !was_no_jobs {
            return Ok(false);
        }
        let write = match stat.is_container() || 0 < stat.num_children {
            true => Job::new(self.locks, path)?.replacement(stat.version)?,
            // Its access control list is somebody's choice.
            false => Request::SetData {
                path: path.to_owned(),
                data: Journal::EMPTY.to_vec().into(),
                version: stat.version,
            },
        };
        match caller.call_once(&write, path, limit) {
            Ok(_) | Err(CallError::Refused(ErrorCode::BAD_VERSION | ErrorCode::NO_NODE)) => {
                Ok(true)
            }
            Err(CallError::Refused(_)) => Ok(false),
            Err(error) => error.or(path, true),
        }
    }
}
