mod looks;
mod odd_turns;
mod reads;
mod under;

use alloc::sync::Arc;

use super::*;
use crate::attempt::Origin;
use crate::connection::is_sync;
use crate::dialect::{Dialect, Role};
use crate::lifetime::Lifetime;
use crate::overdue_holder::{Overdue, Rule};
use crate::proof::Next;
use zklock_jute::{CreateMode, ErrorCode, Reply, Request};

const T: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);
const SESSION: i64 = 7;
const ID: &str = "0d1f0bbd-21a2-8a4c-9c2f-000000000001";
const HOLDER: &str = "_c_0d1f0bbd-21a2-8a4c-9c2f-000000000009-lock-0000000003";

/// A client that records its requests.
struct Fake {
    now: Duration,
    session: i64,
    connected: bool,
    lifetime: Lifetime,
    sent: Vec<Request>,
    /// The requests that are not answered yet, for tests that answer by `serves`.
    open: Vec<(CallId, Request)>,
    unwatched: Vec<String>,
    /// The nodes that only the server had.
    diverged: Vec<String>,
    sees_to_creates: bool,
    is_deleting: bool,
    has_another_session: bool,
}

impl Fake {
    fn new() -> Self {
        let now = 100 * T;
        Self {
            now,
            session: SESSION,
            connected: true,
            lifetime: Lifetime::new(T, now, now),
            sent: Vec::new(),
            open: Vec::new(),
            unwatched: Vec::new(),
            diverged: Vec::new(),
            sees_to_creates: false,
            is_deleting: false,
            has_another_session: false,
        }
    }

    fn post(&mut self, request: Request) -> CallId {
        let call = CallId(self.sent.len() as u64);
        self.sent.push(request.clone());
        self.open.push((call, request));
        call
    }

    /// Advances until the acquisition has ended, or sends nothing more that is answered.
    fn serves(
        &mut self,
        it: &mut Acquisition,
        mut answers: impl FnMut(&Request) -> Option<Answered>,
    ) -> Option<Reached> {
        loop {
            if let Some(reached) = it.advance(self) {
                return Some(reached);
            }
            let mut open = self.open.iter().enumerate();
            let (at, answered) =
                open.find_map(|(at, (_, request))| Some((at, answers(request)?)))?;
            let (call, _) = self.open.remove(at);
            it.answered(call, answered, self);
        }
    }

    /// Returns the requests after the first `count`.
    fn since(&self, count: usize) -> &[Request] {
        &self.sent[count..]
    }
}

impl Wire for Fake {
    fn now(&self) -> Duration {
        self.now
    }

    fn session(&self) -> Option<i64> {
        Some(self.session)
    }

    fn is_connected(&self) -> bool {
        self.connected
    }

    fn transacts(&self) -> bool {
        true
    }

    fn stamp(&self) -> Stamp {
        self.lifetime.stamp(self.now)
    }

    fn next_for_a_grant(&self, proof: &GrantProof) -> Next {
        proof.next(&self.lifetime, self.now)
    }

    fn renews_at(&self, proof: &GrantProof) -> Duration {
        proof.renews_at(&self.lifetime, self.now)
    }

    fn fresh_id(&mut self) -> String {
        ID.into()
    }

    fn send(&mut self, _: &Arc<str>, request: Request) -> CallId {
        self.post(request)
    }

    fn create(&mut self, dir: &Arc<str>, prefix: &str) -> CallId {
        self.post(Request::Create {
            path: node_in(dir, prefix),
            data: Vec::new().into(),
            acl: Vec::new(),
            mode: CreateMode::EphemeralSequential,
            stat: true,
        })
    }

    fn parents(&self, _: &str) -> Option<Vec<Request>> {
        None
    }

    fn abandon(&mut self, _: CallId) -> bool {
        self.sees_to_creates
    }

    fn is_same_session(&self) -> bool {
        !self.has_another_session
    }

    fn is_deleting_in(&self, _: &str) -> bool {
        self.is_deleting
    }

    fn unwatch(&mut self, path: &str) {
        self.unwatched.push(path.into());
    }

    fn probable_time(&self) -> Duration {
        Duration::ZERO
    }

    fn tell(&mut self, note: Note<'_>) {
        if let Note::Diverged(node) = note {
            self.diverged.push(node.into());
        }
    }
}

fn contest(role: Role, permits: usize) -> Contest {
    Contest {
        dialect: Dialect::Curator,
        role,
        permits,
    }
}

