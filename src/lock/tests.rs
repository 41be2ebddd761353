//! A take-over in a client that ends meanwhile, and what a client remembers and watches.

// These tests need servers.
#[cfg(all(feature = "embedded", not(zklock_sim)))]
mod known_paths;
#[cfg(not(zklock_sim))]
mod watches;

use std::time::Duration;

use super::*;
use crate::error::LostReason;
use crate::session::Settings;
use crate::system::clock;
use crate::transport::handover::{Inherited, SessionKey};
use crate::transport::mute::Mute;
use crate::transport::status::Status;
use zklock_jute::Secret;

/// The thread that takes a lock over may be paused while its client connects.
#[test]
fn who_takes_over_in_a_session_that_has_expired_by_then_is_told_so() {
    let timeout = Duration::from_secs(8);
    let status = Arc::new(Status::new(timeout, true));
    let session = Session::new(
        status.clone(),
        Arc::new(Mute::default()),
        Settings::default(),
    );
    let locks = Locks::new(Arc::new(session.expect("a thread")));
    status.expired();
    status.closed();
    let key = SessionKey {
        id: 7,
        password: Secret(Vec::new()),
    };
    let handover = Handover {
        session: Inherited {
            key,
            timeout,
            heard_of: clock::since_boot(),
            is_kept: true,
        },
        clock: clock::name(),
        chroot: None,
        path: "/m".to_owned(),
        node: "/m/lock-0000000003".to_owned(),
        token: 3,
        version: 0,
        is_revoked: false,
        left: Vec::new(),
    };
    let taken = locks.take_over(&handover, &Limit::after(timeout));
    let why = taken.map(drop).expect_err("nothing is taken over");
    let expired = LostReason::SessionExpired;
    assert!(
        matches!(why, Error::Lost { why, .. } if why == expired),
        "{why}"
    );
}
