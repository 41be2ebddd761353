//! Every order in which requests are sent by one thread and given up by another.

use super::*;
use crate::system::simulated::{all_orders, spawn};

#[test]
fn requests_are_sent_once_or_given_up_and_both_threads_know() {
    let (seen, _) = all_orders(3, || {
        let create = EarlyCreate::new(Vec::new());
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