fn mine() -> OwnNode {
    OwnNode {
        name: format!("_c_{ID}-lock-0000000004"),
        origin: Origin {
            owner: SESSION,
            czxid: 40,
        },
    }
}

fn names(all: &[&str]) -> Answered {
    Ok(Reply::Children {
        names: all.iter().collect(),
        stat: None,
    })
}

fn stat(czxid: i64, version: i32) -> Answered {
    Ok(Reply::Stat(Stat {
        czxid,
        version,
        ephemeral_owner: 9,
        ..Stat::default()
    }))
}

/// Creates a contender whose node stands behind a holder, with its watches set.
fn waiter(wire: &mut Fake, rule: Option<Rule>) -> Acquisition {
    let asks = (contest(Role::Exclusive, 0), Patience::Waits);
    let mut waiter = Acquisition::stand(asks, &"/l".into(), (mine(), wire.stamp()));
    waiter.hurry_by(rule.map(Overdue::new), &[]);
    assert!(waiter.advance(wire).is_none());
    let listing = names(&[HOLDER, &mine().name]);
    waiter.answered(CallId(0), listing, wire);
    assert!(waiter.advance(wire).is_none());
    for call in 1..3 {
        waiter.answered(CallId(call), stat(30, 0), wire);
        assert!(waiter.advance(wire).is_none());
    }
    assert!(waiter.is_waiting());
    waiter
}

/// A mutex or a writer keeps its proof young behind one other contender. Readers do not: many of them may wait for
/// that one.
#[test]
fn of_those_behind_a_writer_the_next_writer_stays_proven() {
    let name = |at: usize, role: &str| {
        format!("_c_0d1f0bbd-21a2-8a4c-9c2f-00000000000{at}-{role}000000000{at}")
    };
    let (write, read) = ("__WRIT__", "__READ__");
    let (kazoo, latch) = ("__lock__", "latch-");
    use Dialect::{Curator, Kazoo, LeaderLatch};
    for (dialect, role, token, ahead, stays) in [
        (Curator, Role::Write, write, vec![name(1, write)], true),
        (Curator, Role::Write, write, vec![name(1, read)], true),
        (
            Curator,
            Role::Write,
            write,
            vec![name(1, read), name(2, read)],
            false,
        ),
        (
            Curator,
            Role::Write,
            write,
            vec![name(1, write), name(2, write)],
            false,
        ),
        (Curator, Role::Read, read, vec![name(1, write)], false),
        (Kazoo, Role::Exclusive, kazoo, vec![name(1, kazoo)], true),
        (
            LeaderLatch,
            Role::Exclusive,
            latch,
            vec![name(1, latch)],
            true,
        ),
        (
            Kazoo,
            Role::Exclusive,
            kazoo,
            vec![name(1, kazoo), name(2, kazoo)],
            false,
        ),
    ] {
        let mut wire = Fake::new();
        let mine = OwnNode {
            name: name(4, token),
            ..mine()
        };
        let contest = Contest {
            dialect,
            ..contest(role, 0)
        };
        let asks = (contest, Patience::Waits);
        let stands = (mine.clone(), wire.stamp());
        let mut waiter = Acquisition::stand(asks, &"/l".into(), stands);
        let all: Vec<_> = ahead
            .iter()
            .chain([&mine.name])
            .map(String::as_str)
            .collect();
        let asked = |request: &Request| match request {
            Request::GetChildren { .. } => Some(names(&all)),
            Request::GetData { .. } | Request::Exists { .. } => Some(stat(30, 0)),
            _ => None,
        };
        assert!(wire.serves(&mut waiter, asked).is_none());
        assert!(waiter.is_waiting());
        wire.now += T / 8;
        assert!(waiter.advance(&mut wire).is_none());
        let proves = matches!(wire.open.last(), Some((_, Request::Multi(_))));
        assert_eq!(proves, stays, "{role:?} behind {ahead:?}");
    }
}

/// Lets time pass until the waiter sends something.
fn sends(waiter: &mut Acquisition, wire: &mut Fake) -> Vec<Request> {
    let before = wire.sent.len();
    for _ in 0..1_000 {
        assert!(waiter.advance(wire).is_none());
        if before < wire.sent.len() {
            return wire.since(before).to_vec();
        }
        let at = waiter.rests_until().expect("it has something to do");
        assert!(wire.now < at, "it does not spin");
        wire.now = at;
    }
    panic!("it never sends anything");
}

fn answers(waiter: &mut Acquisition, wire: &mut Fake, all: Vec<Answered>) {
    let first = wire.sent.len() - all.len();
    for (at, answered) in all.into_iter().enumerate() {
        waiter.answered(CallId((first + at) as u64), answered, wire);
    }
}

