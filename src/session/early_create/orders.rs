//! Every order in which requests are sent by one thread, given up by another, and answered.

use super::*;
use crate::system::simulated::{all_orders, spawn};

/// Which thread cleans up the node of a create.
#[derive(Debug, Eq, Ord, PartialEq, PartialOrd)]
enum By {
    /// The create was never sent.
    Nobody,
    /// The thread that gave up, because the answer had arrived.
    Waiter,
    /// The thread that handled the answer.
    Answer,
}

#[test]
fn the_node_of_a_create_that_is_given_up_is_seen_to_once_and_after_it_was_sent() {
    let (seen, _) = all_orders(3, || {
        let create = EarlyCreate::new(String::new(), Vec::new());
        let sender = {
            let (create, stamp, session) = (create.clone(), Stamp::NEVER, 7);
            // The answer arrives after the request is sent.
            let send = move || {
                create
                    .take(Sent { stamp, session })
                    .map(|_| create.is_read())
            };
            spawn("sends", send).expect("a thread")
        };
        let given_up = create.give_up().is_some();
        match (given_up, sender.join().expect("no panic")) {
            (false, None) => By::Nobody,
            (true, Some(true)) => By::Waiter,
            (false, Some(false)) => By::Answer,
            other => panic!("{other:?}"),
        }
    });
    assert_eq!(
        seen,
        [By::Nobody, By::Waiter, By::Answer].into_iter().collect()
    );
}

#[test]
fn requests_are_sent_once_or_not_at_all_and_both_threads_know() {
    let (seen, _) = all_orders(3, || {
        let create = EarlyCreate::new(String::new(), Vec::new());
        let senders = [1, 2].map(|session| {
            let (create, stamp) = (create.clone(), Stamp::NEVER);
            let send = move || create.take(Sent { stamp, session }).is_some();
            spawn("sends", send).expect("a thread")
        });
        let settled = create.settle().map(|sent| sent.session);
        let sent = senders.map(|sender| sender.join().expect("no panic"));
        assert_eq!(create.settle().map(|sent| sent.session), settled);
        assert_eq!(sent, [1, 2].map(|session| settled == Some(session)));
        settled
    });
    assert_eq!(seen, [None, Some(1), Some(2)].into_iter().collect());
}
