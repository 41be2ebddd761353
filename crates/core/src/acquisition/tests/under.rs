//! A permit, whose contender must be first in the line when its node is created.

use super::*;

const PLACE: &str = "/s/locks/place";
const MINE: &str = "_c_0d1f0bbd-21a2-8a4c-9c2f-000000000001-lease-0000000004";

/// Lets a contender ask for one of two permits, while the answers to looks at its place are these.
fn asks(
    wire: &mut Fake,
    mut place: impl FnMut() -> Option<Answered>,
) -> (Acquisition, Option<Reached>) {
    let contest = Contest {
        dialect: Dialect::Curator,
        role: Role::Permit,
        permits: 2,
    };
    let (asks, path) = ((contest, Patience::Waits), "/s/leases".into());
    let mut it = Acquisition::enter(asks, (&path, ID), None, Some(SESSION));
    it.note_under(PLACE.into());
    let stat = Stat {
        ephemeral_owner: SESSION,
        ..Stat::default()
    };
    let reached = wire.serves(&mut it, |request| match request {
        Request::Create { path, .. } => Some(Ok(Reply::Created {
            path: format!("{path}0000000004"),
            stat: Some(stat),
        })),
        Request::GetChildren { .. } => Some(Ok(Reply::Children {
            names: [MINE].into_iter().collect(),
            stat: None,
        })),
        Request::Exists { path, .. } if path == PLACE => place(),
        _ => None,
    });
    (it, reached)
}

#[test]
fn who_was_first_in_the_line_when_its_node_was_created_has_the_permit() {
    let mut wire = Fake::new();
    let (_, reached) = asks(&mut wire, || Some(Ok(Reply::Stat(Stat::default()))));
    assert!(matches!(reached, Some(Reached::Held(..))), "{reached:?}");
    // All requests leave together.
    assert_eq!(wire.sent.len(), 3);
}

#[test]
fn no_permit_is_granted_before_it_is_known_whether_the_place_stood() {
    let mut wire = Fake::new();
    let (mut it, reached) = asks(&mut wire, || None);
    assert!(reached.is_none());
    // The answer is lost with the connection, and asked for again.
    it.broke();
    it.connected(true, &mut wire);
    let (asked, there) = (wire.sent.len(), Some(Ok(Reply::Stat(Stat::default()))));
    let reached = wire.serves(&mut it, |request| match request {
        Request::Exists { path, .. } if path == PLACE => there.clone(),
        _ => None,
    });
    let again = Request::exists(PLACE);
    assert!(wire.since(asked).contains(&again), "{:?}", wire.sent);
    assert!(matches!(reached, Some(Reached::Held(..))), "{reached:?}");
}

#[test]
fn who_was_evicted_from_the_line_before_gets_no_permit_and_leaves_none() {
    let mut wire = Fake::new();
    let gone = || Some(Err(Failure::Refused(ErrorCode::NO_NODE)));
    let (mut it, reached) = asks(&mut wire, gone);
    let evicted = |reached| matches!(reached, Some(Reached::Evicted(node)) if node == PLACE);
    assert!(evicted(reached));
    assert_eq!(it.orphans(), [Orphan::Node(MINE.into())]);
}
