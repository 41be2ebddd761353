//! Turns, one by one, as a reader may want to see them. `tests/play` plays whole runs.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

use super::*;
use zklock_core::attempt::Patience;
use zklock_core::dialect::{Dialect, Role};
use zklock_jute::{ErrorCode, EventKind, Names, Reply, Request, Stat};

mod told;

const T: Duration = Duration::from_secs(20);
const START: Time = Duration::from_secs(1_000);
const SESSION: i64 = 7;
const PATH: &str = "/m";

/// A core with a connection, and the time.
struct Desk {
    core: Core,
    now: Time,
    zxid: i64,
}

impl Desk {
    fn new() -> Self {
        Self::with(Settings::new(Dialect::Curator, 0))
    }

    fn with(settings: Settings) -> Self {
        let core = Core::new(settings);
        let mut desk = Self {
            core,
            now: START,
            zxid: 100,
        };
        desk.connect(SESSION);
        desk
    }

    fn connect(&mut self, session: i64) {
        let greeting = Greeting {
            session,
            timeout: T,
            asked: self.now,
        };
        self.core.greets(self.now);
        self.core.connected(self.now, greeting);
    }

    fn lock(&mut self, thread: u64) -> Ticket {
        let ask = Ask::Lock {
            path: PATH.into(),
            role: Role::Exclusive,
            patience: Patience::Waits,
            until: None,
        };
        self.core.ask(self.now, Thread(thread), ask)
    }

    fn after(&mut self, time: Duration) -> &mut Self {
        self.now += time;
        self
    }

    /// Returns what leaves in this turn.
    fn sent(&mut self) -> Vec<String> {
        let requests = core::iter::from_fn(|| self.core.next_request());
        requests.map(|request| told(&request)).collect()
    }

    fn answers(&mut self, result: Result<Reply, ErrorCode>) -> &mut Self {
        self.zxid += 1;
        let zxid = self.zxid;
        self.core.answer(self.now, Answer { zxid, result });
        self
    }

    fn creates(&mut self, name: &str) -> &mut Self {
        let stat = Some(self.stat());
        let path = format!("{PATH}/{name}");
        self.answers(Ok(Reply::Created { path, stat }))
    }

    fn lists(&mut self, names: &[&str]) -> &mut Self {
        let names: Names = names.iter().copied().collect();
        self.answers(Ok(Reply::Children { names, stat: None }))
    }

    /// Answers two reads: both find their nodes.
    fn finds_both(&mut self) {
        let stat = self.stat();
        self.answers(Ok(Reply::Stat(stat)));
        let data = Vec::new().into();
        self.answers(Ok(Reply::Data { data, stat }));
    }

    fn goes(&mut self, name: &str) {
        let event = Event {
            kind: EventKind::Deleted,
            state: Event::SYNC_CONNECTED,
            path: format!("{PATH}/{name}"),
        };
        self.core.event(self.now, &event);
    }

    fn stat(&self) -> Stat {
        Stat {
            czxid: self.zxid,
            ephemeral_owner: SESSION,
            ..Stat::default()
        }
    }

    fn wakes(&mut self) -> Vec<(Ticket, Outcome)> {
        core::iter::from_fn(|| self.core.next_wake()).collect()
    }

    fn granted(&mut self) -> (Ticket, Grant) {
        match self.wakes().pop() {
            Some((ticket, Outcome::Held(grant))) => (ticket, grant),
            other => panic!("{other:?}"),
        }
    }

    /// Creates a desk whose first thread holds the lock, behind nobody.
    fn held() -> (Self, Grant) {
        Self::new().holds()
    }

    fn holds(self) -> (Self, Grant) {
        let mut desk = self;
        desk.lock(1);
        desk.sent();
        let mine = name(1, 0);
        desk.creates(&mine).lists(&[&mine]);
        let (_, grant) = desk.granted();
        (desk, grant)
    }

    /// Creates a desk whose first thread waits behind another client's node.
    fn waiting() -> (Self, Ticket) {
        let mut desk = Self::new();
        let ticket = desk.lock(1);
        desk.sent();
        let mine = name(1, 1);
        desk.creates(&mine).lists(&[THEIRS, &mine]);
        assert_eq!(
            desk.sent(),
            [format!("get {mine}, watch"), format!("get {THEIRS}, watch")]
        );
        desk.finds_both();
        (desk, ticket)
    }
}

