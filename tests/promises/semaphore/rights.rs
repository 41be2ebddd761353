//! Permits whose nodes, or whose directory, a client may not read.

use std::time::Duration;

use crossbeam_channel::RecvTimeoutError;
use zklock::embedded::Server;
use zklock::{Acl, Client, Error};

use crate::support::raw::{Raw, wait_for_children};
use crate::support::{aside, fresh_path};
use crate::transport::{Place, SOON, in_every_place};

in_every_place! {
    who_may_not_list_the_permits_any_more_is_told_so
}

/// Servers tell a client that may not read a node nothing of it, not even that it is deleted.
///
/// The embedded server does as ZooKeeper 3.8.0 does. On 3.9.3 the call fails at once with `Error::NoAuth`.
#[test]
fn who_may_not_read_a_permit_of_another_number_is_woken_all_the_same() {
    let server = Server::start().unwrap();
    let (hosts, path) = (server.hosts().to_owned(), fresh_path("unreadable"));
    let mut raw = Raw::connect(&hosts);
    for dir in ["locks", "leases"] {
        raw.create_all(&format!("{path}/{dir}"));
    }
    let owner = Client::builder(&hosts).auth("digest", "owner:password");
    let owner = owner.acl(Acl::creator_all()).connect().unwrap();
    let permit = owner.semaphore(&path, 2).unwrap().acquire().unwrap();
    let stranger = Client::connect(&hosts)
        .unwrap()
        .semaphore(&path, 3)
        .unwrap();
    let waiting = aside(move || stranger.try_acquire_for(4 * SOON).map(|got| got.is_some()));
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
