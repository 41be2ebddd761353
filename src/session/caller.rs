//! A calling thread's requests, and its wait for the answers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, after, select};

use crate::error::{Error, Result};
use crate::jute::{ErrorCode, Reply, Request, failure};
use crate::time::limit::{Limit, LimitReached};
use crate::transport::gather::gather;
use crate::transport::mailbox::Mailbox;
use crate::transport::session_state::SessionState;
use crate::transport::status::{Changes, Snapshot, Status};
use crate::transport::{Answered, CallId, Failure, Transport, Watch};

/// How long to wait at most before looking at a link that seems not to have changed.
const BREATHER: Duration = Duration::from_millis(10);

/// The answers to requests that were sent together, and the number of the first.
type Delivery = (CallId, Vec<Answered>);

/// Asks the server on behalf of one thread.
pub(crate) struct Caller {
    status: Arc<Status>,
    transport: Arc<dyn Transport>,
    next: u64,
    answers: Mailbox<Delivery>,
    /// Answers that came while another one was waited for.
    early: Vec<(CallId, Answered)>,
    changes: Option<Changes>,
}

impl Caller {
    pub(crate) fn new(status: &Arc<Status>, transport: &Arc<dyn Transport>) -> Self {
        Self {
            status: status.clone(),
            transport: transport.clone(),
            next: 0,
            answers: Mailbox::new(),
            early: Vec::new(),
            changes: None,
        }
    }

    /// Sends the requests together and in this order; returns the first one's ticket,
    /// which the others' follow. Their answers come together, too, so that the thread is
    /// woken once for all of them.
    pub(crate) fn post(
        &mut self,
        requests: impl IntoIterator<Item = (Request, Option<Watch>)>,
    ) -> CallId {
        let requests: Vec<_> = requests.into_iter().collect();
        let first = CallId::new(self.next);
        self.next += requests.len() as u64;
        let to = self.answers.slot();
        let calls = gather(requests, move |answers| to.put((first, answers)));
        self.transport.send(calls);
        first
    }

    /// Drops the answers that are here and that nobody has waited for: nobody will.
    pub(crate) fn forget(&mut self) {
        self.early.clear();
    }

    /// Waits for the answer to one request.
    pub(crate) fn wait(
        &mut self,
        call_id: CallId,
        limit: &Limit,
    ) -> std::result::Result<Answered, LimitReached> {
        if let Some(at) = self.early.iter().position(|(early, _)| *early == call_id) {
            return Ok(self.early.swap_remove(at).1);
        }
        loop {
            let (first, answers) = self.answers.recv(&*self.transport, limit)?;
            let mut found = None;
            for (of, answered) in first.on().zip(answers) {
                let answered = answered.map_err(Failure::sorted);
                match of == call_id {
                    true => found = Some(answered),
                    false => self.early.push((of, answered)),
                }
            }
            if let Some(answered) = found {
                return Ok(answered);
            }
        }
    }

    /// Sends one request and waits for its answer.
    pub(crate) fn ask(
        &mut self,
        request: Request,
        limit: &Limit,
    ) -> std::result::Result<Answered, LimitReached> {
        let call_id = self.post([(request, None)]);
        self.wait(call_id, limit)
    }

    /// Asks until there is an answer: for requests that may be repeated.
    pub(crate) fn insist(
        &mut self,
        request: &Request,
        limit: &Limit,
    ) -> Result<std::result::Result<Answered, LimitReached>> {
        loop {
            if self.connected(limit)?.is_err() {
                return Ok(Err(LimitReached));
            }
            match self.ask(request.clone(), limit) {
                Ok(Err(Failure::Lost | Failure::NotSent)) => self.breathe(),
                answered => return Ok(answered),
            }
        }
    }

    /// As [`insist`](Self::insist), for what is asked about `path`: the reply, or the code with
    /// which the server turned the request or a part of the transaction down; `None` at the
    /// limit.
    pub(crate) fn settle(
        &mut self,
        request: &Request,
        path: &str,
        limit: &Limit,
    ) -> Result<Option<std::result::Result<Reply, ErrorCode>>> {
        match self.insist(request, limit)? {
            Ok(answered) => self.judge(answered, path),
            Err(LimitReached) => Ok(None),
        }
    }

