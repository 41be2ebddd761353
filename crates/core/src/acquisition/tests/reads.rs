//! The reads of the caller that are as new as the grant.

use super::*;

/// Creates a contender that reads the directory behind its listings. The answers to its create and its first listing
/// have arrived.
fn listed(wire: &mut Fake, all: &[&str]) -> Acquisition {
    let asks = (contest(Role::Exclusive, 0), Patience::Waits);
    let mut comer = Acquisition::enter(asks, (&"/l".into(), ID), None, Some(SESSION));
    comer.read_behind(vec![Request::get("/l")]);
    assert!(comer.advance(wire).is_none());
    assert_eq!(wire.since(1), [Request::list("/l"), Request::get("/l")]);
    let stat = Stat {
        ephemeral_owner: SESSION,
        ..Stat::default()
    };
    let created = Reply::Created {
        path: format!("/l/{}", mine().name),
        stat: Some(stat),
    };
    comer.answered(CallId(0), Ok(created), wire);
    assert!(comer.advance(wire).is_none());
    comer.answered(CallId(1), names(all), wire);
    comer
}

#[test]
fn a_grant_comes_with_what_was_read_behind_its_listing() {
    let lost = Err(Failure::Lost);
    let code = ErrorCode::NO_AUTH;
    for (answered, read) in [
        (stat(3, 1), Some(vec![stat(3, 1).map_err(|_| code)])),
        (Err(Failure::Refused(code)), Some(vec![Err(code)])),
        (Err(Failure::Refused(ErrorCode::SASL_REQUIRED)), None),
        (lost, None),
    ] {
        let mut wire = Fake::new();
        let mut comer = listed(&mut wire, &[&mine().name]);
        assert!(comer.advance(&mut wire).is_none(), "the read is on its way");
        comer.answered(CallId(2), answered, &mut wire);
        let reached = comer.advance(&mut wire);
        assert!(matches!(reached, Some(Reached::Held(..))), "{reached:?}");
        assert_eq!(comer.take_read(), read);
    }
}

#[test]
fn a_grant_does_not_wait_for_a_read_without_a_connection_or_at_the_limit() {
    for is_cancelled in [true, false] {
        let mut wire = Fake::new();
        let mut comer = listed(&mut wire, &[&mine().name]);
        assert!(comer.advance(&mut wire).is_none());
        match is_cancelled {
            true => comer.cancel(&mut wire),
            false => wire.connected = false,
        }
        let reached = comer.advance(&mut wire);
        assert!(matches!(reached, Some(Reached::Held(..))), "{reached:?}");
        assert_eq!(comer.take_read(), None);
    }
}

/// The holder may have written since.
#[test]
fn what_was_read_before_a_wait_is_forgotten_and_not_read_again() {
    let mut wire = Fake::new();
    let mut comer = listed(&mut wire, &[HOLDER, &mine().name]);
    let watched = |request: &Request| match request {
        Request::GetData { .. } => Some(stat(30, 0)),
        _ => None,
    };
    assert!(wire.serves(&mut comer, watched).is_none());
    assert!(comer.is_waiting());
    let sent = wire.sent.len();
    comer.happened(HOLDER, EventKind::DataChanged);
    assert!(comer.advance(&mut wire).is_none());
    assert_eq!(wire.since(sent)[0], Request::list("/l"));
    let reads = |request: &Request| *request == Request::get("/l");
    assert!(!wire.since(sent).iter().any(reads));
    assert_eq!(comer.take_read(), None);
}
