//! What a client remembers of a path that others have made anew since.

use std::time::Duration;

use zklock_embedded::Server;

use crate::{Client, Error, LockOptions};

const LIMIT: Duration = Duration::from_secs(5);

/// A client that has used a path, and another one that has used the path for something else since.
fn clients(server: &Server) -> [Client; 2] {
    [(); 2].map(|()| Client::connect(server.hosts()).expect("a session"))
}

#[test]
fn a_semaphore_at_a_path_that_has_become_a_mutex_is_refused_before_it_writes_there() {
    let server = Server::start().unwrap();
    let [client, other] = clients(&server);
    let semaphore = || client.semaphore("/p", 2).unwrap();
    semaphore().acquire().unwrap().unlock().unwrap();
    other.nodes().delete_all("/p").unwrap();
    let guard = other.mutex("/p").unwrap().lock().unwrap();
    let is_refused = || {
        let refused = semaphore().acquire();
        assert!(
            matches!(refused, Err(Error::ForeignContender { .. })),
            "{refused:?}"
        );
    };
    // The first one may still believe what was so.
    is_refused();
    other.nodes().delete_all("/p/locks").unwrap();
    let before = server.nodes();
    is_refused();
    assert_eq!(server.nodes(), before);
    drop(guard);
}

#[test]
fn a_mutex_that_tracks_is_refused_at_once_where_it_was_refused_before() {
    let server = Server::start().unwrap();
    let [client, other] = clients(&server);
    let lock = |limit| {
        let options = LockOptions::new().track_abandonment().timeout(limit);
        client.mutex("/p").unwrap().lock_with(options)
    };
    lock(LIMIT).unwrap().expect("it is free").unlock().unwrap();
    other.nodes().delete_all("/p").unwrap();
    other.mutex("/p").unwrap().lock().unwrap().unlock().unwrap();
    let is_refused = || {
        let refused = lock(LIMIT);
        assert!(
            matches!(refused, Err(Error::Unmarked { .. })),
            "{refused:?}"
        );
    };
    is_refused();
    // It does not wait for the lock to find out once more.
    let guard = other.mutex("/p").unwrap().lock().unwrap();
    is_refused();
    guard.unlock().unwrap();
}
