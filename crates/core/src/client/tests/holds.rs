//! Holds ahead.

use super::*;

const HOLD: &str = "_c_401d401d-5a0b-8b57-9a3e-0123456789ab-lock-0000000000";

impl Desk {
    /// A hold is read that ends then.
    fn reads(&mut self, end: Duration) {
        let data = format!("{{\"hold\":{{\"until_ms\":{}}}}}", end.as_millis());
        let (data, stat) = (data.into_bytes().into(), Stat::default());
        self.answers(Ok(Reply::Data { data, stat }));
    }
}

#[test]
fn a_hold_is_removed_at_its_end_and_not_before() {
    let mut desk = Desk::new();
    let ticket = desk.lock(1);
    desk.sent();
    let mine = name(1, 1);
    // At the servers, it is the beginning of the epoch.
    desk.creates(&mine).lists(&[HOLD, &mine]);
    let end = T / 50;
    assert_eq!(desk.sent(), [format!("get {HOLD}")]);
    desk.reads(end);
    let watches = [format!("exists {mine}"), format!("get {HOLD}, watch")];
    assert_eq!(desk.sent().last(), watches.last());
    desk.finds_both();
    assert_eq!(desk.core.next_tick(), Some(START + end));
    desk.after(end).core.tick(START + end);
    assert_eq!(desk.sent(), ["list"]);
    desk.lists(&[HOLD, &mine]);
    assert_eq!(desk.sent(), [format!("get {HOLD}")]);
    desk.reads(end);
    assert_eq!(desk.sent(), [format!("delete {HOLD}")]);
    desk.answers(Ok(Reply::Nothing));
    assert_eq!(desk.sent(), ["list"]);
    desk.lists(&[&mine]);
    assert_eq!(desk.granted().0, ticket);
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
    assert_eq!(desk.sent(), [format!("delete {HOLD}")]);
    desk.answers(Err(ErrorCode::NO_AUTH));
    assert_eq!(desk.sent(), ["list"]);
    desk.lists(&[HOLD, &mine]);
    desk.sent();
    desk.reads(Duration::ZERO);
    assert_eq!(desk.sent().last(), Some(&format!("get {HOLD}, watch")));
}