#[test]
fn the_next_one_in_line_is_granted_the_lock_by_the_event_however_long_it_has_waited() {
    let mut wire = Fake::new();
    let mut waiter = waiter(&mut wire, None);
    for _ in 0..40 {
        let sent = sends(&mut waiter, &mut wire);
        assert!(matches!(&sent[..], [Request::Multi(_), ..]), "{sent:?}");
        wire.lifetime.committed(wire.now, 0);
        wire.lifetime.answered(wire.now, wire.now);
        let there = |request: &Request| match request {
            Request::Multi(_) => Ok(Reply::Multi(vec![Ok(Reply::Checked)])),
            _ => stat(30, 0),
        };
        answers(&mut waiter, &mut wire, sent.iter().map(there).collect());
    }
    assert!(waiter.advance(&mut wire).is_none());
    let sent = wire.sent.len();
    waiter.happened(HOLDER, EventKind::Deleted);
    let reached = waiter.advance(&mut wire);
    assert!(matches!(reached, Some(Reached::Held(..))), "{reached:?}");
    assert_eq!(wire.sent.len(), sent);
}

/// The node was created after a reconnect, when nothing could support a grant yet.
#[test]
fn the_next_one_in_line_is_proven_as_soon_as_a_proof_can_support_a_grant() {
    let mut wire = Fake::new();
    wire.now += T;
    wire.lifetime.greeted(T, wire.now, wire.now);
    let provable_at = wire.now + T / 4;
    wire.now += T / 5;
    let mut waiter = waiter(&mut wire, None);
    let sent = sends(&mut waiter, &mut wire);
    assert!(matches!(&sent[..], [Request::Multi(_)]), "{sent:?}");
    assert_eq!(wire.now, provable_at);
}

/// As a guard does.
#[test]
fn the_next_one_in_line_asks_again_where_its_proof_is_not_answered() {
    let mut wire = Fake::new();
    let began = wire.now;
    let mut waiter = waiter(&mut wire, None);
    for asked in 1..=3 {
        let sent = sends(&mut waiter, &mut wire);
        assert!(matches!(&sent[..], [Request::Multi(_)]), "{sent:?}");
        assert_eq!(wire.now, began + T / 8 * asked);
    }
    // Once that is known to take long, it asks earlier.
    let confirmed = Ok(Reply::Multi(vec![Ok(Reply::Checked)]));
    let first = CallId(wire.sent.len() as u64 - 3);
    waiter.answered(first, confirmed, &mut wire);
    sends(&mut waiter, &mut wire);
    assert_eq!(wire.now, began + T / 8 * 3 + T / 12);
}

#[test]
fn an_overdue_holder_is_asked_again_if_an_answer_is_lost_and_evicted_as_it_was_seen() {
    let mut wire = Fake::new();
    let rule = Rule {
        held_longer_than: SECOND,
        grace: SECOND,
    };
    let mut waiter = waiter(&mut wire, Some(rule));
    let listing = || names(&[HOLDER, &mine().name]);
    // Looks at the head, which has this version, until it does something about that.
    let presses = |waiter: &mut Acquisition, wire: &mut Fake, version| loop {
        let sent = sends(waiter, wire);
        match &sent[..] {
            [Request::GetChildren { .. }] => answers(waiter, wire, vec![listing()]),
            [Request::Exists { .. }] => answers(waiter, wire, vec![stat(30, version)]),
            [sync, Request::Exists { .. }] if is_sync(sync) => {
                let synced = Err(Failure::Refused(ErrorCode::NO_NODE));
                answers(waiter, wire, vec![synced, stat(30, version)]);
            }
            _ => return sent,
        }
    };
    for _ in 0..2 {
        let asked = presses(&mut waiter, &mut wire, 5);
        assert!(
            matches!(&asked[..], [Request::SetData { version: 5, .. }]),
            "{asked:?}"
        );
        wire.now += rule.grace / 2;
        answers(&mut waiter, &mut wire, vec![Err(Failure::Lost)]);
    }
    sends(&mut waiter, &mut wire);
    let asked = wire.now;
    answers(&mut waiter, &mut wire, vec![stat(30, 6)]);
    let evicted = presses(&mut waiter, &mut wire, 6);
    assert!(asked + rule.grace <= wire.now, "evicted within its grace");
    assert!(
        matches!(&evicted[..], [Request::Delete { version: 6, .. }]),
        "{evicted:?}"
    );
    // Another node may have the name by then.
    answers(&mut waiter, &mut wire, vec![Err(Failure::Lost)]);
    assert_eq!(sends(&mut waiter, &mut wire), [Request::list("/l")]);
}

