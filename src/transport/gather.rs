//! Gathers the answers of requests that are sent together.

use std::mem;
use std::sync::Arc;

use super::call::{Answer, Call, Watch};
use crate::system::sync::Mutex;
use zklock_core::answer::{Answered, Failure};
use zklock_jute::Request;

/// Makes calls of these requests. Once all of them are answered, `done` runs with the answers
/// in the order of the requests.
///
/// It runs on the thread that reads for the transport, and may do nothing but forward.
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
