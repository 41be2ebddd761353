//! Looks at a queue without a node in it.

use super::*;

/// A hold that is over, by the clock of [`Fake`].
const HOLD: &str = "_c_401d401d-21a2-8a4c-9c2f-000000000008-lock-0000000002";

/// Looks at a queue, and answers by these functions. Returns how that ends, and the requests.
fn look(
    listing: Option<&[&str]>,
    serves: impl Fn(&Request) -> Answered,
) -> (Option<Reached>, bool, Vec<Request>) {
    let mut wire = Fake::new();
    let mut it = Acquisition::look(contest(Role::Exclusive, 0), &"/l".into());
    it.provide_listing(listing.map(|names| names.iter().collect()));
    let reached = wire.serves(&mut it, |request| Some(serves(request)));
    assert_eq!(it.orphans(), []);
    (reached, it.is_taken(), wire.sent)
}

fn refused(code: ErrorCode) -> Answered {
    Err(Failure::Refused(code))
}

fn is_free(reached: Option<Reached>) -> bool {
    matches!(reached, Some(Reached::Restart))
}

#[test]
fn a_look_ends_before_it_creates_a_node() {
    let (reached, taken, sent) = look(Some(&[]), |_| unreachable!("it has a listing"));
    assert!(is_free(reached) && !taken);
    assert_eq!(sent, []);
    let (reached, taken, sent) = look(None, |_| refused(ErrorCode::NO_NODE));
    assert!(is_free(reached) && !taken);
    assert_eq!(sent, [Request::list("/l")]);
}

#[test]
fn a_look_that_finds_somebody_looks_again_at_a_server_that_has_caught_up() {
    for there in [true, false] {
        let (reached, taken, sent) = look(Some(&[HOLDER]), |request| match request {
            Request::GetChildren { .. } if there => names(&[HOLDER]),
            Request::GetChildren { .. } => names(&[]),
            _ => refused(ErrorCode::NO_NODE),
        });
        match there {
            true => assert!(matches!(reached, Some(Reached::GaveUp)), "{reached:?}"),
            false => assert!(is_free(reached)),
        }
        assert!(taken);
        assert!(matches!(&sent[..], [sync, Request::GetChildren { .. }] if is_sync(sync)));
    }
}

#[test]
fn a_look_goes_past_a_hold_that_is_over_and_a_semaphore_that_is_idle() {
    let ends = |at: u64| format!(r#"{{"hold":{{"until_ms":{at}}}}}"#).into_bytes();
    for (hold, line, free) in [
        (ends(0), &[][..], true),
        (ends(9), &[], false),
        (ends(0), &["_c_0d1f0bbd-lock-0000000001"], false),
    ] {
        let data = |data: Vec<u8>| {
            let (data, stat) = (data.into(), Stat::default());
            Ok(Reply::Data { data, stat })
        };
        let (reached, ..) = look(Some(&[HOLD, "leases"]), |request| match request {
            Request::GetData { path, .. } if path == "/l" => data(b"3".to_vec()),
            Request::GetData { .. } => data(hold.clone()),
            Request::GetChildren { path, .. } if path == "/l/locks" => names(line),
            Request::GetChildren { path, .. } if path == "/l" => names(&[HOLD, "leases"]),
            Request::GetChildren { .. } => names(&[]),
            _ => refused(ErrorCode::NO_NODE),
        });
        assert_eq!(is_free(reached), free);
    }
}