#[test]
fn a_refused_eviction_ends_the_wait_and_says_what_it_was_about() {
    let mut wire = Fake::new();
    let rule = Rule {
        held_longer_than: Duration::ZERO,
        grace: SECOND,
    };
    let mut waiter = waiter(&mut wire, Some(rule));
    for _ in 0..2 {
        sends(&mut waiter, &mut wire);
        answers(&mut waiter, &mut wire, vec![names(&[HOLDER])]);
        sends(&mut waiter, &mut wire);
        answers(&mut waiter, &mut wire, vec![stat(30, 0)]);
    }
    sends(&mut waiter, &mut wire);
    let synced = Err(Failure::Refused(ErrorCode::NO_NODE));
    answers(&mut waiter, &mut wire, vec![synced, stat(30, 0)]);
    sends(&mut waiter, &mut wire);
    let refused = Failure::Refused(ErrorCode::NO_AUTH);
    answers(&mut waiter, &mut wire, vec![Err(refused)]);
    match waiter.advance(&mut wire) {
        Some(Reached::Refused(Refused { failure, about })) => {
            assert_eq!(failure, refused);
            assert_eq!(about, About::Node(format!("/l/{HOLDER}")));
        }
        reached => panic!("{reached:?}"),
    }
    assert_eq!(waiter.orphans(), [Orphan::Node(mine().name)]);
}

#[test]
fn the_idle_semaphore_at_a_path_is_looked_at_after_its_queue() {
    for (line, is_in_the_way) in [
        (&[][..], false),
        (&["_c_0d1f0bbd-lock-0000000001"][..], true),
    ] {
        let mut wire = Fake::new();
        let asks = (contest(Role::Exclusive, 0), Patience::Waits);
        let mut comer = Acquisition::stand(asks, &"/l".into(), (mine(), wire.stamp()));
        assert!(comer.advance(&mut wire).is_none());
        comer.answered(CallId(0), names(&["leases", &mine().name]), &mut wire);
        assert!(comer.advance(&mut wire).is_none());
        let looks = [
            Request::get("/l"),
            Request::list("/l/locks"),
            Request::list("/l/leases"),
        ];
        assert_eq!(wire.since(1), looks);
        let number = Ok(Reply::Data {
            data: b"3".to_vec().into(),
            stat: Stat::default(),
        });
        answers(&mut comer, &mut wire, vec![number, names(line), names(&[])]);
        let reached = comer.advance(&mut wire);
        match is_in_the_way {
            true => assert!(matches!(reached, Some(Reached::Foreign(_))), "{reached:?}"),
            false => assert!(matches!(reached, Some(Reached::Held(..))), "{reached:?}"),
        }
        assert!(comer.is_beside_semaphore());
    }
}

#[test]
fn a_permit_lists_with_a_watch_and_counts_who_has_to_go() {
    let mut wire = Fake::new();
    let asks = (contest(Role::Permit, 1), Patience::Waits);
    let mut comer = Acquisition::enter(asks, (&"/s".into(), ID), None, Some(SESSION));
    assert!(comer.advance(&mut wire).is_none());
    let name = format!("_c_{ID}-lease-0000000002");
    let created = |stat| {
        Ok(Reply::Created {
            path: format!("/s/{name}"),
            stat,
        })
    };
    let ours = Stat {
        ephemeral_owner: SESSION,
        ..Stat::default()
    };
    let mut before = vec![created(Some(ours))];
    for others in [2, 1] {
        assert!(comer.advance(&mut wire).is_none());
        assert!(matches!(
            wire.sent.last(),
            Some(Request::GetChildren { watch: true, .. })
        ));
        before.push(names(&crowd(&name)[2 - others..]));
        answers(&mut comer, &mut wire, mem::take(&mut before));
        assert!(comer.advance(&mut wire).is_none());
        assert_eq!(comer.crowd(), Some(others));
        comer.happened("", EventKind::ChildrenChanged);
    }
}

