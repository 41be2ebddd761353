//! Permits whose nodes, or whose directory, a client may not read.

use std::time::Duration;

use crossbeam_channel::RecvTimeoutError;
use zklock::{Acl, Client, Error};

use crate::support::raw::{Raw, wait_for_children};
use crate::support::{aside, fresh_path};
use crate::transport::{Place, SOON, in_every_place, on_every_server};

// A handle has no credentials of its own.
on_every_server! {
    who_may_not_read_a_permit_of_another_number_is_woken_all_the_same
}

in_every_place! {
    who_may_not_list_the_permits_any_more_is_told_so
}

/// Servers tell a client that may not read a node nothing of it, not even that it is deleted. Where they do not tell
/// that it is there either, the call cannot say who has the permit, and fails.
fn who_may_not_read_a_permit_of_another_number_is_woken_all_the_same(place: Place) {
    let (hosts, path) = (place.shared().hosts(), fresh_path("unreadable"));
    let mut raw = Raw::connect(&hosts);
    for dir in ["locks", "leases"] {
        raw.create_all(&format!("{path}/{dir}"));
    }
    let owner = Client::builder(&hosts).auth("digest", "owner:password");
    let owner = owner.acl(Acl::creator_all()).connect().unwrap();
    let permit = owner.semaphore(&path, 2).unwrap().acquire().unwrap();
    let node = permit.nodes()[0].clone();
    let stranger = place.connect(&hosts).semaphore(&path, 3).unwrap();
    let waiting = aside(move || stranger.try_acquire_for(4 * SOON).map(|got| got.is_some()));
    if raw.is_hidden(&node) {
        let told = waiting.recv_timeout(SOON);
        assert_eq!(told, Ok(Err(Error::NoAuth { path: node })));
        return;
    }
    wait_for_children(&hosts, &format!("{path}/locks"), 1);
    let early = waiting.recv_timeout(Duration::from_millis(300));
    assert_eq!(early, Err(RecvTimeoutError::Timeout));
    permit.unlock().unwrap();
    assert_eq!(waiting.recv_timeout(SOON), Ok(Ok(true)));
}

fn who_may_not_list_the_permits_any_more_is_told_so(place: Place) {
    let (hosts, path) = (place.shared().hosts(), fresh_path("no-longer"));
    let leases = format!("{path}/leases");
    let (holder, waiter) = (place.connect(&hosts), place.connect(&hosts));
    let permit = holder.semaphore(&path, 1).unwrap().acquire().unwrap();
    let theirs = waiter.semaphore(&path, 1).unwrap();
    let waiting = aside(move || theirs.acquire().map(drop));
    wait_for_children(&hosts, &leases, 2);
    let early = waiting.recv_timeout(Duration::from_millis(300));
    assert_eq!(early, Err(RecvTimeoutError::Timeout));
    Raw::connect(&hosts).forbid_reads(&leases).unwrap();
    permit.unlock().unwrap();
    let told = waiting.recv_timeout(3 * SOON).unwrap();
    assert_eq!(told, Err(Error::NoAuth { path: leases }));
}
