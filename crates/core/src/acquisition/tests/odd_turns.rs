//! Turns that need an order of answers and events, or of attempts, that hardly ever comes.

use super::super::*;
use super::{Fake, ID, SECOND, SESSION, contest, mine, names};
use crate::attempt::Origin;
use crate::connection::is_sync;
use crate::dialect::{Dialect, Role};
use crate::overdue_holder::{Overdue, Rule};
use zklock_jute::{ErrorCode, Reply, Request, Stat};

const MINE: &str = "_c_6f9c1c9e-5a0b-8b57-9a3e-0123456789ab-lock-0000000002";
/// Recipes without an id give such names, in any directory.
const HEAD: &str = "lock-0000000001";

fn asks() -> (Contest, Patience) {
    let contest = Contest {
        dialect: Dialect::Curator,
        role: Role::Exclusive,
        permits: 0,
    };
    (contest, Patience::Waits)
}

/// Creates a contender with a node in this directory.
fn stands(dir: &str, desk: &Fake) -> Acquisition {
    let origin = Origin {
        owner: SESSION,
        czxid: 20,
    };
    let mine = OwnNode {
        name: MINE.into(),
        origin,
    };
    Acquisition::stand(asks(), &dir.into(), (mine, desk.stamp()))
}

/// Returns the answer to a create.
fn creates(request: &Request) -> Option<Answered> {
    let stat = Stat {
        czxid: mine().origin.czxid,
        ephemeral_owner: SESSION,
        ..Stat::default()
    };
    let created = Reply::Created {
        path: format!("/l/{}", mine().name),
        stat: Some(stat),
    };
    matches!(request, Request::Create { .. }).then_some(Ok(created))
}

/// Returns whether the request changes something.
fn presses(request: &Request) -> bool {
    matches!(request, Request::Delete { .. } | Request::SetData { .. })
}

/// Returns the answer of a server that has both nodes.
fn answers(request: &Request) -> Option<Answered> {
    let stat = Stat {
        ephemeral_owner: SESSION,
        czxid: 10,
        ..Stat::default()
    };
    Some(Ok(match request {
        Request::GetChildren { .. } => Reply::Children {
            names: [HEAD, MINE].iter().collect(),
            stat: None,
        },
        Request::GetData { .. } => Reply::Data {
            data: Data::default(),
            stat,
        },
        Request::Exists { .. } => Reply::Stat(stat),
        request if is_sync(request) => Reply::Nothing,
        _ => return None,
    }))
}

/// The event of a deletion comes before the answer to the request that has deleted the node.
#[test]
fn an_eviction_that_is_overtaken_by_the_grant_is_not_repeated_in_another_directory() {
    let mut desk = Fake::new();
    let rule = Rule {
        held_longer_than: Duration::ZERO,
        grace: Duration::ZERO,
    };
    let mut first = stands("/a", &desk);
    first.hurry_by(Some(Overdue::new(rule)), &[]);
    let evicts = |desk: &Fake| {
        desk.open
            .iter()
            .any(|(_, request)| matches!(request, Request::Delete { .. }))
    };
    while !evicts(&desk) {
        desk.now += SECOND;
        let asked = |request: &Request| match request {
            Request::SetData { .. } => answers(&Request::exists(HEAD)),
            request => answers(request),
        };
        assert!(desk.serves(&mut first, asked).is_none());
    }
    first.happened(HEAD, EventKind::Deleted);
    let reached = desk.serves(&mut first, answers);
    assert!(matches!(reached, Some(Reached::Held(..))), "{reached:?}");

    let mut second = stands("/b", &desk);
    second.hurry_by(first.hurried(), &[]);
    desk.open.clear();
    assert!(desk.serves(&mut second, answers).is_none());
    assert!(
        !desk.open.iter().any(|(_, request)| presses(request)),
        "{:?}",
        desk.open
    );
}

/// A thread learns of the new session after it has been refused something, and before it has noticed that.
#[test]
fn what_has_ended_does_not_begin_again_in_another_session() {
    let ends: [fn(&mut Acquisition, &mut Fake); 2] = [
        |it, desk| it.cancel(desk),
        |it, desk| {
            it.advance(desk);
            let (call, _) = desk.open.remove(0);
            let refused = Failure::Refused(ErrorCode::NO_AUTH);
            it.answered(call, Err(refused), desk);
        },
    ];
    for end in ends {
        let mut desk = Fake::new();
        let mut it = Acquisition::enter(asks(), (&"/a".into(), ID), None, Some(SESSION));
        end(&mut it, &mut desk);
        desk.session += 1;
        desk.open.clear();
        it.broke();
        it.connected(false, &mut desk);
        assert!(it.advance(&mut desk).is_some(), "{it:?}");
        assert!(desk.open.is_empty(), "{:?}", desk.open);
    }
}