#[test]
fn a_permit_keeps_the_listing_that_came_before_it_knew_its_node() {
    let mut wire = Fake::new();
    let asks = (contest(Role::Permit, 1), Patience::Waits);
    let mut comer = Acquisition::enter(asks, (&"/s".into(), ID), None, Some(SESSION));
    assert!(comer.advance(&mut wire).is_none());
    let name = format!("_c_{ID}-lease-0000000002");
    let created = Ok(Reply::Created {
        path: format!("/s/{name}"),
        stat: None,
    });
    let answered = vec![created, names(&crowd(&name))];
    answers(&mut comer, &mut wire, answered);
    assert!(comer.advance(&mut wire).is_none());
    let own = Request::get(&format!("/s/{name}")).and_watch();
    assert_eq!(wire.since(2), [own]);
    answers(
        &mut comer,
        &mut wire,
        vec![Ok(Reply::Stat(Stat {
            ephemeral_owner: SESSION,
            ..Stat::default()
        }))],
    );
    assert!(comer.advance(&mut wire).is_none());
    assert_eq!((wire.since(3), comer.crowd()), (&[][..], Some(2)));
}

/// Returns the permits of two others, and this one.
fn crowd(name: &str) -> [&str; 3] {
    [
        "_c_0d1f0bbd-21a2-8a4c-9c2f-00000000000a-lease-0000000000",
        "_c_0d1f0bbd-21a2-8a4c-9c2f-00000000000b-lease-0000000001",
        name,
    ]
}

#[test]
fn a_directory_that_is_not_to_be_made_says_nothing_of_the_lock() {
    let gone = || Err(Failure::Refused(ErrorCode::NO_NODE));
    for (patience, told) in [(Patience::Waits, &[2][..]), (Patience::Tries, &[1, 2])] {
        let mut wire = Fake::new();
        let asks = (contest(Role::Permit, 1), patience);
        let mut comer = Acquisition::enter(asks, (&"/s".into(), ID), None, Some(SESSION));
        for asked in told {
            assert!(comer.advance(&mut wire).is_none());
            answers(
                &mut comer,
                &mut wire,
                core::iter::repeat_n(gone(), *asked).collect(),
            );
        }
        let reached = comer.advance(&mut wire);
        assert!(matches!(reached, Some(Reached::Restart)), "{reached:?}");
    }
}

#[test]
fn whoever_gives_up_while_its_create_is_under_way_leaves_a_prefix_unless_the_client_sees_to_it() {
    for sees_to_creates in [true, false] {
        let mut wire = Fake::new();
        wire.sees_to_creates = sees_to_creates;
        let asks = (contest(Role::Exclusive, 0), Patience::Waits);
        let mut comer = Acquisition::enter(asks, (&"/l".into(), ID), None, Some(SESSION));
        assert!(comer.advance(&mut wire).is_none());
        comer.cancel(&mut wire);
        let reached = comer.advance(&mut wire);
        assert!(matches!(reached, Some(Reached::GaveUp)));
        assert!(!comer.is_taken());
        let left = comer.orphans();
        match sees_to_creates {
            true => assert_eq!(left, []),
            false => assert!(matches!(&left[..], [Orphan::Prefix(_)]), "{left:?}"),
        }
    }
}

#[test]
fn a_node_that_may_be_of_the_next_session_is_left_at_once() {
    let mut wire = Fake::new();
    let asks = (contest(Role::Exclusive, 0), Patience::Waits);
    let mut comer = Acquisition::enter(asks, (&"/l".into(), ID), None, Some(SESSION));
    assert!(comer.advance(&mut wire).is_none());
    answers(&mut comer, &mut wire, vec![Err(Failure::Lost); 2]);
    comer.broke();
    wire.session += 1;
    comer.connected(false, &mut wire);
    assert!(matches!(&comer.left()[..], [Orphan::Prefix(_)]));
    assert!(comer.orphans().is_empty());
}

/// Creates a contender behind a holder that has just asked for its watches: on its own node and the holder's.
fn behind_a_holder(wire: &mut Fake) -> Acquisition {
    let asks = (contest(Role::Exclusive, 0), Patience::Waits);
    let mut comer = Acquisition::stand(asks, &"/l".into(), (mine(), wire.stamp()));
    assert!(comer.advance(wire).is_none());
    comer.answered(CallId(0), names(&[HOLDER, &mine().name]), wire);
    assert!(comer.advance(wire).is_none());
    assert!(matches!(
        wire.since(1),
        [
            Request::GetData { watch: true, .. },
            Request::GetData { .. }
        ]
    ));
    comer
}

