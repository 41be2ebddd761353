//! Holds ahead.

use super::*;
use zklock_core::hold::ONE_AFTER_THE_OTHER;

const HOLD: &str = "_c_401d401d-5a0b-8b57-9a3e-0123456789ab-lock-0000000000";

impl Desk {
    /// Reads a hold that ends at this time.
    fn reads(&mut self, end: Duration) {
        let data = format!("{{\"hold\":{{\"until_ms\":{}}}}}", end.as_millis());
        let (data, stat) = (data.into_bytes().into(), Stat::default());
        self.answers(Ok(Reply::Data { data, stat }));
    }
}

/// Returns the two requests of a removal, which leave in one write.
fn removal() -> [String; 2] {
    [format!("delete {HOLD}"), "list".to_owned()]
}

#[test]
fn a_hold_is_removed_at_its_end_and_not_before() {
    let mut desk = Desk::new();
    let ticket = desk.lock(1);
    desk.sent();
    let mine = name(1, 1);
    // At the servers, the time is the beginning of the epoch.
    desk.creates(&mine).lists(&[HOLD, &mine]);
    let end = T / 50;
    assert_eq!(desk.sent(), [format!("get {HOLD}")]);
    desk.reads(end);
    let watches = [format!("exists {mine}"), format!("get {HOLD}, watch")];
    assert_eq!(desk.sent().last(), watches.last());
    desk.finds_both();
    assert_eq!(desk.core.next_tick(), Some(START + end));
    desk.after(end).core.tick(START + end);
    assert_eq!(desk.sent(), removal());
    desk.answers(Ok(Reply::Nothing)).lists(&[&mine]);
    assert_eq!(desk.granted().0, ticket);
}

/// What the waiter knew of the hold is no longer true.
#[test]
fn a_hold_that_is_written_meanwhile_is_read_again() {
    let mut desk = Desk::new();
    desk.lock(1);
    desk.sent();
    let mine = name(1, 1);
    desk.creates(&mine).lists(&[HOLD, &mine]);
    desk.sent();
    let end = T / 50;
    desk.reads(end);
    desk.sent();
    desk.finds_both();
    desk.after(end).core.tick(START + end);
    assert_eq!(desk.sent(), removal());
    desk.answers(Err(ErrorCode::BAD_VERSION));
    desk.lists(&[HOLD, &mine]);
    assert_eq!(desk.sent(), [format!("get {HOLD}")]);
    desk.reads(2 * end);
    desk.sent();
    desk.finds_both();
    assert_eq!(desk.core.next_tick(), Some(START + 2 * end));
}

/// Otherwise each of many waiters would ask for a deletion.
#[test]
fn a_waiter_behind_another_one_looks_before_it_removes_a_hold() {
    let mut desk = Desk::new();
    desk.lock(1);
    desk.sent();
    let [other, mine] = [name(2, 1), name(1, 2)];
    desk.creates(&mine).lists(&[HOLD, &other, &mine]);
    desk.sent();
    let end = T / 50;
    desk.reads(end);
    desk.sent();
    desk.answers(Ok(Reply::Stat(Stat::default())));
    (0..2).for_each(|_| desk.reads(end));
    let later = end + ONE_AFTER_THE_OTHER;
    desk.after(later).core.tick(START + later);
    assert_eq!(desk.sent(), ["list"]);
}

#[test]
fn a_hold_that_may_not_be_removed_is_waited_for() {
    let mut desk = Desk::new();
    desk.lock(1);
    desk.sent();
    let mine = name(1, 1);
    desk.creates(&mine).lists(&[HOLD, &mine]);
    desk.sent();
    desk.reads(Duration::ZERO);
    assert_eq!(desk.sent(), removal());
    desk.answers(Err(ErrorCode::NO_AUTH));
    desk.lists(&[HOLD, &mine]);
    desk.sent();
    desk.reads(Duration::ZERO);
    assert_eq!(desk.sent().last(), Some(&format!("get {HOLD}, watch")));
}
