//! The caller's reads that must be as new as the grant, sent together with the listing.
//!
//! A server answers in order, so the answer to a read behind the listing that grants the lock is as
//! new as the listing. A thread that has waited for others reads again, because those answers may
//! be older than the last write of the holder before.

use std::mem;

use crate::session::caller::{Caller, Replies};
use crate::transport::{Answered, CallId, Failure, Watch};
use zklock_jute::{ErrorCode, Request};

/// The reads of one queue, and the answers to those that were sent last.
pub(super) struct Reads<'a> {
    wanted: &'a [Request],
    /// The id of the first of them, once they are sent.
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

    /// Adds the reads to the requests to be sent, if one of those lists the queue.
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

    /// Drops the answers that came with an outdated listing.
    pub(super) fn forget(&mut self) {
        self.first = None;
        self.answers.clear();
    }

    /// Stops reading.
    pub(super) fn give_up(&mut self) {
        self.wanted = &[];
        self.forget();
    }

    /// Takes an answer to a read; returns an answer to any other request.
    pub(super) fn take(&mut self, call: CallId, answered: Answered) -> Option<Answered> {
        let next = self.first.filter(|_| !self.are_whole());
        let next = next.map(|first| CallId(first.0 + self.answers.len() as u64));
        if next != Some(call) {
            return Some(answered);
        }
        self.answers.push(answered);
        None
    }

    /// Takes out the answers if all have arrived, including those that wait in the caller's mailbox.
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
                // The server closes the connection after this answer.
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