/// As one that was created in a transaction, which does not tell a node's owner.
#[test]
fn a_node_without_an_owner_is_looked_at_together_with_the_nearest_in_every_dialect() {
    for (dialect, token) in [
        (Dialect::Curator, "-lock-"),
        (Dialect::Kazoo, "__lock__"),
        (Dialect::LeaderLatch, "-latch-"),
    ] {
        let mut wire = Fake::new();
        let contest = Contest {
            dialect,
            ..contest(Role::Exclusive, 0)
        };
        let asks = (contest, Patience::Waits);
        let mut comer = Acquisition::enter(asks, (&"/l".into(), ID), None, Some(SESSION));
        assert!(comer.advance(&mut wire).is_none());
        let created = Ok(Reply::Created {
            path: format!("/l/{ID}{token}0000000004"),
            stat: None,
        });
        let holder = format!("a{token}0000000003");
        let all = names(&[&holder, &format!("{ID}{token}0000000004")]);
        for (call, answered) in (0..).zip([created, all]) {
            comer.answered(CallId(call), answered, &mut wire);
            assert!(comer.advance(&mut wire).is_none());
        }
        let looks = wire.since(2);
        assert!(
            matches!(looks, [Request::GetData { .. }, Request::GetData { .. }]),
            "{dialect:?}: {looks:?}"
        );
    }
}

#[test]
fn a_look_at_its_own_node_that_was_refused_in_passing_sets_its_watch_again() {
    let mut wire = Fake::new();
    let mut comer = behind_a_holder(&mut wire);
    let seen = Ok(Reply::Data {
        data: Data::default(),
        stat: Stat::default(),
    });
    answers(&mut comer, &mut wire, vec![Err(Failure::Lost), seen]);
    assert!(comer.advance(&mut wire).is_none());
    let again = wire.since(3);
    assert!(
        matches!(again, [Request::GetData { watch: true, .. }, ..]),
        "{again:?}"
    );
}

/// The server has not looked at it: nothing was created.
#[test]
fn a_create_that_a_server_has_thrown_away_is_sent_again_without_a_look() {
    let mut wire = Fake::new();
    let asks = (contest(Role::Exclusive, 0), Patience::Waits);
    let mut comer = Acquisition::enter(asks, (&"/l".into(), ID), None, Some(SESSION));
    assert!(comer.advance(&mut wire).is_none());
    let first = wire.since(0).to_vec();
    let throttled = Failure::Refused(ErrorCode::THROTTLED).sorted();
    comer.answered(CallId(0), Err(throttled), &mut wire);
    assert!(comer.advance(&mut wire).is_none());
    assert_eq!(wire.since(first.len()), first);
    comer.cancel(&mut wire);
}

/// Without READ on it, no check of it is ever confirmed.
#[test]
fn who_may_not_read_its_own_node_is_told_so_when_its_turn_comes() {
    let mut wire = Fake::new();
    let mut waiter = waiter(&mut wire, None);
    wire.now += T / 2;
    waiter.happened(HOLDER, EventKind::Deleted);
    let hidden = |request: &Request| match request {
        Request::Multi(_) => Some(Ok(Reply::Multi(vec![Err(ErrorCode::NO_AUTH)]))),
        _ => None,
    };
    match wire.serves(&mut waiter, hidden) {
        Some(Reached::Refused(Refused { failure, about })) => {
            assert_eq!(failure, Failure::Refused(ErrorCode::NO_AUTH));
            assert_eq!(about, About::Node(format!("/l/{}", mine().name)));
        }
        reached => panic!("{reached:?}"),
    }
    assert_eq!(waiter.orphans(), [Orphan::Node(mine().name)]);
}

#[test]
fn the_end_of_its_own_node_is_heard_while_it_sets_another_watch() {
    let mut wire = Fake::new();
    let mut comer = behind_a_holder(&mut wire);
    comer.happened(HOLDER, EventKind::Deleted);
    comer.happened(&mine().name, EventKind::Deleted);
    let blocked = Blocked {
        nearest: "another".into(),
        ..Blocked::default()
    };
    comer.step(Action::Watch(blocked, mine().name), &mut wire);
    assert_eq!(comer.events, [(mine().name, EventKind::Deleted)]);
}

