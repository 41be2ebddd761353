//! A follower that lags, as its clients see it.

use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use zklock::Client;
use zklock::embedded::{RequestKind, Server};

use super::support::raw::{EPHEMERAL, PERSISTENT, op};
use super::wire::{Wire, buffer, creation, look};

/// The kinds of events.
const DELETED: i32 = 2;
const CHILDREN_CHANGED: i32 = 4;

#[test]
fn a_lagging_server_hides_a_fresh_node_from_whoever_can_not_know_better() {
    let server = Server::start().unwrap();
    let mut reader = Wire::connect(&server);
    let mut writer = Wire::connect(&server);
    server.hide_next_create();
    writer.create("/a", EPHEMERAL).unwrap();
    assert!(writer.lists("/a"), "its creator has seen the reply");
    assert!(!reader.lists("/a"));
    assert!(reader.lists("/a"), "the server has caught up");
}

#[test]
fn a_sync_shows_what_a_lagging_server_hides() {
    let server = Server::start().unwrap();
    let mut client = Wire::connect(&server);
    server.hide_next_create();
    server.drop_next_reply_to(RequestKind::Create);
    client.send(op::CREATE, &creation("/a", EPHEMERAL));
    assert!(client.is_hung_up_on());
    let mut client = client.again(&server);
    client.call(op::SYNC, &buffer(b"/")).unwrap();
    assert!(client.lists("/a"));

    server.hide_next_create();
    server.drop_next_reply_to(RequestKind::Create);
    client.send(op::CREATE, &creation("/b", EPHEMERAL));
    assert!(client.is_hung_up_on());
    let mut client = client.again(&server);
    assert!(!client.lists("/b"), "nobody has told the client of it");
}

#[test]
fn who_lists_while_a_node_is_hidden_is_told_of_it_soon() {
    let server = Server::start().unwrap();
    let mut reader = Wire::connect(&server);
    let mut writer = Wire::connect(&server);
    server.hide_next_create();
    writer.create("/a", EPHEMERAL).unwrap();
    reader.call(op::GET_CHILDREN2, &look("/", true)).unwrap();
    // The event comes without any other write.
    assert_eq!(reader.next_event(), "/");
}

#[test]
fn a_lagging_server_shows_one_older_state_and_tells_what_it_missed_in_its_order() {
    let server = Server::start().unwrap();
    let mut reader = Wire::connect(&server);
    let mut writer = Wire::connect(&server);
    writer.create("/old", PERSISTENT).unwrap();
    reader.call(op::EXISTS, &look("/old", true)).unwrap();

    server.hide_next_create();
    writer.create("/hidden", EPHEMERAL).unwrap();
    writer.delete("/old").unwrap();
    writer.create("/late", PERSISTENT).unwrap();

    // A client that heard of the deletion now would take "/old" for gone and "/hidden" for
    // never created, which was true at no time.
    assert!(reader.sees("/old") && !reader.sees("/hidden") && !reader.sees("/late"));
    reader.call(op::GET_CHILDREN2, &look("/", true)).unwrap();
    assert_eq!(reader.next_news(), (CHILDREN_CHANGED, "/".to_owned()));
    assert_eq!(reader.next_news(), (DELETED, "/old".to_owned()));
    assert!(!reader.sees("/old") && reader.sees("/hidden") && reader.sees("/late"));
}

#[test]
fn who_is_told_of_a_change_sees_it() {
    let server = Server::start().unwrap();
    let mut reader = Wire::connect(&server);
    let mut writer = Wire::connect(&server);
    reader.call(op::GET_CHILDREN2, &look("/", true)).unwrap();
    server.hide_next_create();
    writer.create("/a", EPHEMERAL).unwrap();
    // The event comes by itself at some point: nobody lists the directory meanwhile.
    assert_eq!(reader.next_event(), "/");
    assert!(reader.lists("/a"));
}

#[test]
fn whoever_changes_something_sees_all_that_came_before() {
    let server = Server::start().unwrap();
    let mut reader = Wire::connect(&server);
    let mut writer = Wire::connect(&server);
    server.hide_next_create();
    writer.create("/a", EPHEMERAL).unwrap();
    reader.create("/b", PERSISTENT).unwrap();
    assert!(reader.lists("/a") && reader.lists("/b"));
}

#[test]
fn a_lock_goes_from_hand_to_hand_whatever_server_lags() {
    const CLIENTS: usize = 4;
    const ROUNDS: usize = 25;
    let server = Server::start().unwrap();
    let inside = Mutex::new(());
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let client = Client::connect(server.hosts()).unwrap();
                let mutex = client.mutex("/locks/lagging").unwrap();
                for _ in 0..ROUNDS {
                    server.hide_next_create();
                    let guard = mutex.try_lock_for(Duration::from_secs(60)).unwrap();
                    let guard = guard.expect("everybody gets his turn");
                    let alone = inside.try_lock().expect("nobody else holds it");
                    thread::yield_now();
                    drop(alone);
                    guard.unlock().unwrap();
                }
            });
        }
    });
}
