//! A call during which the directory of the permits goes, and the room that it has seen.

use super::*;
use crate::attempt::Origin;

fn node(name: &str) -> OwnNode {
    OwnNode {
        name: name.into(),
        origin: Origin { owner: 9, czxid: 1 },
    }
}

/// Creates a call that is first in the line, and asks for the first of two permits.
fn first(patience: Patience) -> Permit {
    let wish = Wish {
        patience,
        limited: true,
        agreed: true,
        count: 2,
    };
    let look = || {
        Event::Looked(Look {
            number: Some((b"2".to_vec(), 0)),
            absent: false,
            unready: false,
            own: Names::default(),
            out: Names::default(),
        })
    };
    let mut permit = Permit::new(Dialect::Curator, 2, wish);
    if permit.action() == Action::Look {
        permit.handle(look());
    }
    assert_eq!(permit.action(), Action::Line);
    permit.handle(Event::First(node("line")));
    permit.handle(look());
    assert_eq!(permit.action(), Action::Permit(true));
    permit
}

#[test]
fn whoever_finds_no_directory_looks_again_and_keeps_its_place() {
    for patience in [Patience::Waits, Patience::Tries] {
        let mut permit = first(patience);
        permit.handle(Event::NoNode);
        assert_eq!(permit.action(), Action::Look);
        assert_eq!(permit.line(), Some(&node("line")));
    }
}

#[test]
fn whoever_had_a_permit_in_the_directory_that_is_gone_begins_again() {
    let mut permit = first(Patience::Tries);
    permit.handle(Event::Permit(true));
    permit.handle(Event::NoNode);
    assert_eq!(permit.action(), Action::Inspect("line".into()));
    permit.handle(Event::IsThere);
    assert_eq!(permit.action(), Action::Line);
}

#[test]
fn the_first_in_the_line_knows_for_how_many_permits_there_is_room() {
    let mut permit = first(Patience::Waits);
    permit.handle(Event::NoNode);
    permit.handle(Event::Looked(Look {
        number: Some((b"2".to_vec(), 0)),
        absent: false,
        unready: false,
        own: Names::default(),
        out: ["another's"].into_iter().collect(),
    }));
    for has_room in [true, false] {
        assert_eq!(permit.action(), Action::Permit(has_room));
        permit.handle(Event::Permit(true));
    }
    assert_eq!(permit.action(), Action::Check);
}

#[test]
fn who_lets_others_pass_goes_on_while_there_may_be_as_many_permits_as_it_wants() {
    let permit = first(Patience::Tries);
    let look = |number: &[u8], out: &[&str]| Look {
        number: Some((number.to_vec(), 0)),
        absent: false,
        unready: false,
        own: Names::default(),
        out: out.iter().copied().collect(),
    };
    let taken = &["_c_0d1f0bbd-21a2-8a4c-9c2f-000000000001-lease-0000000004"][..];
    assert!(permit.may_have_room(&look(b"2", &[])));
    assert!(!permit.may_have_room(&look(b"2", taken)), "it wants two");
    // That is told at the end of the wait.
    assert!(permit.may_have_room(&look(b"3", taken)));
}

#[test]
fn those_who_wait_in_a_long_line_look_seldom() {
    for (ahead, write, expected) in [(1, 1, 1_000), (60, 100, 6_000)] {
        let write = Duration::from_millis(write);
        let next = next_look(ahead, write);
        assert_eq!(next, Duration::from_millis(expected));
        assert!(next <= passing(ahead, write));
    }
}
