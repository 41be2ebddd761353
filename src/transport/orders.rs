//! Every order in which letters are put in, waited for and taken out.

use std::time::Duration;

use super::tests::recv;
use super::*;
use crate::system::channel::bounded;
use crate::system::simulated::{JoinHandle, all_orders, spawn};
use crate::time::limit::Limit;

fn for_ever() -> Limit {
    Limit::new(None, None)
}

/// Puts letters in from another thread.
fn puts(mailbox: &Mailbox<u32>, letters: &'static [u32]) -> JoinHandle<()> {
    let slot = mailbox.slot();
    let put = move || letters.iter().for_each(|letter| slot.put(*letter));
    spawn("puts", put).expect("a thread")
}

fn joined<const N: usize>(threads: [JoinHandle<()>; N]) {
    for thread in threads {
        thread.join().expect("no panic");
    }
}

#[test]
fn each_letter_of_two_senders_comes_once_and_in_order() {
    let (seen, _) = all_orders(3, || {
        let mailbox = Mailbox::new();
        let threads = [puts(&mailbox, &[1, 2]), puts(&mailbox, &[11])];
        let came = [(); 3].map(|()| recv(&mailbox, &for_ever()).expect("no limit"));
        joined(threads);
        assert!(mailbox.letters().is_empty(), "one came twice");
        came
    });
    let orders = [[1, 2, 11], [1, 11, 2], [11, 1, 2]];
    assert_eq!(seen, orders.into_iter().collect());
}

/// Asserts that a letter that arrives together with the limit is taken now or by the next call.
fn taken_once(mailbox: &Mailbox<u32>, limit: &Limit) -> bool {
    let in_time = recv(mailbox, limit);
    if in_time.is_err() {
        assert_eq!(recv(mailbox, &for_ever()), Ok(7), "it is lost");
    }
    assert!(mailbox.letters().is_empty(), "it came twice");
    in_time.is_ok()
}

#[test]
fn a_deadline_loses_no_letter() {
    let (mut in_time, mut late, mut orders) = (0, 0, 0);
    for step in 0..20 {
        // Each step of a thread takes 0.1 us.
        let (seen, runs) = all_orders(3, move || {
            let mailbox = Mailbox::new();
            let limit = Limit::after(Duration::from_nanos(100 * step));
            let threads = [puts(&mailbox, &[7])];
            let in_time = taken_once(&mailbox, &limit);
            joined(threads);
            in_time
        });
        in_time += usize::from(seen.contains(&true));
        late += usize::from(seen.contains(&false));
        orders += runs;
    }
    println!("{orders} orders with a deadline");
    assert!(0 < in_time && 0 < late, "{in_time}, {late}");
}

#[test]
fn a_cancel_loses_no_letter() {
    let (seen, _) = all_orders(3, || {
        let mailbox = Mailbox::new();
        let (cancel, cancelled) = bounded(1);
        let limit = Limit::new(None, Some(cancelled));
        let cancels = spawn("cancels", move || {
            let _ = cancel.try_send(());
        });
        let threads = [puts(&mailbox, &[7]), cancels.expect("a thread")];
        let in_time = taken_once(&mailbox, &limit);
        joined(threads);
        in_time
    });
    assert_eq!(seen.len(), 2, "either is first");
}

#[test]
fn a_reader_that_leaves_stops_nobody() {
    let (seen, _) = all_orders(3, || {
        let mailbox = Mailbox::new();
        let threads = [puts(&mailbox, &[1, 2]), puts(&mailbox, &[11])];
        let first = recv(&mailbox, &for_ever());
        drop(mailbox);
        joined(threads);
        first.expect("no limit")
    });
    assert_eq!(seen, [1, 11].into_iter().collect());
}