const THEIRS: &str = "_c_6f9c1c9e-5a0b-8b57-9a3e-0123456789ab-lock-0000000000";

/// Returns the name of the node with this id and number.
fn name(id: u128, number: u32) -> String {
    format!("_c_{}-lock-{number:010}", ids::id_of(id))
}

fn told(request: &Request) -> String {
    let short = |path: &str| path.rsplit('/').next().unwrap_or_default().to_string();
    let watches = |watch: &bool| if *watch { ", watch" } else { "" };
    match request {
        Request::Create { path, .. } => format!("create {}", short(path)),
        Request::Delete { path, .. } => format!("delete {}", short(path)),
        Request::SetData { path, .. } => format!("set {}", short(path)),
        Request::Check { path, .. } => format!("check {}", short(path)),
        Request::Exists { path, watch } => format!("exists {}{}", short(path), watches(watch)),
        Request::GetData { path, .. } if path == PATH => "get the directory".to_string(),
        Request::GetData { path, watch } => format!("get {}{}", short(path), watches(watch)),
        Request::GetChildren { .. } => "list".to_string(),
        Request::Multi(ops) => {
            let ops = ops.iter().map(told);
            ops.collect::<Vec<_>>().join(" and ")
        }
        Request::Ping => "ping".to_string(),
        other => format!("{other:?}"),
    }
}

#[test]
fn a_free_lock_costs_one_round_trip() {
    let mut desk = Desk::new();
    let ticket = desk.lock(1);
    let mine = name(1, 0);
    let prefix = mine.trim_end_matches("0000000000");
    assert_eq!(desk.sent(), [format!("create {prefix}"), "list".into()]);
    desk.after(T / 100).creates(&mine).lists(&[&mine]);
    let (woken, grant) = desk.granted();
    assert_eq!((woken, &*grant.node), (ticket, &*format!("{PATH}/{mine}")));
    // The trust lasts as long as the proof that was sent with the create.
    assert_eq!(grant.trust.until, START + T / 2);
    assert_eq!(desk.sent(), [""; 0]);
}

#[test]
fn a_deletion_is_a_grant_in_the_same_turn() {
    let (mut desk, ticket) = Desk::waiting();
    assert_eq!(desk.wakes(), []);
    desk.after(T / 100).goes(THEIRS);
    let (woken, _) = desk.granted();
    assert_eq!(woken, ticket);
    assert_eq!(desk.sent(), [""; 0]);
}

#[test]
fn the_next_in_line_keeps_its_proof_young() {
    let (mut desk, _) = Desk::waiting();
    let mine = name(1, 1);
    for _ in 0..3 {
        let next = desk.core.next_tick().expect("a tick");
        assert_eq!(next, desk.now + T / 8);
        desk.now = next;
        desk.core.tick(next);
        assert_eq!(desk.sent(), [format!("check {mine}")]);
        desk.answers(Ok(Reply::Multi(vec![Ok(Reply::Checked)])));
    }
    desk.goes(THEIRS);
    desk.granted();
    assert_eq!(desk.sent(), [""; 0]);
}

#[test]
fn a_release_takes_the_create_of_the_next_thread_along() {
    let (mut desk, _) = Desk::waiting();
    let next = desk.lock(2);
    assert_eq!(desk.sent(), [""; 0]);
    desk.goes(THEIRS);
    let (_, grant) = desk.granted();
    desk.core.release(desk.now, grant.guard);
    let (mine, second) = (name(1, 1), name(2, 2));
    let prefix = second.trim_end_matches("0000000002");
    assert_eq!(
        desk.sent(),
        [format!("delete {mine} and create {prefix}"), "list".into()]
    );
    let created = Ok(Reply::Created {
        path: format!("{PATH}/{second}"),
        stat: None,
    });
    desk.answers(Ok(Reply::Multi(vec![Ok(Reply::Nothing), created])));
    desk.lists(&[&second]);
    assert_eq!(desk.sent(), [format!("get {second}, watch")]);
    let stat = desk.stat();
    desk.answers(Ok(Reply::Stat(stat)));
    assert_eq!(desk.granted().0, next);
}

