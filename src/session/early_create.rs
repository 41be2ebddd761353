//! The create of a waiting thread, for the thread before it to send with its release.
//!
//! Both are then one transaction, and one write of the quorum. The requests are prepared before the
//! waiting thread goes to sleep, and the answers reach it as if it had sent them. A transaction is
//! carried out as a whole: if the deletion is refused, its thread is told, and the create counts as
//! not sent. If the create is refused, both count as not sent, and the refusal comes again when the
//! create goes alone.
//!
//! A thread that gives up cannot know whether its requests have left: the thread before it may have
//! taken them and not have written them yet. A look for the node would come too soon, so the answer
//! decides what is cleaned up.

use std::fmt;
use std::mem;
use std::sync::Arc;

use crate::path;
use crate::system::sync::Mutex;
use crate::transport::{Answer, Answered, Call, Failure};
use zklock_core::attempt::Orphan;
use zklock_core::validity::Stamp;
use zklock_jute::{ErrorCode, Op, OpReply, Reply, Request, culprit};

/// The calls of a waiting thread; the first is its create.
pub(crate) struct EarlyCreate(Mutex<State>);

enum State {
    Ready(Vec<Call>),
    /// Taken by the sender, which may not have sent them yet.
    Sent(Sent),
    Answered(Sent),
    /// Nobody will read the answer.
    GivenUp,
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

    /// Returns when they were sent, if they were; otherwise nobody will send them.
    pub(crate) fn settle(&self) -> Option<Sent> {
        let mut state = self.0.lock();
        match *state {
            State::Sent(sent) | State::Answered(sent) => Some(sent),
            _ => {
                *state = State::GivenUp;
                None
            }
        }
    }

    /// Notes that nobody will read the answer. If it is there, returns when the calls were sent,
    /// because the node may exist; if it comes later, the thread that hears it sees to the node.
    pub(crate) fn give_up(&self) -> Option<Sent> {
        match mem::replace(&mut *self.0.lock(), State::GivenUp) {
            State::Answered(sent) => Some(sent),
            _ => None,
        }
    }

    /// Notes that the answer is there; returns whether a thread reads it.
    fn is_read(&self) -> bool {
        let mut state = self.0.lock();
        let State::Sent(sent) = *state else {
            return false;
        };
        *state = State::Answered(sent);
        true
    }

    /// Takes the calls, which are sent now; `None` if they are no longer there.
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

/// Takes what a create has left if nobody reads its answer.
pub(super) type Left = Box<dyn FnOnce(Orphan) + Send>;

/// Makes one transaction of the deletion of a node and of the create among these calls.
pub(super) fn join(
    node: String,
    calls: Vec<Call>,
    early: Arc<EarlyCreate>,
    (deleted, left): (Answer, Left),
) -> Vec<Call> {
    let mut calls = calls.into_iter();
    let delete = Op::Delete {
        path: node,
        version: -1,
    };
    let first = calls.next().map(|mut create| {
        let prefix = prefix(&create.request);
        let answer = mem::replace(&mut create.answer, Box::new(drop));
        create.answer = Box::new(move |answered| match early.is_read() {
            true => answer(answered),
            false => drop(orphan(answered, prefix).map(left)),
        });
        joined(delete, create, deleted)
    });
    first.into_iter().chain(calls).collect()
}

fn prefix(create: &Request) -> String {
    match create {
        Request::Create { path, .. } => path::name(path).to_owned(),
        _ => String::new(),
    }
}

/// What a create has left, by its answer.
fn orphan(answered: Answered, prefix: String) -> Option<Orphan> {
    match answered.map_err(Failure::sorted) {
        Ok(Reply::Created { path, .. }) => Some(Orphan::Node(path::name(&path).to_owned())),
        Ok(_) | Err(Failure::Lost) => Some(Orphan::Prefix(prefix)),
        Err(_) => None,
    }
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
    let neither = || (Err(Failure::NotSent), Err(Failure::NotSent));
    let results = match answered.map_err(Failure::sorted) {
        Ok(Reply::Multi(results)) => results,
        // What is wrong with the whole need not be wrong with either part: each goes alone.
        Err(Failure::TooLong(_) | Failure::Refused(ErrorCode::UNIMPLEMENTED)) => return neither(),
        // A refusal of the whole does not say how far the server came.
        Ok(_) | Err(Failure::Refused(_)) => return (Err(Failure::Lost), Err(Failure::Lost)),
        Err(failure) => return (Err(failure), Err(failure)),
    };
    match culprit(&results) {
        Some((0, code)) if is_verdict(code) => {
            return (Err(Failure::Refused(code)), Err(Failure::NotSent));
        }
        // The create may be refused because of the node that was to go: a quota still counts it.
        Some(_) => return neither(),
        None => {}
    }
    let mut results = results.into_iter();
    match (results.next(), results.next()) {
        (Some(Ok(_)), Some(Ok(OpReply::Created { path, stat }))) => {
            (Ok(Reply::Nothing), Ok(Reply::Created { path, stat }))
        }
        _ => (Err(Failure::Lost), Err(Failure::Lost)),
    }
}

/// Whether this code is about the part itself, and not about another part that failed.
fn is_verdict(code: ErrorCode) -> bool {
    code != ErrorCode::OK && code != ErrorCode::RUNTIME_INCONSISTENCY
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