/// The nearest node, which may not be read, is gone with the directory.
#[test]
fn a_directory_that_is_gone_is_no_refusal() {
    let mut desk = Fake::new();
    let mut it = stands("/a", &desk);
    let may_not_read = |request: &Request| match request {
        Request::GetData { path, .. } if path.ends_with(HEAD) => {
            Some(Err(Failure::Refused(ErrorCode::NO_AUTH)))
        }
        Request::GetChildren { watch: true, .. } => None,
        request => answers(request),
    };
    assert!(desk.serves(&mut it, may_not_read).is_none());
    let gone = |_: &Request| Some(Err(Failure::Refused(ErrorCode::NO_NODE)));
    let reached = desk.serves(&mut it, gone);
    assert!(matches!(reached, Some(Reached::Evicted(_))), "{reached:?}");
}

#[test]
fn who_is_told_of_a_deletion_before_the_answer_to_its_look_has_waited() {
    let mut desk = Fake::new();
    let mut it = stands("/a", &desk);
    let all_but_looks = |request: &Request| match request {
        Request::GetChildren { .. } => answers(request),
        _ => None,
    };
    assert!(desk.serves(&mut it, all_but_looks).is_none());
    it.happened(HEAD, EventKind::Deleted);
    let reached = desk.serves(&mut it, answers);
    assert!(matches!(reached, Some(Reached::Held(..))), "{reached:?}");
    assert!(it.has_waited());
}

/// The answers arrive together, and the connection breaks before the thread has read the first. The
/// simulation's seed 142540412222507 plays this.
#[test]
fn a_holder_that_is_gone_is_not_taken_for_our_own_node_while_the_connection_breaks() {
    for about_the_holder in [ErrorCode::NO_NODE, ErrorCode::NO_AUTH] {
        a_holder_goes_as_the_connection_breaks(about_the_holder);
    }
}

fn a_holder_goes_as_the_connection_breaks(about_the_holder: ErrorCode) {
    let mut desk = Fake::new();
    let mut it = Acquisition::enter(asks(), (&"/a".into(), "one"), None, Some(SESSION));
    let create = |request: &Request| match request {
        Request::Create { path, .. } => Some(Ok(Reply::Created {
            path: format!("{path}0000000002"),
            stat: None,
        })),
        Request::GetChildren { .. } => Some(Ok(Reply::Children {
            names: [HEAD, "_c_one-lock-0000000002"].iter().collect(),
            stat: None,
        })),
        _ => None,
    };
    assert!(desk.serves(&mut it, create).is_none());
    desk.connected = false;
    let asked = mem::take(&mut desk.open);
    assert_eq!(asked.len(), 2, "{asked:?}");
    for (call, request) in asked {
        let answered = match request {
            Request::GetData { path, .. } if path.ends_with(HEAD) => {
                Err(Failure::Refused(about_the_holder))
            }
            request => answers(&request).expect("an answer"),
        };
        it.answered(call, answered, &mut desk);
        assert!(it.advance(&mut desk).is_none(), "{it:?}");
    }
    // A node that may not be read is looked for in its directory.
    for (call, _) in mem::take(&mut desk.open) {
        it.answered(call, names(&["_c_one-lock-0000000002"]), &mut desk);
        assert!(it.advance(&mut desk).is_none(), "{it:?}");
    }
    // The client comes back to the same session, and nobody is ahead any more.
    desk.connected = true;
    it.broke();
    it.connected(true, &mut desk);
    let alone = |request: &Request| match request {
        Request::GetChildren { .. } => Some(Ok(Reply::Children {
            names: ["_c_one-lock-0000000002"].iter().collect(),
            stat: None,
        })),
        request => answers(request),
    };
    let reached = desk.serves(&mut it, alone);
    assert!(matches!(reached, Some(Reached::Held(..))), "{reached:?}");
}

/// The create may still be on its way to the leader, through the previous server.
#[test]
fn a_create_that_was_not_found_is_asked_for_again_by_another_name() {
    let mut desk = Fake::new();
    let mut it = Acquisition::enter(asks(), (&"/a".into(), "one"), None, Some(SESSION));
    let mut is_lost = false;
    let nothing = |request: &Request| {
        Some(match request {
            Request::Create { .. } if !mem::replace(&mut is_lost, true) => Err(Failure::Lost),
            Request::Create { .. } => return None,
            Request::GetChildren { .. } => Ok(Reply::Children {
                names: Names::default(),
                stat: None,
            }),
            _ => Ok(Reply::Nothing),
        })
    };
    assert!(desk.serves(&mut it, nothing).is_none());
    let asks_anew = |(_, request): &(CallId, Request)| match request {
        Request::Create { path, .. } => !path.contains("_c_one-"),
        _ => false,
    };
    assert!(desk.open.iter().any(asks_anew), "{:?}", desk.open);
    assert_eq!(it.left(), [Orphan::Prefix("_c_one-lock-".into())]);
}