#[test]
fn a_create_whose_answer_was_lost_is_looked_for() {
    let mut desk = Desk::new();
    let ticket = desk.lock(1);
    desk.sent();
    desk.core.broke(desk.now);
    desk.connect(SESSION);
    assert_eq!(desk.sent(), ["set _sync".to_string(), "list".into()]);
    let mine = name(1, 0);
    desk.answers(Err(ErrorCode::NO_NODE)).lists(&[&mine]);
    assert_eq!(desk.sent(), [format!("get {mine}, watch")]);
    let stat = desk.stat();
    desk.answers(Ok(Reply::Stat(stat)));
    assert_eq!(desk.sent(), ["list"]);
    desk.lists(&[&mine]);
    // Nothing has been proven on this connection.
    assert_eq!(desk.sent(), [format!("check {mine}")]);
    desk.answers(Ok(Reply::Multi(vec![Ok(Reply::Checked)])));
    assert_eq!(desk.granted().0, ticket);
}

#[test]
fn who_gives_up_a_create_that_is_on_its_way_has_its_node_deleted() {
    let mut desk = Desk::new();
    let ticket = desk.lock(1);
    desk.sent();
    desk.core.cancel(desk.now, ticket);
    assert_eq!(desk.wakes(), [(ticket, Outcome::GaveUp { taken: false })]);
    let mine = name(1, 0);
    desk.creates(&mine).lists(&[&mine]);
    assert_eq!(desk.sent(), [format!("delete {mine}")]);
    assert_eq!(desk.core.leftovers(), 1);
    desk.answers(Ok(Reply::Nothing));
    assert_eq!(desk.core.leftovers(), 0);
}

#[test]
fn a_guard_is_suspect_without_a_connection_and_lost_with_its_session() {
    let (mut desk, grant) = Desk::held();
    let trust = |desk: &mut Desk| match desk.core.next_notice() {
        Some((guard, Notice::Trust(trust))) if guard == grant.guard => trust,
        other => panic!("{other:?}"),
    };
    desk.after(T / 100);
    desk.core.broke(desk.now);
    let shaken = trust(&mut desk);
    assert_eq!(
        (shaken.suspect_from, shaken.until),
        (Time::ZERO, grant.trust.until)
    );
    desk.core.expired(desk.now);
    let lost = Notice::Lost(Loss::SessionExpired);
    assert_eq!(desk.core.next_notice(), Some((grant.guard, lost)));
    desk.core.release(desk.now, grant.guard);
    assert_eq!((desk.sent(), desk.core.leftovers()), (Vec::new(), 0));
}

#[test]
fn what_no_server_sends_breaks_nothing() {
    let (mut desk, _) = Desk::held();
    desk.answers(Ok(Reply::Nothing));
    assert!(desk.core.hangs_up(), "it was not asked");
    desk.core.broke(desk.now);
    desk.goes("");
    desk.core.pong(desk.now);
    desk.connect(SESSION);
    assert!(!desk.core.hangs_up());
}

mod holds;
mod writes;

/// Whatever arrives, in whatever order: a turn ends, nothing panics, and every ask is woken at most
/// once.
#[test]
fn no_input_is_too_much() {
    for seed in 0..3_000 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let mut settings = Settings::new(Dialect::Curator, 0);
        settings.notes = chance.bool();
        settings.local_handoffs = chance.u32(..3);
        let mut desk = Desk::with(settings);
        let (mut asked, mut guards) = (Vec::new(), Vec::new());
        for at in 0..60 {
            if at == 50 {
                desk.core.ends(desk.now, Loss::Closed);
            }
            any_input(&mut desk, &mut chance, &mut asked, &guards);
            assert!(desk.sent().len() < 100, "seed {seed}");
            for (ticket, outcome) in desk.wakes() {
                let at = asked.iter().position(|other| *other == ticket);
                asked.remove(at.expect("it was not woken before"));
                if let Outcome::Held(grant) = outcome {
                    guards.push(grant.guard);
                }
            }
            while desk.core.next_notice().is_some() {}
            while let Some((ticket, _)) = desk.core.next_news() {
                assert!(asked.contains(&ticket), "seed {seed}: it was not woken");
            }
        }
    }
}

