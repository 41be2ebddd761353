//! What threads and guards are told besides grants.

use super::*;

/// How long a try waits for what its client has left.
const PASSING: Duration = Duration::from_secs(1);

/// What happens to a client.
type End = fn(&mut Desk);

impl Desk {
    fn news(&mut self) -> Vec<(Ticket, Ahead)> {
        core::iter::from_fn(|| self.core.next_news()).collect()
    }

    fn notices(&mut self) -> Vec<Notice> {
        core::iter::from_fn(|| self.core.next_notice())
            .map(|(_, notice)| notice)
            .collect()
    }

    /// Creates a desk whose first thread waits behind two others, the nearest of which has this card.
    fn behind_two(card: Result<&str, ErrorCode>) -> (Self, Ticket) {
        let mut desk = Self::new();
        let ticket = desk.lock(1);
        desk.core.follow(desk.now, ticket);
        desk.sent();
        let mine = name(1, 2);
        desk.creates(&mine).lists(&[THEIRS, &other(1), &mine]);
        desk.sent();
        desk.finds_mine();
        desk.shows(card);
        (desk, ticket)
    }

    fn finds_mine(&mut self) {
        let stat = self.stat();
        self.answers(Ok(Reply::Stat(stat)));
    }

    fn shows(&mut self, card: Result<&str, ErrorCode>) {
        let stat = self.stat();
        let read = |card: &str| Reply::Data {
            data: card.as_bytes().to_vec().into(),
            stat,
        };
        self.answers(card.map(read));
    }
}

/// Returns the node of another client with this number.
fn other(number: u32) -> String {
    format!("{}{number}", &THEIRS[..THEIRS.len() - 1])
}

/// Returns how many are ahead, whether the nearest holds, and the data of its node.
fn short(ahead: &Ahead) -> (usize, bool, Option<String>) {
    let data = |nearest: &Nearest| String::from_utf8_lossy(&nearest.data).to_string();
    (ahead.count, ahead.holds, ahead.nearest.as_ref().map(data))
}

#[test]
fn a_waiter_is_told_once_of_each_place() {
    let (mut desk, ticket) = Desk::behind_two(Ok("them"));
    let news = desk.news();
    assert_eq!(news.len(), 1);
    assert_eq!(news[0].0, ticket);
    assert_eq!(short(&news[0].1), (2, false, Some("them".into())));
    let nearest = news[0].1.nearest.clone().expect("a node");
    assert_eq!(nearest.node, format!("{PATH}/{}", other(1)));
    assert_eq!(nearest.stat.ephemeral_owner, SESSION);
    // The watch on the node beyond is read, and says nothing new.
    desk.shows(Ok("first"));
    assert_eq!((desk.news(), desk.sent()), (Vec::new(), Vec::new()));
    // Nobody else was ahead, so the queue need not be listed.
    desk.goes(THEIRS);
    let told: Vec<_> = desk.news().iter().map(|(_, ahead)| short(ahead)).collect();
    assert_eq!(told, [(1, true, Some("them".into()))]);
    assert_eq!(desk.sent(), [""; 0]);
}

#[test]
fn a_node_that_may_not_be_read_is_told_of_without_its_data() {
    let (mut desk, _) = Desk::behind_two(Err(ErrorCode::NO_AUTH));
    assert_eq!(desk.news(), []);
    desk.shows(Err(ErrorCode::NO_AUTH));
    desk.sent();
    desk.lists(&[THEIRS, &other(1), &name(1, 2)]);
    let told: Vec<_> = desk.news().iter().map(|(_, ahead)| short(ahead)).collect();
    assert_eq!(told, [(2, false, Some(String::new()))]);
}

#[test]
fn who_asks_late_is_told_at_once_and_who_does_not_ask_is_told_nothing() {
    let (mut desk, ticket) = Desk::waiting();
    let second = desk.lock(2);
    assert_eq!(desk.news(), []);
    desk.core.follow(desk.now, ticket);
    desk.core.follow(desk.now, second);
    assert_eq!(desk.sent(), [""; 0]);
    let told: Vec<_> = desk.news().iter().map(|(_, ahead)| short(ahead)).collect();
    assert_eq!(told, [(1, true, Some(String::new())), (1, false, None)]);
    // The second now waits for a thread that holds.
    desk.goes(THEIRS);
    desk.granted();
    let told: Vec<_> = desk.news().iter().map(|(_, ahead)| short(ahead)).collect();
    assert_eq!(told, [(1, true, None)]);
}

#[test]
fn who_is_woken_is_told_no_more() {
    let (mut desk, _) = Desk::behind_two(Ok(""));
    // The shell is not quick enough to tell it.
    let second = desk.lock(2);
    desk.core.follow(desk.now, second);
    desk.core.cancel(desk.now, second);
    assert!(desk.news().iter().all(|(ticket, _)| *ticket != second));
}

#[test]
fn why_a_node_is_gone_is_asked_once() {
    let ends: [(End, Loss); 2] = [
        (
            |desk| {
                desk.answers(Err(ErrorCode::NO_NODE));
            },
            Loss::Evicted,
        ),
        (|desk| desk.core.broke(desk.now), Loss::SessionExpired),
    ];
    for (end, why) in ends {
        let (mut desk, grant) = Desk::held();
        let node = path::name(&grant.node).to_string();
        desk.goes(&node);
        assert_eq!(desk.notices(), [Notice::Lost(Loss::NodeGone)]);
        assert_eq!(desk.sent(), [format!("exists {node}")]);
        end(&mut desk);
        if why == Loss::SessionExpired {
            desk.core.expired(desk.now);
        }
        assert_eq!(desk.notices(), [Notice::Lost(why)]);
        desk.core.expired(desk.now);
        assert_eq!(desk.notices(), []);
        assert_eq!(desk.core.counts().losses, 1);
    }
}