    /// Tells replies and refusals from answers that were lost, which are `None`.
    pub(crate) fn judge(
        &self,
        answered: Answered,
        path: &str,
    ) -> Result<Option<std::result::Result<Reply, ErrorCode>>> {
        Ok(match answered {
            Ok(Reply::Multi(results)) => Some(match failure(&results) {
                Some(code) => Err(code),
                None => Ok(Reply::Multi(results)),
            }),
            Ok(reply) => Some(Ok(reply)),
            Err(Failure::Refused(code)) => Some(Err(code)),
            Err(Failure::Lost | Failure::NotSent) => None,
            Err(Failure::TooLong(long)) => return Err(long.about(path)),
            Err(Failure::Closed) => return Err(over(&self.status.snapshot())),
        })
    }

    /// Asks the quorum for these nodes; the answers are to be judged.
    pub(crate) fn prove(
        &mut self,
        nodes: &[String],
        limit: &Limit,
    ) -> std::result::Result<Vec<Answered>, LimitReached> {
        let requests = crate::session::proof::requests(self.transport.capabilities(), nodes);
        let count = requests.len();
        let first = self.post(requests.into_iter().map(|request| (request, None)));
        self.wait_for_all(first, count, limit)
    }

    /// Waits for the answers to so many requests, the `first` and those after it.
    pub(crate) fn wait_for_all(
        &mut self,
        first: CallId,
        count: usize,
        limit: &Limit,
    ) -> std::result::Result<Vec<Answered>, LimitReached> {
        let call_ids = first.on().take(count);
        call_ids.map(|call_id| self.wait(call_id, limit)).collect()
    }

    /// Waits for a connection.
    pub(crate) fn connected(
        &mut self,
        limit: &Limit,
    ) -> Result<std::result::Result<Snapshot, LimitReached>> {
        loop {
            let snapshot = self.status.snapshot();
            match snapshot.state {
                SessionState::Connected => return Ok(Ok(snapshot)),
                SessionState::Connecting => {}
                _ => return Err(over(&snapshot)),
            }
            let changes = self.changes().clone();
            // A change may have come before the channel was made.
            if self.status.snapshot().connects != snapshot.connects
                || self.status.snapshot().state != snapshot.state
            {
                continue;
            }
            select! {
                recv(changes) -> _ => {}
                recv(limit.timer()) -> _ => return Ok(Err(LimitReached)),
                recv(limit.cancel) -> _ => return Ok(Err(limit.cancelled())),
            }
        }
    }

    /// The channel that is filled when the link changes.
    pub(crate) fn changes(&mut self) -> &Receiver<()> {
        let changes = self.changes.get_or_insert_with(|| self.status.changes());
        changes.receiver()
    }

    /// Lets time pass, or less if something happens to the connection.
    pub(crate) fn pause(
        &mut self,
        time: Duration,
        limit: &Limit,
    ) -> std::result::Result<(), LimitReached> {
        let changes = self.changes().clone();
        self.transport.attend();
        select! {
            recv(changes) -> _ => Ok(()),
            recv(after(time)) -> _ => Ok(()),
            recv(limit.timer()) -> _ => Err(LimitReached),
            recv(limit.cancel) -> _ => Err(limit.cancelled()),
        }
    }

    /// Whether nothing has happened to the connection since `link` was looked at.
    pub(crate) fn is_steady(&self, snapshot: &Snapshot) -> bool {
        let now = self.status.snapshot();
        now.state == SessionState::Connected && now.connects == snapshot.connects
    }

    /// Gives a transport that failed a request without a change of the link the time to
    /// say so.
    pub(crate) fn breathe(&mut self) {
        let changes = self.changes().clone();
        select! {
            recv(changes) -> _ => {}
            recv(after(BREATHER)) -> _ => {}
        }
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller").finish_non_exhaustive()
    }
}

/// The error of a client that is at its end.
pub(crate) fn over(snapshot: &Snapshot) -> Error {
    match snapshot.state {
        SessionState::AuthFailed => Error::AuthFailed,
        _ => Error::Closed,
    }
}

/// The error of directories that could not be made.
pub(crate) fn not_made(dir: &str, code: ErrorCode) -> Error {
    match code {
        // We make all that is above the directory, as far as we see.
        ErrorCode::NO_NODE => Error::Refused {
            path: dir.to_owned(),
            code: code.0,
            text: "the chroot at the end of the servers' addresses does not exist; create it",
        },
        code => refused(dir, code),
    }
}

/// The error of a request that was turned down.
pub(crate) fn refused(path: &str, code: ErrorCode) -> Error {
    match code {
        ErrorCode::NO_AUTH => Error::NoAuth {
            path: path.to_owned(),
        },
        ErrorCode::AUTH_FAILED => Error::AuthFailed,
        code => Error::Refused {
            path: path.to_owned(),
            code: code.0,
            text: code.text(),
        },
    }
}
