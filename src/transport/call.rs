//! The values that pass through a transport: requests, their answers, and the events of watches.

use std::mem;
use std::sync::Arc;

use super::mailbox::Slot;
use crate::system::sync::Mutex;
use zklock_core::answer::{Answered, Failure};
use zklock_jute::{EventKind, Request};

/// One request, and what to do with the answer.
pub(crate) struct Call {
    pub(crate) request: Request,
    /// Registered if the request sets a watch and succeeds.
    pub(crate) watch: Option<Watch>,
    pub(crate) answer: Answer,
}

/// A closure that runs on the thread that reads for the transport, and may only forward the answer.
pub(crate) type Answer = Box<dyn FnOnce(Answered) + Send>;

/// The number of a watch in its session.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct WatchId(pub(crate) u64);

/// Where the event of a one-shot watch goes.
pub(crate) struct Watch {
    pub(crate) id: WatchId,
    pub(crate) to: Slot<Fired>,
}

impl Watch {
    pub(crate) fn new(id: WatchId, to: impl Into<Slot<Fired>>) -> Self {
        Self { id, to: to.into() }
    }
}

/// The event of a watch.
#[derive(Clone, Debug)]
pub(crate) struct Fired {
    pub(crate) id: WatchId,
    pub(crate) kind: EventKind,
}

/// Creates calls of these requests. Once all of them are answered, `done` runs with the answers in
/// the order of the requests.
///
/// It runs on the thread that reads for the transport, and may only forward the answers.
pub(crate) fn gather(
    requests: Vec<(Request, Option<Watch>)>,
    done: impl FnOnce(Vec<Answered>) + Send + 'static,
) -> Vec<Call> {
    if requests.len() == 1 {
        // Most requests are sent alone: a box is enough.
        let answer: Answer = Box::new(move |answered| done(vec![answered]));
        return requests
            .into_iter()
            .zip([answer])
            .map(|((request, watch), answer)| Call {
                request,
                watch,
                answer,
            })
            .collect();
    }
    let gathered = Arc::new(Mutex::new(Gathered {
        missing: requests.len(),
        answers: requests.iter().map(|_| Err(Failure::Lost)).collect(),
        done: Some(done),
    }));
    let call = |(at, (request, watch))| {
        let gathered = gathered.clone();
        Call {
            request,
            watch,
            answer: Box::new(move |answered| gathered.lock().put(at, answered)),
        }
    };
    requests.into_iter().enumerate().map(call).collect()
}

struct Gathered<D> {
    missing: usize,
    answers: Vec<Answered>,
    done: Option<D>,
}

impl<D: FnOnce(Vec<Answered>)> Gathered<D> {
    fn put(&mut self, at: usize, answered: Answered) {
        if let Some(place) = self.answers.get_mut(at) {
            *place = answered;
        }
        self.missing = self.missing.saturating_sub(1);
        if self.missing == 0 {
            if let Some(done) = self.done.take() {
                done(mem::take(&mut self.answers));
            }
        }
    }
}
