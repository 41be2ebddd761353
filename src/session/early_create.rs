//! The create of a waiting thread, which the thread ahead sends with its release.
//!
//! The create and the deletion are then one transaction ([`delete_and_create`]). The waiting thread
//! prepares the requests before it goes to sleep, and gets the answers as if it had sent them.
//!
//! A thread that gives up cannot know whether its requests have left: the thread ahead may have
//! taken them and not written them yet. It would be too early to look for the node, so the answer
//! decides what is cleaned up.

use std::mem;
use std::sync::Arc;

use crate::system::sync::Mutex;
use crate::transport::{Answer, Call};
use zklock_core::attempt::Orphan;
use zklock_core::delete_and_create;
use zklock_core::validity::Stamp;
use zklock_jute::Request;

/// The calls of a waiting thread, of which the first is its create.
pub(crate) struct EarlyCreate {
    /// The prefix of the node's name.
    pub(crate) prefix: String,
    state: Mutex<State>,
}

enum State {
    Ready(Vec<Call>),
    /// The sender has taken the calls, and may not have sent them yet.
    Sent(Sent),
    Answered(Sent),
    /// No thread will read the answer.
    GivenUp,
}

/// When calls were sent, and in which session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) stamp: Stamp,
    pub(crate) session: i64,
}

impl EarlyCreate {
    pub(crate) fn new(prefix: String, calls: Vec<Call>) -> Arc<Self> {
        let state = Mutex::new(State::Ready(calls));
        Arc::new(Self { prefix, state })
    }

    /// Returns when the calls were sent; `None` if nobody has sent them, or ever will.
    pub(crate) fn settle(&self) -> Option<Sent> {
        let mut state = self.state.lock();
        match *state {
            State::Sent(sent) | State::Answered(sent) => Some(sent),
            _ => {
                *state = State::GivenUp;
                None
            }
        }
    }

    /// Notes that no thread will read the answer. If the answer has arrived, returns when the calls
    /// were sent, because the node may exist. Otherwise the thread that handles the answer cleans
    /// up the node.
    pub(crate) fn give_up(&self) -> Option<Sent> {
        match mem::replace(&mut *self.state.lock(), State::GivenUp) {
            State::Answered(sent) => Some(sent),
            _ => None,
        }
    }

    /// Notes that the answer has arrived; returns whether a thread reads it.
    fn is_read(&self) -> bool {
        let mut state = self.state.lock();
        let State::Sent(sent) = *state else {
            return false;
        };
        *state = State::Answered(sent);
        true
    }

    /// Takes the calls to send them now; returns `None` if they were taken or given up.
    pub(super) fn take(&self, sent: Sent) -> Option<Vec<Call>> {
        let mut state = self.state.lock();
        match mem::replace(&mut *state, State::Sent(sent)) {
            State::Ready(calls) => Some(calls),
            before => {
                *state = before;
                None
            }
        }
    }
}

/// Joins the deletion of a node and the create among these calls in one transaction. If nobody reads the
/// answer to the create, `left` takes over its node.
pub(super) fn join(
    deletion: Request,
    calls: Vec<Call>,
    early: Arc<EarlyCreate>,
    (deleted, left): (Answer, impl FnOnce(Orphan) + Send + 'static),
) -> Vec<Call> {
    let mut calls = calls.into_iter();
    let first = calls.next().map(|create| Call {
        request: delete_and_create::request(vec![deletion], create.request),
        watch: None,
        answer: Box::new(move |answered| {
            let (delete, created) = delete_and_create::parts(answered);
            match early.is_read() {
                true => (create.answer)(created),
                false => drop(delete_and_create::orphan(created, &early.prefix).map(left)),
            }
            deleted(delete);
        }),
    });
    first.into_iter().chain(calls).collect()
}

#[cfg(all(test, zklock_sim))]
mod orders;