/// The farther node was reported deleted; or it was not there to be watched, which a watch of the previous
/// connection may report first. Then a hold may have its place.
#[test]
fn a_queue_of_two_is_listed_again_only_if_the_farther_one_was_not_heard_to_go() {
    const NEXT: &str = "_c_0d1f0bbd-21a2-8a4c-9c2f-00000000000c-lock-0000000004";
    let name = "_c_0d1f0bbd-21a2-8a4c-9c2f-00000000000d-lock-0000000005";
    for (is_heard, told_before) in [(true, false), (false, false), (false, true)] {
        let mut wire = Fake::new();
        let asks = (contest(Role::Exclusive, 0), Patience::Waits);
        let me = OwnNode {
            name: name.into(),
            ..mine()
        };
        let mut comer = Acquisition::stand(asks, &"/l".into(), (me, wire.stamp()));
        assert!(comer.advance(&mut wire).is_none());
        comer.answered(CallId(0), names(&[HOLDER, NEXT, name]), &mut wire);
        assert!(comer.advance(&mut wire).is_none());
        let watched = wire.sent.len();
        assert_eq!(watched, 4, "the listing, and a look at three nodes");
        let data = || {
            Ok(Reply::Data {
                data: Data::default(),
                stat: Stat::default(),
            })
        };
        let gone = Err(Failure::Refused(ErrorCode::NO_NODE));
        let beyond = if is_heard { data() } else { gone };
        if told_before {
            comer.happened(HOLDER, EventKind::Deleted);
        }
        for (call, answered) in (1..).zip([stat(30, 0), data(), beyond]) {
            comer.answered(CallId(call), answered, &mut wire);
            assert!(comer.advance(&mut wire).is_none());
        }
        if is_heard {
            comer.happened(HOLDER, EventKind::Deleted);
            assert!(comer.advance(&mut wire).is_none());
        }
        let asked: Vec<_> = wire.since(watched).to_vec();
        assert_eq!(asked.contains(&Request::list("/l")), !is_heard, "{asked:?}");
    }
}

/// Servers do not tell a client of changes that it may not see any more.
#[test]
fn who_watches_a_directory_looks_again_now_and_then() {
    let of_a_permit = |request: &Request| match request {
        Request::GetChildren { .. } => Some(names(&["one", &mine().name])),
        _ => None,
    };
    let behind_a_stranger = |request: &Request| match request {
        Request::GetChildren { .. } => Some(names(&[HOLDER, &mine().name])),
        Request::Exists { .. } => Some(stat(30, 0)),
        Request::GetData { path, .. } if path.ends_with(HOLDER) => {
            Some(Err(Failure::Refused(ErrorCode::NO_AUTH)))
        }
        Request::GetData { .. } => Some(Ok(Reply::Data {
            data: Data::default(),
            stat: Stat::default(),
        })),
        // Whoever is next stays proven.
        Request::Multi(_) => Some(Ok(Reply::Multi(vec![Ok(Reply::Checked)]))),
        _ => None,
    };
    type Answers = fn(&Request) -> Option<Answered>;
    let table: [(Role, Answers, usize); 2] = [
        (Role::Permit, of_a_permit, 1),
        (Role::Exclusive, behind_a_stranger, 4),
    ];
    for (role, answers, requests) in table {
        let mut wire = Fake::new();
        let stands = (mine(), wire.stamp());
        let asks = (contest(role, 1), Patience::Waits);
        let mut waiter = Acquisition::stand(asks, &"/l".into(), stands);
        assert!(wire.serves(&mut waiter, answers).is_none());
        for _ in 0..3 {
            let (before, start) = (wire.sent.len(), wire.now);
            let lists = |request: &Request| matches!(request, Request::GetChildren { .. });
            while !wire.since(before).iter().any(lists) {
                wire.now = waiter.rests_until().expect("it looks again");
                assert!(wire.serves(&mut waiter, answers).is_none());
            }
            assert_eq!(wire.now, start + 15 * SECOND, "{role:?}");
            let looks = |request: &&Request| !matches!(request, Request::Multi(_));
            let looks = wire.since(before).iter().filter(looks).count();
            assert_eq!(looks, requests, "{role:?}");
        }
        let refused = |request: &Request| match request {
            Request::GetChildren { .. } => Some(Err(Failure::Refused(ErrorCode::NO_AUTH))),
            _ => None,
        };
        wire.now += 15 * SECOND;
        let reached = wire.serves(&mut waiter, refused);
        let Some(Reached::Refused(refused)) = reached else {
            panic!("{role:?}: {reached:?}");
        };
        assert_eq!(refused.failure, Failure::Refused(ErrorCode::NO_AUTH));
    }
}

