//! The requests of one calling thread, and its wait for the answers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, slice};

use super::call_error::CallError;
use super::silence::Silence;
use crate::error::Result;
use crate::system::channel::Receiver;
use crate::system::clock;
use crate::time::limit::{Limit, LimitReached, from_now};
use crate::transport::Mailbox;
use crate::transport::session_state::SessionState;
use crate::transport::status::{Changes, Snapshot, Status};
use crate::transport::{Answered, Call, CallId, Failure, Transport, Watch, gather};
use zklock_core::answer::BREATHER;
use zklock_jute::{ErrorCode, Reply, Request, failure};

/// The servers' answers to several requests, refusals included.
pub(crate) type Replies = Vec<Result<Reply, ErrorCode>>;

/// Sends requests on behalf of one thread.
pub(crate) struct Caller {
    status: Arc<Status>,
    transport: Arc<dyn Transport>,
    next: u64,
    /// The answers to requests that were sent together, each time with the id of the first.
    answers: Mailbox<(CallId, Vec<Answered>)>,
    /// Answers that arrived while the thread waited for another one.
    early: VecDeque<(CallId, Answered)>,
    changes: Option<Changes>,
    silence: Silence,
}

impl Caller {
    pub(crate) fn new(status: &Arc<Status>, transport: &Arc<dyn Transport>) -> Self {
        Self {
            status: status.clone(),
            transport: transport.clone(),
            next: 0,
            answers: Mailbox::new(),
            early: VecDeque::new(),
            changes: None,
            silence: Silence::default(),
        }
    }

    /// Sends the requests together and in this order. Returns the id of the first; the ids of the
    /// others follow it. The answers arrive together too, so that the thread wakes once for all of
    /// them.
    pub(crate) fn post(
        &mut self,
        requests: impl IntoIterator<Item = (Request, Option<Watch>)>,
    ) -> CallId {
        let (first, calls) = self.prepare(requests);
        self.transport.send(calls);
        first
    }

    /// Like [`post`](Self::post), with one more request in the same write, whose answer arrives
    /// separately. Returns the id of that request too.
    pub(crate) fn post_before(&mut self, requests: &[Request], last: Request) -> (CallId, CallId) {
        let requests = requests.iter().map(|request| (request.clone(), None));
        let (first, mut calls) = self.prepare(requests);
        let (behind, more) = self.prepare([(last, None)]);
        calls.extend(more);
        self.transport.send(calls);
        (first, behind)
    }

    /// Like [`post`](Self::post), but leaves the sending to another thread.
    pub(crate) fn prepare(
        &mut self,
        requests: impl IntoIterator<Item = (Request, Option<Watch>)>,
    ) -> (CallId, Vec<Call>) {
        let requests: Vec<_> = requests.into_iter().collect();
        let first = CallId(self.next);
        self.next += requests.len() as u64;
        let to = self.answers.slot();
        let calls = gather(requests, move |answers| to.put((first, answers)));
        (first, calls)
    }

    /// Returns the id of the request that is posted next, after this many others.
    pub(crate) fn upcoming(&self, others: usize) -> CallId {
        CallId(self.next + others as u64)
    }

    /// Returns the next answer that has arrived, in any order.
    pub(crate) fn try_take(&mut self) -> Option<(CallId, Answered)> {
        if self.early.is_empty() {
            let letter = self.answers.try_recv()?;
            self.keep(letter);
        }
        self.early.pop_front()
    }

    /// Keeps the answers to requests that were sent together, the first of which has this id.
    fn keep(&mut self, (first, answers): (CallId, Vec<Answered>)) {
        let sorted = answers.into_iter().map(|one| one.map_err(Failure::sorted));
        self.early.extend(first.on().zip(sorted));
    }

    /// Returns the channel of answers, to wait for it together with others.
    pub(crate) fn letters(&self) -> &Receiver<(CallId, Vec<Answered>)> {
        self.answers.letters()
    }

