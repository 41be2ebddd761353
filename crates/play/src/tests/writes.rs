//! What is written under a lock, and with its release.

use super::*;
use zklock_jute::Data;

pub(super) fn write() -> Request {
    Request::SetData {
        path: "/w".into(),
        data: Data::default(),
        version: -1,
    }
}

impl Desk {
    fn commits(&mut self, grant: &Grant) -> Ticket {
        let ask = Ask::Commit {
            guard: grant.guard,
            ops: vec![write()],
        };
        self.core.ask(self.now, Thread(1), ask)
    }

    fn unlocks(&mut self, grant: &Grant) -> Ticket {
        let ask = Ask::Unlock {
            guard: grant.guard,
            ops: vec![write()],
        };
        self.core.ask(self.now, Thread(1), ask)
    }

    /// Refuses the transaction at this place.
    fn refuses(&mut self, place: usize, code: ErrorCode) {
        let mut results = vec![Err(ErrorCode::OK), Err(ErrorCode::RUNTIME_INCONSISTENCY)];
        results[place] = Err(code);
        self.answers(Ok(Reply::Multi(results)));
    }

    fn carries_out(&mut self, first: Reply) {
        let set = Reply::Stat(self.stat());
        self.answers(Ok(Reply::Multi(vec![Ok(first), Ok(set)])));
    }
}

#[test]
fn a_write_under_a_lock_proves_it_and_is_refused_with_it() {
    let (mut desk, grant) = Desk::held();
    let mine = name(1, 0);
    // It watches its node.
    desk.after(T / 100).core.tick(START + T / 100);
    desk.sent();
    let (data, stat) = (Data::default(), desk.stat());
    desk.answers(Ok(Reply::Data { data, stat }));
    let ticket = desk.commits(&grant);
    assert_eq!(desk.sent(), [format!("check {mine} and set w")]);
    desk.carries_out(Reply::Checked);
    assert_eq!(desk.wakes(), [(ticket, Outcome::Committed)]);
    let longer = grant.trust.until + T / 100;
    let notice = desk.core.next_notice();
    assert!(matches!(notice, Some((_, Notice::Trust(trust))) if trust.until == longer));

    let ticket = desk.commits(&grant);
    desk.sent();
    desk.refuses(1, ErrorCode::BAD_VERSION);
    let refused = Outcome::StepRefused(0, ErrorCode::BAD_VERSION);
    assert_eq!(desk.wakes(), [(ticket, refused)]);

    let ticket = desk.commits(&grant);
    desk.sent();
    desk.refuses(0, ErrorCode::NO_NODE);
    assert_eq!(desk.wakes(), [(ticket, Outcome::Lost(Loss::Evicted))]);
    let notice = desk.core.next_notice();
    assert_eq!(notice, Some((grant.guard, Notice::Lost(Loss::Evicted))));
}

#[test]
fn a_write_whose_answer_is_lost_is_in_doubt_and_is_not_sent_again() {
    let (mut desk, grant) = Desk::held();
    let ticket = desk.commits(&grant);
    desk.sent();
    desk.core.broke(desk.now);
    assert_eq!(desk.wakes(), [(ticket, Outcome::InDoubt)]);
    // A transaction that was not sent waits for the connection.
    let ticket = desk.commits(&grant);
    assert_eq!(desk.wakes(), []);
    desk.connect(SESSION);
    let is_write = |request: &&String| request.ends_with("set w");
    assert_eq!(desk.sent().iter().filter(is_write).count(), 1);
    assert_eq!(desk.wakes(), []);
    // The thread waits no longer than the lock can be trusted.
    desk.now = grant.trust.until;
    desk.core.tick(desk.now);
    assert_eq!(desk.wakes(), [(ticket, Outcome::InDoubt)]);
}

