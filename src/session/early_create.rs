//! The create of a waiting thread, for the thread before it to send with its release.
//!
//! Both are one transaction then, and one write of the quorum. The requests are made ready before
//! the waiting thread goes to sleep; its answers reach it as if it had sent them. A transaction is
//! carried out as a whole: what is wrong with one part is told to whom it belongs, and the other
//! one is told that its part was not sent.

use std::fmt;
use std::mem;
use std::sync::Arc;

use crate::jute::{ErrorCode, Op, OpReply, Reply, Request};
use crate::recipe::validity::Stamp;
use crate::system::sync::Mutex;
use crate::transport::{Answer, Answered, Call, Failure};

/// The calls of a waiting thread, of which the first is its create.
pub(crate) struct EarlyCreate(Mutex<State>);

enum State {
    Ready(Vec<Call>),
    Sent(Sent),
    Withdrawn,
}

/// When calls were sent, and in which session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) stamp: Stamp,
    pub(crate) session: i64,
}

impl EarlyCreate {
    pub(crate) fn new(calls: Vec<Call>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State::Ready(calls))))
    }

    /// Says when they were sent, if they were; otherwise nobody will send them.
    pub(crate) fn settle(&self) -> Option<Sent> {
        let mut state = self.0.lock();
        match *state {
            State::Sent(sent) => Some(sent),
            _ => {
                *state = State::Withdrawn;
                None
            }
        }
    }

    /// Takes the calls, which are sent now; `None` if there are none any more.
    pub(super) fn take(&self, sent: Sent) -> Option<Vec<Call>> {
        let mut state = self.0.lock();
        let State::Ready(_) = *state else {
            return None;
        };
        match mem::replace(&mut *state, State::Sent(sent)) {
            State::Ready(calls) => Some(calls),
            _ => None,
        }
    }
}

/// Makes one transaction of the deletion of a node and of the create among these calls.
pub(super) fn join(node: String, calls: Vec<Call>, deleted: Answer) -> Vec<Call> {
    let mut calls = calls.into_iter();
    let delete = Op::Delete {
        path: node,
        version: -1,
    };
    let first = calls.next().map(|create| joined(delete, create, deleted));
    first.into_iter().chain(calls).collect()
}

fn joined(delete: Op, create: Call, deleted: Answer) -> Call {
    let mut ops = vec![delete];
    if let Request::Create {
        path,
        data,
        acl,
        mode,
        ..
    } = create.request
    {
        ops.push(Op::Create {
            path,
            data,
            acl,
            mode,
            stat: false,
        });
    }
    let created = create.answer;
    Call {
        request: Request::Multi(ops),
        watch: None,
        answer: Box::new(move |answered| {
            let (delete, create) = parts(answered);
            created(create);
            deleted(delete);
        }),
    }
}

/// What an answer to the transaction says of the deletion, and of the create.
fn parts(answered: Answered) -> (Answered, Answered) {
    let results = match answered {
        Ok(Reply::Multi(results)) => results,
        // It is the create that makes the request long.
        Err(failure @ Failure::TooLong(_)) => return (Err(Failure::NotSent), Err(failure)),
        Err(failure) => return (Err(failure), Err(failure)),
        Ok(_) => return (Err(Failure::Lost), Err(Failure::Lost)),
    };
    let mut results = results.into_iter();
    match (results.next(), results.next()) {
        (Some(Ok(_)), Some(Ok(OpReply::Created { path, stat }))) => {
            (Ok(Reply::Nothing), Ok(Reply::Created { path, stat }))
        }
        (Some(Err(ErrorCode::OK)), Some(Err(code))) => {
            (Err(Failure::NotSent), Err(Failure::Refused(code)))
        }
        (Some(Err(code)), _) => (Err(Failure::Refused(code)), Err(Failure::NotSent)),
        _ => (Err(Failure::Lost), Err(Failure::Lost)),
    }
}

impl fmt::Debug for EarlyCreate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EarlyCreate").finish_non_exhaustive()
    }
}

#[cfg(all(test, zklock_sim))]
mod orders;
#[cfg(test)]
mod tests;