    /// Waits for the answer to one request.
    pub(crate) fn wait(
        &mut self,
        call_id: CallId,
        limit: &Limit,
    ) -> Result<Answered, LimitReached> {
        loop {
            let at = self.early.iter().position(|(early, _)| *early == call_id);
            if let Some((_, answered)) = at.and_then(|at| self.early.remove(at)) {
                return Ok(answered);
            }
            let letter = self.transport.receive(&self.answers, limit)?;
            self.keep(letter);
        }
    }

    /// Repeats a request until it is answered; for requests that can be repeated.
    pub(crate) fn call(
        &mut self,
        request: &Request,
        path: &str,
        limit: &Limit,
    ) -> Result<Reply, CallError> {
        self.call_all(slice::from_ref(request), path, limit)
            .and_then(only)
    }

    /// Sends a request once; returns `None` if the answer was lost: the request may have been carried out.
    pub(crate) fn call_once(
        &mut self,
        request: &Request,
        path: &str,
        limit: &Limit,
    ) -> Result<Option<Reply>, CallError> {
        let request = (slice::from_ref(request), None);
        let replies = self.send(request, false, path, limit)?;
        replies.map(only).transpose()
    }

    /// Sends all of these requests in one write, and again until each is answered.
    pub(crate) fn call_all(
        &mut self,
        requests: &[Request],
        path: &str,
        limit: &Limit,
    ) -> Result<Replies, CallError> {
        let replies = self.send((requests, None), true, path, limit)?;
        Ok(replies.unwrap_or_default())
    }

    /// Sends all of these requests in one write, and again if one failed so that they can be; returns `None` if they
    /// cannot.
    pub(crate) fn send(
        &mut self,
        (requests, watch): (&[Request], Option<&Watch>),
        can_be_repeated: bool,
        path: &str,
        limit: &Limit,
    ) -> Result<Option<Replies>, CallError> {
        loop {
            self.connected(limit)?.ok_or(LimitReached)?;
            let all = requests.iter();
            let first = self.post(all.map(|request| (request.clone(), watch.cloned())));
            match self.replies((requests, first), path, limit)? {
                Ok(replies) => return Ok(Some(replies)),
                Err(failure) if failure.is_repeated(can_be_repeated) => self.breathe(limit)?,
                Err(_) => return Ok(None),
            }
        }
    }

    /// Waits for the answers to these requests, which were posted from `first` on. The inner error is that of a
    /// request after which they may be sent again.
    pub(crate) fn replies(
        &mut self,
        (requests, first): (&[Request], CallId),
        path: &str,
        limit: &Limit,
    ) -> Result<Result<Replies, Failure>, CallError> {
        let answers = self.wait_for_all(first, requests.len(), limit)?;
        let mut replies = Vec::with_capacity(answers.len());
        for (request, answered) in requests.iter().zip(answers) {
            let failure = match answered {
                Ok(reply) => {
                    replies.push(Ok(reply));
                    continue;
                }
                Err(failure) => failure,
            };
            let about = request.reads().unwrap_or(path);
            match CallError::of(failure, about, &self.status) {
                // The server closes the connection after this answer, and would do so again.
                Some(error @ CallError::Refused(ErrorCode::SASL_REQUIRED)) => {
                    return Err(error);
                }
                Some(CallError::Refused(code)) => replies.push(Err(code)),
                Some(error) => return Err(error),
                None => return Ok(Err(failure)),
            }
        }
        Ok(Ok(replies))
    }

    /// Asks the quorum whether these nodes exist; [`proof::judge`] reads the answers.
    ///
    /// [`proof::judge`]: zklock_core::proof::judge
    pub(crate) fn prove(
        &mut self,
        nodes: &[String],
        limit: &Limit,
    ) -> Result<Vec<Answered>, LimitReached> {
        let requests = zklock_core::proof::requests(self.transport.transacts(), nodes);
        let count = requests.len();
        let first = self.post(requests.into_iter().map(|request| (request, None)));
        self.wait_for_all(first, count, limit)
    }

