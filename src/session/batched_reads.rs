//! Many reads in one write, some of which may have no reply that can be used.

use super::call_error::{CallError, Refusal};
use super::caller::{Caller, read_by};
use crate::error::Error;
use crate::time::limit::Limit;
use zklock_jute::{Reply, Request};

impl Caller {
    /// As [`call_all`](Self::call_all), where a reply that is too long is one that may not be read.
    pub(crate) fn call_each(
        &mut self,
        requests: &[Request],
        limit: &impl Fn() -> Limit,
    ) -> Result<Vec<Result<Reply, Refusal>>, CallError> {
        let about = requests.first().and_then(read_by).unwrap_or("/");
        match (self.call_all(requests, about, &limit()), requests) {
            (Ok(replies), _) => {
                let each = replies.into_iter();
                Ok(each.map(|reply| reply.map_err(Refusal::Code)).collect())
            }
            (Err(CallError::Over(Error::ReplyTooLong { .. })), [_]) => {
                Ok(vec![Err(Refusal::TooLong)])
            }
            (Err(CallError::Over(Error::ReplyTooLong { .. })), _) => {
                let (some, others) = requests.split_at(requests.len() / 2);
                let mut replies = self.call_each(some, limit)?;
                replies.extend(self.call_each(others, limit)?);
                Ok(replies)
            }
            (Err(error), _) => Err(error),
        }
    }
}