#[test]
fn who_sleeps_too_long_finds_its_lock_not_confirmed_whatever_comes_later() {
    let (mut desk, grant) = Desk::held();
    desk.after(T);
    desk.core.broke(desk.now);
    desk.core.expired(desk.now);
    assert_eq!(desk.notices(), [Notice::Lost(Loss::NotConfirmed)]);
    let unlock = Ask::Unlock {
        guard: grant.guard,
        ops: Vec::new(),
    };
    let ticket = desk.core.ask(desk.now, Thread(1), unlock);
    assert_eq!(desk.wakes(), [(ticket, Outcome::Lost(Loss::NotConfirmed))]);
    let again = desk.core.ask(
        desk.now,
        Thread(1),
        Ask::Unlock {
            guard: grant.guard,
            ops: Vec::new(),
        },
    );
    assert_eq!(desk.wakes(), [(again, Outcome::Lost(Loss::GivenUp))]);
}

#[test]
fn the_end_wakes_all_and_wants_nothing() {
    let (mut desk, grant) = Desk::held();
    let second = desk.lock(2);
    desk.core.ends(desk.now, Loss::AuthFailed);
    desk.core.ends(desk.now, Loss::Closed);
    assert_eq!(desk.notices(), [Notice::Lost(Loss::AuthFailed)]);
    let over = Outcome::Over(Loss::AuthFailed);
    assert_eq!(desk.wakes(), [(second, over.clone())]);
    let third = desk.lock(3);
    assert_eq!(desk.wakes(), [(third, over)]);
    desk.core.release(desk.now, grant.guard);
    assert_eq!((desk.sent(), desk.core.next_tick()), (Vec::new(), None));
}

/// Creates a try that finds what an earlier call of its client has left, which is being looked for.
fn try_behind_a_leftover(mine: &str) -> (Desk, Ticket) {
    let mut desk = Desk::new();
    let first = desk.lock(1);
    desk.sent();
    desk.core.broke(desk.now);
    desk.core.cancel(desk.now, first);
    desk.wakes();
    desk.connect(SESSION);
    assert_eq!(desk.sent(), ["set _sync"]);
    let ask = Ask::Lock {
        path: PATH.into(),
        role: Role::Exclusive,
        patience: Patience::Tries,
        until: None,
    };
    let ticket = desk.core.ask(desk.now, Thread(2), ask);
    assert_eq!(desk.sent(), ["list"]);
    desk.answers(Err(ErrorCode::NO_NODE));
    assert_eq!(desk.sent(), ["list"]);
    desk.lists(&[mine]);
    assert_eq!(desk.sent(), [""; 0]);
    (desk, ticket)
}

#[test]
fn who_verifies_a_lost_lock_when_its_client_is_closed_is_told_why_it_was_lost() {
    let (mut desk, grant) = Desk::held();
    desk.core.broke(desk.now);
    let verify = Ask::Verify {
        guard: grant.guard,
        until: None,
    };
    let ticket = desk.core.ask(desk.now, Thread(1), verify);
    desk.after(T);
    desk.core.ends(desk.now, Loss::Closed);
    assert_eq!(desk.wakes(), [(ticket, Outcome::Lost(Loss::NotConfirmed))]);
}

#[test]
fn a_try_waits_until_what_its_client_has_left_is_gone() {
    let mine = name(1, 0);
    let (mut desk, ticket) = try_behind_a_leftover(&mine);
    desk.lists(&[&mine]);
    assert_eq!(desk.sent(), [format!("delete {mine}")]);
    desk.answers(Ok(Reply::Nothing));
    assert_eq!(desk.core.counts().leftovers, 1);
    assert_eq!(desk.sent(), ["set _sync".to_string(), "list".into()]);
    desk.answers(Err(ErrorCode::NO_NODE)).lists(&[]);
    let second = name(2, 1);
    desk.sent();
    desk.creates(&second).lists(&[&second]);
    assert_eq!(desk.granted().0, ticket);
}

#[test]
fn a_try_waits_for_what_its_client_has_left_for_a_second_at_most() {
    let mine = name(1, 0);
    let (mut desk, ticket) = try_behind_a_leftover(&mine);
    desk.after(PASSING);
    assert_eq!(desk.core.next_tick(), Some(desk.now));
    desk.core.tick(desk.now);
    assert_eq!(desk.sent(), ["set _sync".to_string(), "list".into()]);
    desk.lists(&[&mine]).answers(Err(ErrorCode::NO_NODE));
    assert_eq!(desk.wakes(), []);
    desk.lists(&[&mine]);
    assert_eq!(desk.wakes(), [(ticket, Outcome::GaveUp { taken: true })]);
}

#[test]
fn what_happens_is_counted() {
    let (mut desk, _) = Desk::waiting();
    desk.goes(THEIRS);
    desk.granted();
    desk.core.broke(desk.now);
    // A proof of the very moment at which a connection begins counts as one of this connection.
    desk.after(Duration::from_nanos(1));
    desk.connect(SESSION);
    desk.core.broke(desk.now);
    desk.core.expired(desk.now);
    let expected = Counts {
        grants: 1,
        waits: 1,
        losses: 1,
        suspicions: 1,
        reconnects: 1,
        expiries: 1,
        ..Counts::default()
    };
    assert_eq!(desk.core.counts(), expected);
}
