//! What the caller is to read once it has the lock, read together with the queue.
//!
//! A server answers in order: what is read behind the listing that grants the lock is as new as that. Who
//! has waited for others has it read again, as that may be older than what the holder before has left.

use std::mem;

use crate::session::caller::{Caller, Replies};
use crate::transport::{Answered, CallId, Failure, Watch};
use zklock_jute::{ErrorCode, Request};

/// The requests of one queue, and what is known of those that have left last.
pub(super) struct Reads<'a> {
    wanted: &'a [Request],
    /// The first of them, from when they have left.
    first: Option<CallId>,
    answers: Vec<Answered>,
}

impl<'a> Reads<'a> {
    pub(super) fn new(wanted: &'a [Request]) -> Self {
        Self {
            wanted,
            first: None,
            answers: Vec::new(),
        }
    }

    /// Leaves with what is sent, if that lists the queue.
    pub(super) fn leave_with(
        &mut self,
        out: &mut Vec<(Request, Option<Watch>)>,
        dir: &str,
        caller: &Caller,
    ) {
        if self.wanted.is_empty() || !out.iter().any(|(request, _)| lists(request, dir)) {
            return;
        }
        self.forget();
        self.first = Some(caller.upcoming(out.len()));
        out.extend(self.wanted.iter().map(|request| (request.clone(), None)));
    }

    /// Drops what came with a listing that is not the last.
    pub(super) fn forget(&mut self) {
        self.first = None;
        self.answers.clear();
    }

    /// Asks for nothing any more.
    pub(super) fn give_up(&mut self) {
        self.wanted = &[];
        self.forget();
    }

    /// Takes in an answer; returns those to other requests.
    pub(super) fn take(&mut self, call: CallId, answered: Answered) -> Option<Answered> {
        let next = self.first.filter(|_| !self.are_whole());
        let next = next.map(|first| CallId(first.0 + self.answers.len() as u64));
        if next != Some(call) {
            return Some(answered);
        }
        self.answers.push(answered);
        None
    }

    /// Takes out the answers, if all have arrived, with the others that are there already.
    pub(super) fn finish(&mut self, caller: &mut Caller) -> Option<Replies> {
        self.first?;
        while !self.are_whole() {
            let (call, answered) = caller.try_take()?;
            self.take(call, answered);
        }
        let answers = mem::take(&mut self.answers).into_iter();
        answers
            .map(|answered| match answered {
                Ok(reply) => Some(Ok(reply)),
                // The server hangs up behind this one.
                Err(Failure::Refused(ErrorCode::SASL_REQUIRED)) => None,
                Err(Failure::Refused(code)) => Some(Err(code)),
                Err(_) => None,
            })
            .collect()
    }

    fn are_whole(&self) -> bool {
        self.answers.len() == self.wanted.len()
    }
}

fn lists(request: &Request, of: &str) -> bool {
    matches!(request, Request::GetChildren { path, watch: false, .. } if &**path == of)
}
