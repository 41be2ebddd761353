//! Gathers the answers of requests that are sent together.

use std::sync::Arc;

use parking_lot::Mutex;

use super::call::{Answered, Call, Watch};
use crate::jute::Request;

/// Makes calls of these requests. `done` runs once all of them are answered, with the
/// answers in the order of the requests.
///
/// It runs on the thread that reads for the transport, and may do nothing but forward.
pub(crate) fn gather(
    requests: Vec<(Request, Option<Watch>)>,
    done: impl FnOnce(Vec<Answered>) + Send + 'static,
) -> Vec<Call> {
    let gathered = Arc::new(Mutex::new(Gathered {
        missing: requests.len(),
        answers: requests.iter().map(|_| None).collect(),
        done: Some(Box::new(done)),
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

struct Gathered {
    missing: usize,
    answers: Vec<Option<Answered>>,
    done: Option<Box<Done>>,
}

type Done = dyn FnOnce(Vec<Answered>) + Send;

impl Gathered {
    fn put(&mut self, at: usize, answered: Answered) {
        if let Some(place) = self.answers.get_mut(at) {
            *place = Some(answered);
        }
        self.missing = self.missing.saturating_sub(1);
        if self.missing == 0
            && let Some(done) = self.done.take()
        {
            done(self.answers.drain(..).flatten().collect());
        }
    }
}