/// A server whose data have diverged shows a node for ever that the others have deleted.
#[test]
fn a_server_that_shows_a_node_that_the_quorum_lacks_is_told_from_one_that_does_not() {
    let multi = |result| Ok(Reply::Multi(vec![result]));
    let (there, gone) = (multi(Ok(Reply::Checked)), multi(Err(ErrorCode::NO_NODE)));
    let (shown, deleted) = (stat(30, 0), Err(Failure::Refused(ErrorCode::NO_NODE)));
    let hidden = multi(Err(ErrorCode::NO_AUTH));
    for (check, look, has_diverged) in [
        (&gone, &shown, true),
        (&gone, &deleted, false),
        (&there, &shown, false),
        (&there, &deleted, false),
        (&hidden, &shown, false),
        (&Err(Failure::Lost), &shown, false),
        (&gone, &Err(Failure::Lost), false),
    ] {
        let mut wire = Fake::new();
        let mut reader = behind_a_writer(&mut wire);
        for pause in [60, 120, 240, 480, 900, 900] {
            let since = wire.now;
            let sent = sends(&mut reader, &mut wire);
            assert!(matches!(
                &sent[..],
                [Request::Multi(_), Request::Exists { watch: false, .. }]
            ));
            assert_eq!(wire.now, since + pause * SECOND);
            wire.diverged.clear();
            answers(&mut reader, &mut wire, vec![check.clone(), look.clone()]);
            let expected = has_diverged.then(|| format!("/l/{WRITER}"));
            assert_eq!(
                wire.diverged.first(),
                expected.as_ref(),
                "{check:?}, {look:?}"
            );
        }
    }
}

/// A writer waits for the nearest reader, then for the next one, and the readers end one after the other.
#[test]
fn who_asked_a_moment_ago_does_not_ask_about_the_next_node_ahead_at_once() {
    let mut wire = Fake::new();
    let mine = OwnNode {
        name: format!("_c_{ID}-__WRIT__0000000009"),
        ..mine()
    };
    let reader = |n: usize| format!("_c_0d1f0bbd-21a2-8a4c-9c2f-000000000009-__READ__000000000{n}");
    let asks = (contest(Role::Write, 0), Patience::Waits);
    let mut writer = Acquisition::stand(asks, &"/l".into(), (mine.clone(), wire.stamp()));
    let began = wire.now;
    for last in (3..9).rev() {
        let mut all: Vec<_> = (2..=last).map(reader).collect();
        all.push(mine.name.clone());
        let all: Vec<_> = all.iter().map(String::as_str).collect();
        let asked = |request: &Request| match request {
            Request::GetChildren { .. } => Some(names(&all)),
            Request::GetData { .. } | Request::Exists { .. } => Some(stat(30, 0)),
            Request::Multi(_) => Some(Ok(Reply::Multi(vec![Ok(Reply::Checked)]))),
            _ => None,
        };
        assert!(wire.serves(&mut writer, asked).is_none());
        wire.now += if last == 8 { T } else { SECOND / 2 };
        assert!(wire.serves(&mut writer, asked).is_none());
        writer.happened(&reader(last), EventKind::Deleted);
    }
    let proof = crate::proof::requests(true, &[node_in("/l", &mine.name)]);
    let is_doubt = |it: &&Request| matches!(it, Request::Multi(_)) && !proof.contains(it);
    assert_eq!(wire.sent.iter().filter(is_doubt).count(), 2);
    assert_eq!(wire.now, began + T + 5 * SECOND / 2);
}

/// Where there is no connection, nothing is asked, and nothing is scheduled that cannot be.
#[test]
fn a_node_ahead_is_asked_about_once_there_is_a_connection_again() {
    let mut wire = Fake::new();
    let mut reader = behind_a_writer(&mut wire);
    let (sent, _) = (wire.sent.len(), reader.rests_until());
    wire.now += T;
    wire.connected = false;
    assert!(reader.advance(&mut wire).is_none());
    assert_eq!((wire.sent.len(), reader.rests_until()), (sent, None));
    wire.connected = true;
    assert_eq!(sends(&mut reader, &mut wire).len(), 2);
}

const WRITER: &str = "_c_0d1f0bbd-21a2-8a4c-9c2f-000000000009-__WRIT__0000000003";

/// Creates a reader that waits for a writer, and so renews no proof.
fn behind_a_writer(wire: &mut Fake) -> Acquisition {
    let mine = OwnNode {
        name: format!("_c_{ID}-__READ__0000000004"),
        ..mine()
    };
    let asks = (contest(Role::Read, 0), Patience::Waits);
    let all = names(&[WRITER, &mine.name]);
    let mut reader = Acquisition::stand(asks, &"/l".into(), (mine, wire.stamp()));
    let asked = |request: &Request| match request {
        Request::GetChildren { .. } => Some(all.clone()),
        Request::GetData { .. } | Request::Exists { .. } => Some(stat(30, 0)),
        _ => None,
    };
    assert!(wire.serves(&mut reader, asked).is_none());
    assert!(reader.is_waiting());
    reader
}