/// A transaction in doubt may still be carried out under a node that is not known to be gone.
#[test]
fn who_may_have_left_its_last_node_there_lists_whatever_its_number_says() {
    for left in [false, true] {
        let mut wire = Fake::new();
        let before = OwnNode {
            name: format!("_c_{ID}-lock-0000000003"),
            origin: Origin {
                owner: SESSION,
                czxid: 38,
            },
        };
        let (asks, last) = (
            (contest(Role::Exclusive, 0), Patience::Waits),
            LastGrant::new(&before, None),
        );
        let mut it = Acquisition::enter(asks, (&"/l".into(), ID), last, Some(SESSION));
        assert!(it.advance(&mut wire).is_none());
        wire.is_deleting = left;
        let reached = wire.serves(&mut it, creates);
        assert_eq!(reached.is_none(), left, "{reached:?}");
    }
}

/// The answer to a create names the session that owns the node.
#[test]
fn an_answer_that_comes_through_another_session_tells_nothing_but_who_owns_a_new_node() {
    let mut wire = Fake::new();
    let mut it = Acquisition::enter(asks(), (&"/l".into(), ID), None, Some(SESSION));
    wire.has_another_session = true;
    assert!(wire.serves(&mut it, creates).is_none());
    assert_eq!(it.node(), Some(&*mine().name));
    let (asked, (call, list)) = (wire.sent.len(), wire.open.remove(0));
    assert_eq!(list, Request::list("/l"));
    it.answered(call, names(&[&mine().name]), &mut wire);
    assert!(it.advance(&mut wire).is_none(), "it has the lock");
    assert_eq!(wire.since(asked), [list], "it is asked again");
}

/// A contender that stands in several queues has them listed at once.
#[test]
fn a_queue_that_was_listed_is_listed_again_only_if_the_connection_broke_since() {
    for breaks in [false, true] {
        let mut desk = Fake::new();
        let mut it = stands("/a", &desk);
        it.provide_listing(Some([HEAD, MINE].iter().collect()));
        if breaks {
            it.broke();
            it.connected(true, &mut desk);
        }
        assert!(desk.serves(&mut it, answers).is_none());
        assert!(it.is_waiting());
        assert_eq!(desk.sent.contains(&Request::list("/a")), breaks);
        let nearest = it.blocked().map(|blocked| &*blocked.nearest);
        assert_eq!(nearest, Some(HEAD));
    }
}

/// A listing that somebody else has asked for shows holds and a semaphore, too.
#[test]
fn the_holds_and_the_semaphore_in_a_listing_are_looked_at_whoever_has_asked_for_it() {
    const HOLD: &str = "_c_401d401d-21a2-8a4c-9c2f-000000000009-lock-0000000001";
    for (other, looks) in [
        (
            HOLD,
            vec![
                Request::exists(&format!("/a/{MINE}")),
                Request::get(&format!("/a/{HOLD}")),
            ],
        ),
        (
            "leases",
            vec![
                Request::get("/a"),
                Request::list("/a/locks"),
                Request::list("/a/leases"),
            ],
        ),
    ] {
        let mut desk = Fake::new();
        let mut it = stands("/a", &desk);
        it.provide_listing(Some([other, MINE].iter().collect()));
        assert!(it.advance(&mut desk).is_none());
        assert_eq!(desk.sent, looks);
    }
}

/// A listing may come from before the create, if the first create was thrown away.
#[test]
fn a_permit_is_not_looked_for_in_a_listing_that_is_older_than_its_create() {
    let mut wire = Fake::new();
    let asks = (contest(Role::Permit, 3), Patience::Waits);
    let mut comer = Acquisition::enter(asks, (&"/l".into(), ID), None, Some(SESSION));
    assert!(comer.advance(&mut wire).is_none());
    let throttled = || Err(Failure::Refused(ErrorCode::THROTTLED).sorted());
    let created = Ok(Reply::Created {
        path: format!("/l/_c_{ID}-lease-0000000004"),
        stat: Some(Stat {
            czxid: 40,
            ephemeral_owner: SESSION,
            ..Stat::default()
        }),
    });
    // The first create and its listing, and the second ones.
    let all = [throttled(), names(&[]), created, throttled()];
    for (call, answered) in (0..).zip(all) {
        comer.answered(CallId(call), answered, &mut wire);
        assert!(comer.advance(&mut wire).is_none(), "after {call}");
    }
    let asked = wire.since(4);
    assert!(
        matches!(asked, [Request::GetChildren { watch: true, .. }]),
        "{asked:?}"
    );
}
