//! Requests that are sent the moment a watched node is deleted, before the watcher wakes.
//!
//! The thread that reads the event sends them, and the watcher wakes once, with the
//! replies. Several watches may share one prefetch: the first whose node is deleted sends
//! it.

use super::call::{Call, Fired, Prefetch, Prefetched, Watch};
use super::gather::gather;
use super::status::Status;
use zklock_core::grant_proof::GrantProof;
use zklock_jute::{EventKind, Request};

/// The calls that are due now that this watch has fired: none unless its node was deleted. The
/// watcher gets the event with their answers, or at once if no call is due.
pub(super) fn calls(watch: Watch, kind: EventKind, status: &Status) -> Vec<Call> {
    let Watch { id, to, prefetch } = watch;
    let prefetch = prefetch.filter(|_| kind == EventKind::Deleted);
    let due = prefetch.and_then(|prefetch| prefetch.lock().take());
    let Some((number, requests)) = due.and_then(|prefetch| prefetch.due(status)) else {
        to.put(Fired::told(id, kind));
        return Vec::new();
    };
    let stamp = status.stamp();
    let requests = requests.into_iter().map(|request| (request, None));
    gather(requests.collect(), move |answers| {
        let mut answers = answers.into_iter();
        let prefetched = answers.next().map(|listing| Prefetched {
            number,
            stamp,
            listing,
            proof: answers.collect(),
        });
        to.put(Fired {
            id,
            kind,
            prefetched,
        });
    })
}

impl Prefetch {
    fn due(self, status: &Status) -> Option<(u64, Vec<Request>)> {
        let is_proven = self
            .proven
            .is_some_and(|proven| status.grants_on(&GrantProof::on(proven)));
        if is_proven && self.listed {
            return None;
        }
        let mut requests = vec![self.listing];
        if !is_proven {
            requests.extend(self.proof);
        }
        Some((self.number, requests))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::system::channel::unbounded;
    use crate::system::sync::Mutex;
    use crate::transport::WatchId;

    #[test]
    fn a_prefetch_takes_the_place_of_the_event_only_when_the_node_is_deleted() {
        let status = Status::new(Duration::from_secs(20), true);
        for (event, sent) in [(EventKind::DataChanged, 0), (EventKind::Deleted, 1)] {
            let (to, told) = unbounded();
            let mut watch = Watch::new(WatchId(1), to);
            watch.prefetch = Some(Arc::new(Mutex::new(Some(Prefetch {
                number: 1,
                listing: Request::list("/a"),
                listed: false,
                proof: Vec::new(),
                proven: None,
            }))));
            assert_eq!(calls(watch, event, &status).len(), sent);
            assert_eq!(told.try_iter().count(), 1 - sent, "{event:?}");
        }
    }
}
