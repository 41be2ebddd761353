//! What the end of a session tells first: the server may grant its locks to other clients at once.

use super::*;
use crate::transport::{Call, Capabilities, WatchId};

/// Notes whether the guards have heard of the end when the server is to be told.
struct Last {
    status: Arc<Status>,
    told: Mutex<Vec<bool>>,
}

impl Transport for Last {
    fn send(&self, _: Vec<Call>) {}

    fn unwatch(&self, _: &str, _: WatchId) {}

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            multi: true,
            sync: true,
            resumes: true,
        }
    }

    fn leave(&self) {
        self.told.lock().push(self.status.snapshot().is_over());
    }

    fn close(&self, _: Duration) -> bool {
        self.leave();
        true
    }
}

#[test]
fn the_guards_hear_of_the_end_of_a_session_before_the_server() {
    let close = |session: Session| assert!(session.close(CLOSE_LIMIT));
    let ends: [fn(Session); 2] = [close, drop];
    for end in ends {
        let status = Arc::new(Status::new(Duration::from_secs(10), true));
        status.connected(7);
        let last = Arc::new(Last {
            status: status.clone(),
            told: Mutex::default(),
        });
        let session = Session::new(status, last.clone(), Settings::default()).expect("a thread");
        end(session);
        let told = last.told.lock();
        assert!(
            !told.is_empty() && told.iter().all(|told| *told),
            "{told:?}"
        );
    }
}
