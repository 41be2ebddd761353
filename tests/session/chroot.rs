//! A chroot that a client creates.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use zklock::embedded::Server;
use zklock::{Acl, Client, ClientBuilder, Error};

use crate::support::proxy::Proxy;
use crate::support::raw::{Raw, children, op};
use crate::support::zookeeper::ZooKeeper;
use crate::support::{fresh_path, timed};

fn builder(hosts: &str, chroot: &str) -> ClientBuilder {
    Client::builder(&format!("{hosts}{chroot}")).create_chroot(true)
}

fn is_created_by_whoever_comes_first(hosts: &str) {
    let chroot = format!("{}/a/b", fresh_path("chroot"));
    let begin = Barrier::new(8);
    let held = thread::scope(|threads| {
        let connect = || {
            begin.wait();
            let client = builder(hosts, &chroot).connect().unwrap();
            let guard = client.mutex("/lock").unwrap().try_lock().unwrap();
            begin.wait();
            guard.is_some()
        };
        let all: Vec<_> = (0..8).map(|_| threads.spawn(connect)).collect();
        let held = all.into_iter().map(|thread| thread.join().unwrap());
        held.filter(|held| *held).count()
    });
    // Clients that tried at the same moment may have turned each other away.
    assert!(held <= 1, "{held}");
    assert_eq!(children(hosts, &chroot), ["lock"]);
}

#[test]
fn a_chroot_is_created_by_whoever_comes_first() {
    let server = Server::start().unwrap();
    is_created_by_whoever_comes_first(server.hosts());
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn a_chroot_is_created_by_whoever_comes_first_on_zookeeper() {
    is_created_by_whoever_comes_first(&ZooKeeper::shared().hosts());
}

#[test]
fn a_chroot_that_exists_or_is_not_wanted_is_left_alone() {
    let server = Server::start().unwrap();
    let unwanted = Client::connect(&format!("{}/app", server.hosts())).unwrap();
    assert!(unwanted.mutex("/x").unwrap().try_lock().is_err());
    assert_eq!(server.nodes(), [""; 0]);
    Raw::connect(server.hosts()).create_all("/app/");
    for chroot in ["/app", ""] {
        let client = builder(server.hosts(), chroot).connect().unwrap();
        assert_eq!(server.nodes(), ["/app"], "{chroot}");
        drop(client);
    }
}

#[test]
fn a_chroot_is_protected_as_the_locks_are_and_may_not_be_created_everywhere() {
    let server = Server::start().unwrap();
    let owner = builder(server.hosts(), "/private").auth("digest", "jo:secret");
    let owner = owner.acl(Acl::creator_all()).connect().unwrap();
    drop(owner.mutex("/lock").unwrap().lock().unwrap());
    let other = Client::connect(&format!("{}/private", server.hosts())).unwrap();
    let refused = other.mutex("/other").unwrap().try_lock().unwrap_err();
    assert!(matches!(refused, Error::NoAuth { .. }), "{refused}");

    let refused = builder(server.hosts(), "/private/app")
        .connect()
        .unwrap_err();
    assert!(
        matches!(&refused, Error::NoAuth { path } if path == "/private/app"),
        "{refused}"
    );
}

/// Once, this took up to 17 s longer.
#[test]
fn connecting_ends_in_time_although_nothing_answers_from_the_creation_of_the_chroot_on() {
    let server = Server::start().unwrap();
    let limit = Duration::from_secs(2);
    for request in [op::CREATE, op::CLOSE, op::SET_DATA] {
        let proxy = Proxy::start(server.hosts());
        proxy.blackhole_at_next_request(request);
        let builder = builder(&proxy.hosts(), &fresh_path("chroot")).connect_timeout(limit);
        let (connected, took) = timed(|| builder.connect());
        assert!(took < limit * 7 / 4, "{request}: {took:?}");
        match connected {
            Err(error @ Error::ConnectTimeout { .. }) => {
                assert!(error.to_string().contains("within 2"), "{error}");
            }
            // The other session may end after all that is waited for.
            Ok(_) if request == op::CLOSE => {}
            other => panic!("{request}: {other:?}"),
        }
    }
}