#[test]
fn what_is_written_with_a_release_is_written_once_or_the_lock_is_released_without() {
    let (mut desk, grant) = Desk::held();
    let mine = name(1, 0);
    let both = format!("delete {mine} and set w");
    let ticket = desk.unlocks(&grant);
    assert_eq!(desk.sent(), [&*both]);
    desk.core.broke(desk.now);
    desk.connect(SESSION);
    assert_eq!(desk.sent(), [both]);
    desk.refuses(0, ErrorCode::NO_NODE);
    assert_eq!(desk.wakes(), [(ticket, Outcome::InDoubt)]);

    let (mut desk, grant) = Desk::held();
    let ticket = desk.unlocks(&grant);
    desk.sent();
    desk.refuses(1, ErrorCode::NO_AUTH);
    let refused = Outcome::StepRefused(0, ErrorCode::NO_AUTH);
    assert_eq!(desk.wakes(), [(ticket, refused)]);
    assert_eq!(desk.sent(), [format!("delete {mine}")]);
}

#[test]
fn a_release_leaves_a_note_over_what_it_has_read() {
    let mut settings = Settings::new(Dialect::Curator, 0);
    settings.notes = true;
    for (data, version, notes) in [
        (&b""[..], 0, true),
        (b"{\"released\":7}", 3, true),
        // Data that somebody has deleted, or that is somebody's.
        (b"", 1, false),
        (b"127.0.0.1", 0, false),
    ] {
        let (mut desk, grant) = Desk::with(settings.clone()).holds();
        assert_eq!(desk.sent(), ["get the directory"]);
        let stat = Stat {
            version,
            ..Stat::default()
        };
        let data = data.to_vec().into();
        desk.answers(Ok(Reply::Data { data, stat }));
        desk.core.release(desk.now, grant.guard);
        let mine = name(1, 0);
        let release = match notes {
            true => format!("delete {mine} and set m"),
            false => format!("delete {mine}"),
        };
        assert_eq!(desk.sent(), [release]);
    }
}

#[test]
fn a_lock_is_not_handed_on_while_a_write_may_still_be_carried_out() {
    for answered in [false, true] {
        let mut settings = Settings::new(Dialect::Curator, 0);
        settings.local_handoffs = 1;
        let (mut desk, grant) = Desk::with(settings).holds();
        desk.lock(2);
        desk.commits(&grant);
        desk.sent();
        if answered {
            desk.carries_out(Reply::Checked);
        }
        desk.wakes();
        desk.core.release(desk.now, grant.guard);
        assert_eq!(desk.wakes().len(), usize::from(answered));
        assert_eq!(desk.sent().is_empty(), answered);
    }
}

/// A server that has too many requests throws some away, and goes on to serve.
#[test]
fn what_a_server_throws_away_is_sent_again_on_the_same_connection() {
    for verifies in [false, true] {
        let (mut desk, grant) = Desk::held();
        let (guard, until) = (grant.guard, None);
        match verifies {
            true => desk
                .core
                .ask(desk.now, Thread(1), Ask::Verify { guard, until }),
            false => desk.commits(&grant),
        };
        let asked = desk.sent();
        assert_eq!(asked.len(), 1, "{asked:?}");
        desk.answers(Err(ErrorCode::THROTTLED));
        assert!(!desk.core.hangs_up());
        assert!(desk.sent().is_empty() && desk.wakes().is_empty());
        desk.now = desk.core.next_tick().unwrap();
        desk.core.tick(desk.now);
        assert_eq!(desk.sent(), asked);
    }
}

/// An ancestor that may be missing is no reason to say that the root of all paths is.
#[test]
fn directories_whose_outermost_create_is_thrown_away_are_made_again() {
    let mut desk = Desk::new();
    let ask = Ask::Lock {
        path: "/jobs/m".into(),
        role: Role::Exclusive,
        patience: Patience::Waits,
        until: None,
    };
    desk.core.ask(desk.now, Thread(1), ask);
    let enters = desk.sent();
    desk.answers(Err(ErrorCode::NO_NODE));
    desk.answers(Err(ErrorCode::NO_NODE));
    let makes = desk.sent();
    assert_eq!(makes, ["create jobs", "create m"]);
    desk.answers(Err(ErrorCode::THROTTLED));
    desk.answers(Err(ErrorCode::NO_NODE));
    assert_eq!(desk.sent(), enters);
    desk.answers(Err(ErrorCode::NO_NODE));
    desk.answers(Err(ErrorCode::NO_NODE));
    assert_eq!(desk.sent(), makes);
    assert!(desk.wakes().is_empty());
}
