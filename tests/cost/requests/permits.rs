//! The costs of a permit, and of its number.

use std::thread;

use crossbeam_channel::bounded;
use zklock::embedded::Server;
use zklock::{Client, Dialect, LockOptions};

use super::scene::{ENTER, Scene};
use super::tap::Tap;
use super::{LONG, SHORT};
use crate::support::fresh_path;
use crate::support::proxy::Proxy;
use crate::support::raw::op;
use crate::transport::wait_for_queue;

#[test]
fn the_number_of_a_permit_costs_two_round_trips_and_nothing_where_nobody_asks() {
    let scene = Scene::new("number");
    let path = format!("{}/permits", scene.path);
    let acquire = |client: &Client| client.semaphore(&path, 2).unwrap().acquire().unwrap();
    // The directories exist.
    let other = scene.connect();
    let kept = acquire(&other);
    kept.number().unwrap();
    scene.tap.take();
    let permit = acquire(&scene.client);
    // The place in the line is given up behind the caller's back.
    scene.tap.wait_for(op::DELETE);
    let look = vec![op::GET_DATA, op::GET_CHILDREN, op::GET_CHILDREN];
    let line = [&ENTER[..], &look].concat();
    // The last look is at the place in the line.
    let permit_and_place = [&ENTER[..], &[op::EXISTS]].concat();
    assert_eq!(
        scene.tap.take()[..3],
        [look.clone(), line, permit_and_place]
    );

    assert_eq!(permit.number(), Ok(1));
    assert_eq!(scene.tap.take()[..2], [look, vec![op::MULTI]]);
    assert_eq!(permit.number(), Ok(1));
    let again = scene.tap.take().concat();
    assert!(!again.contains(&op::MULTI), "{again:?}");
    assert!(!again.contains(&op::GET_CHILDREN), "{again:?}");
}

#[test]
fn a_semaphore_that_is_made_anew_each_time_looks_once_before_it_stands_in_line() {
    let scene = Scene::new("anew");
    let acquire = |permits| {
        scene.tap.take();
        let semaphore = scene.client.semaphore(&scene.path, permits).unwrap();
        let first = semaphore.acquire().map(|permit| permit.unlock().unwrap());
        (first, scene.tap.take().swap_remove(0))
    };
    let look = vec![op::GET_DATA, op::GET_CHILDREN, op::GET_CHILDREN];
    let line = [&ENTER[..], &look].concat();
    // The directories exist.
    acquire(2).0.unwrap();
    assert_eq!(acquire(2), (Ok(()), line.clone()));
    // Another number is looked at, and so is the first one after it.
    for permits in [3, 2] {
        assert_eq!(acquire(permits), (Ok(()), look.clone()), "{permits}");
        assert_eq!(acquire(permits), (Ok(()), line.clone()), "{permits}");
    }
}

/// The first client in the line has seen that there is room, and no other client takes it.
#[test]
fn who_tries_for_a_permit_or_speaks_kazoo_looks_no_more_once_it_is_the_first_in_the_line() {
    let numbers_and_permits = vec![op::GET_DATA, op::GET_CHILDREN, op::GET_CHILDREN];
    let all_in_one = vec![op::GET_DATA, op::GET_CHILDREN];
    let dialects = [
        (Dialect::Curator, numbers_and_permits),
        (Dialect::Kazoo, all_in_one),
    ];
    for (dialect, look) in dialects {
        let (server, path) = (Server::start().unwrap(), fresh_path("room"));
        let tap = Tap::start(server.hosts());
        let client = Client::builder(&tap.hosts).dialect(dialect);
        let permits = client.connect().unwrap().semaphore(&path, 3).unwrap();
        // The directories exist.
        permits.acquire().unwrap().unlock().unwrap();
        let line = [&ENTER[..], &look].concat();
        let waited = [line, [&ENTER[..], &[op::EXISTS]].concat()];
        let tried = [&[look][..], &waited].concat();

        tap.take();
        let first = permits.acquire().unwrap();
        assert_eq!(tap.take()[..2], waited, "{dialect:?}");
        first.unlock().unwrap();
        tap.take();
        let _second = permits.try_acquire().unwrap().unwrap();
        assert_eq!(tap.take()[..3], tried, "{dialect:?}");
    }
}

#[test]
fn a_permit_that_was_waited_for_is_proven_with_the_listing_that_shows_it_free() {
    let scene = Scene::with_timeout("permit", SHORT);
    let path = format!("{}/permits", scene.path);
    let permits = |client: &Client| client.semaphore(&path, 1).unwrap();
    let held = permits(&scene.connect()).acquire().unwrap();
    let (told, waits) = bounded(1);
    thread::scope(|scope| {
        scope.spawn(|| {
            let told = LockOptions::new().on_wait(|_| told.try_send(()).unwrap_or_default());
            drop(permits(&scene.client).acquire_with(told).unwrap().unwrap());
        });
        waits.recv().unwrap();
        thread::sleep(LONG);
        scene.tap.take();
        drop(held);
    });
    let sent = scene.tap.take();
    assert_eq!(sent[0], [op::GET_CHILDREN, op::MULTI], "{sent:?}");
}

/// Another server than the one that reported the turn may not know yet what the one ahead has left.
#[test]
fn who_has_waited_in_the_line_looks_behind_a_write_only_where_it_has_moved_meanwhile() {
    for moves in [false, true] {
        let (server, path) = (Server::start().unwrap(), fresh_path("line"));
        let network = Proxy::start(server.hosts());
        let [first, second] = [(); 2].map(|()| Client::connect(server.hosts()).unwrap());
        let third = Client::connect(&network.hosts()).unwrap();
        let permits = |client: &Client| client.semaphore(&path, 1).unwrap();
        let held = permits(&first).acquire().unwrap();
        let (told, waits) = bounded(1);
        thread::scope(|scope| {
            scope.spawn(|| drop(permits(&second).acquire().unwrap()));
            wait_for_queue(&first, &path, 2);
            scope.spawn(|| {
                let told = LockOptions::new().on_wait(|_| told.try_send(()).unwrap_or_default());
                drop(permits(&third).acquire_with(told).unwrap().unwrap());
            });
            waits.recv().unwrap();
            if moves {
                network.drop_next_reply_to(op::GET_DATA);
            }
            drop(held);
        });
        assert!(network.fired());
        assert_eq!(network.requests(op::SET_DATA), usize::from(moves));
    }
}