fn any_input(
    desk: &mut Desk,
    chance: &mut fastrand::Rng,
    asked: &mut Vec<Ticket>,
    guards: &[GuardId],
) {
    let time = chance.choice([Time::ZERO, T / 1000, T / 8, T]).unwrap_or(T);
    desk.after(time);
    match chance.u8(..18) {
        0 => desk.core.broke(desk.now),
        1 => desk.connect(chance.choice([SESSION, 8]).unwrap_or(SESSION)),
        2 => {
            desk.core.broke(desk.now);
            desk.core.expired(desk.now);
        }
        3 => desk.core.pong(desk.now),
        4 => desk.core.tick(desk.now),
        5 | 6 => {
            let thread = chance.u64(..4);
            // A wake-up in the same turn is for a ticket that is known.
            let ticket = desk.lock(thread);
            asked.push(ticket);
            desk.core.follow(desk.now, ticket);
        }
        7 => {
            if let Some(ticket) = chance.choice(asked.clone()) {
                desk.core.cancel(desk.now, ticket);
            }
        }
        8 => {
            if let Some(guard) = chance.choice(guards.iter().copied()) {
                desk.core.release(desk.now, guard);
            }
        }
        9 => desk.goes(&any_name(chance)),
        10 | 11 => {
            if let Some(guard) = chance.choice(guards.iter().copied()) {
                let ops = (0..chance.usize(..2)).map(|_| writes::write()).collect();
                let ask = match chance.bool() {
                    true => Ask::Commit { guard, ops },
                    false => Ask::Unlock { guard, ops },
                };
                asked.push(desk.core.ask(desk.now, Thread(1), ask));
            }
        }
        _ => {
            let result = any_result(chance);
            desk.answers(result);
        }
    }
}

fn any_name(chance: &mut fastrand::Rng) -> String {
    match chance.u8(..4) {
        0 => THEIRS.to_string(),
        1 => String::new(),
        _ => name(chance.u128(1..4), chance.u32(..3)),
    }
}

fn any_result(chance: &mut fastrand::Rng) -> Result<Reply, ErrorCode> {
    let stat = Stat {
        czxid: chance.i64(..),
        ephemeral_owner: chance.choice([SESSION, 8, 0]).unwrap_or(0),
        ..Stat::default()
    };
    let path = format!("{PATH}/{}", any_name(chance));
    Ok(match chance.u8(..10) {
        0 => Reply::Nothing,
        1 | 2 => Reply::Created {
            path,
            stat: chance.bool().then_some(stat),
        },
        3 => Reply::Stat(stat),
        4 => Reply::Data {
            data: b"unlock".to_vec().into(),
            stat,
        },
        5 | 6 => {
            let names: Vec<_> = (0..chance.usize(..4)).map(|_| any_name(chance)).collect();
            let names = names.iter().map(String::as_str).collect();
            Reply::Children { names, stat: None }
        }
        7 => {
            let part = |_| match chance.u8(..3) {
                0 => Ok(Reply::Checked),
                1 => Err(ErrorCode(chance.i32(-130..0))),
                _ => Ok(Reply::Nothing),
            };
            Reply::Multi((0..2).map(part).collect())
        }
        _ => return Err(ErrorCode(chance.i32(-130..0))),
    })
}

#[test]
fn who_waits_for_a_release_is_told_when_the_session_is_over() {
    // A server says that it has expired, or gives another one.
    let ends: [fn(&mut Desk); 2] = [
        |desk| desk.core.expired(desk.now),
        |desk| desk.connect(SESSION + 1),
    ];
    for end in ends {
        let (mut desk, grant) = Desk::held();
        let unlock = Ask::Unlock {
            guard: grant.guard,
            ops: Vec::new(),
        };
        let ticket = desk.core.ask(desk.now, Thread(1), unlock);
        desk.core.broke(desk.now);
        assert_eq!(desk.wakes(), []);
        end(&mut desk);
        assert_eq!(
            desk.wakes(),
            [(ticket, Outcome::Lost(Loss::SessionExpired))]
        );
    }
}
