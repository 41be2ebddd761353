//! Calls of a client that ends, and of one without a connection.

use super::*;
use crate::error::Error;
use crate::transport::{Call, WatchId};

/// A transport whose client ends while it has a request.
struct Refusing(Arc<Status>);

impl Transport for Refusing {
    fn send(&self, calls: Vec<Call>) {
        self.0.refused(Error::AuthFailed);
        for call in calls {
            (call.answer)(Err(Failure::Closed));
        }
    }

    fn unwatch(&self, _: &str, _: WatchId) {}

    fn transacts(&self) -> bool {
        unreachable!("nobody asks")
    }

    fn close(&self, _: Duration) -> bool {
        true
    }
}

/// A transport that has no connection, and has not reported that.
#[derive(Debug)]
struct Silent;

impl Transport for Silent {
    fn send(&self, calls: Vec<Call>) {
        for call in calls {
            (call.answer)(Err(Failure::NotSent));
        }
    }

    fn unwatch(&self, _: &str, _: WatchId) {}

    fn transacts(&self) -> bool {
        unreachable!("nobody asks")
    }

    fn close(&self, _: Duration) -> bool {
        true
    }
}

#[test]
fn a_call_that_cannot_be_sent_ends_at_its_limit() {
    let status = Arc::new(Status::new(Duration::from_secs(4), true));
    status.connected(7);
    let transport: Arc<dyn Transport> = Arc::new(Silent);
    let mut caller = Caller::new(&status, &transport);
    let limit = Limit::after(Duration::from_millis(50));
    let list = Request::list("/m");
    let repeated = caller.call(&list, "/m", &limit);
    assert!(matches!(repeated, Err(CallError::LimitReached)));
    let once = caller.call_once(&list, "/m", &limit);
    assert!(matches!(once, Err(CallError::LimitReached)));
}

fn caller() -> Caller {
    let status = Arc::new(Status::new(Duration::from_secs(4), true));
    status.connected(7);
    let transport: Arc<dyn Transport> = Arc::new(Refusing(status.clone()));
    Caller::new(&status, &transport)
}

#[test]
fn a_call_during_which_the_credentials_are_refused_says_so() {
    let limit = Limit::after(Duration::from_secs(1));
    let list = Request::list("/m");
    let repeated = caller().call(&list, "/m", &limit);
    assert!(matches!(repeated, Err(CallError::Over(Error::AuthFailed))));
    let once = caller().call_once(&list, "/m", &limit);
    assert!(matches!(once, Err(CallError::Over(Error::AuthFailed))));
}