    /// Waits for the answers to `count` requests, from `first` on.
    pub(crate) fn wait_for_all(
        &mut self,
        first: CallId,
        count: usize,
        limit: &Limit,
    ) -> Result<Vec<Answered>, LimitReached> {
        let call_ids = first.on().take(count);
        call_ids.map(|call_id| self.wait(call_id, limit)).collect()
    }

    /// Waits for a connection; returns `None` at the limit, or at the limit's own bound for an outage.
    pub(crate) fn connected(&mut self, limit: &Limit) -> Result<Option<Snapshot>> {
        let mut outage = None;
        loop {
            let snapshot = self.status.snapshot();
            match snapshot.state {
                SessionState::Connected => {
                    self.silence.look(&self.status);
                    return Ok(Some(snapshot));
                }
                SessionState::Connecting => {}
                _ => return Err(self.status.ending()),
            }
            // Subscribing before looking misses no change.
            if self.changes.is_none() {
                self.changes();
                continue;
            }
            let changes = self.changes().clone();
            let pause = self.silence.look(&self.status);
            let limit = outage.get_or_insert_with(|| limit.of_outage());
            match limit.wait_any_for(pause, &[&changes]) {
                Ok(Some(_)) => drop(changes.try_recv()),
                Ok(None) => self.tell_silence("waiting for a connection"),
                Err(LimitReached) => return Ok(None),
            }
        }
    }

    /// Returns the time until a missing connection is worth a log line; `None` if the connection is
    /// there.
    pub(crate) fn silence(&mut self) -> Option<Duration> {
        self.silence.look(&self.status)
    }

    /// Logs that no server answers, if that is due.
    pub(crate) fn tell_silence(&mut self, what: impl fmt::Display) {
        self.silence.tell(what, &self.status);
    }

    /// Returns the channel that is filled when the status changes.
    pub(crate) fn changes(&mut self) -> &Receiver<()> {
        let changes = self.changes.get_or_insert_with(|| self.status.changes());
        changes.receiver()
    }

    /// Waits for `time`, or until the status changes.
    pub(crate) fn pause(&mut self, time: Duration, limit: &Limit) -> Result<(), LimitReached> {
        let changes = self.changes().clone();
        let wait = || limit.wait_any_for(Some(time), &[&changes]);
        if self.transport.while_attended(wait)?.is_some() {
            let _ = changes.try_recv();
        }
        Ok(())
    }

    /// Waits for `time`, unless the client ends.
    pub(crate) fn rest(&mut self, time: Duration, limit: &Limit) -> Result<(), LimitReached> {
        let until = from_now(time);
        // Subscribing before looking misses no change.
        self.changes();
        while !self.status.snapshot().is_over() {
            let left = until.saturating_duration_since(clock::now());
            if left.is_zero() {
                break;
            }
            self.pause(left, limit)?;
        }
        Ok(())
    }

    /// Returns whether the connection is still the one that `snapshot` shows.
    pub(crate) fn is_steady(&self, snapshot: &Snapshot) -> bool {
        let now = self.status.snapshot();
        now.state == SessionState::Connected && now.connects == snapshot.connects
    }

    /// Waits a moment after a failed request, so that the transport can report why it failed.
    pub(crate) fn breathe(&mut self, limit: &Limit) -> Result<(), LimitReached> {
        self.pause(BREATHER, limit)
    }
}

/// Returns the only reply, or the refusal of a transaction if one of its parts was refused.
fn only(mut replies: Replies) -> Result<Reply, CallError> {
    let reply = replies.pop().ok_or(LimitReached)?;
    let reply = reply.map_err(CallError::Refused)?;
    let refused = match &reply {
        Reply::Multi(results) => failure(results),
        _ => None,
    };
    refused.map_or(Ok(reply), |code| Err(CallError::Refused(code)))
}

#[cfg(test)]
mod tests;
