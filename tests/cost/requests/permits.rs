//! What a permit costs, and its number, and several locks.

use std::thread;

use crossbeam_channel::bounded;
use zklock::{Client, LockOptions};

use super::scene::Scene;
use super::{LONG, SHORT};
use crate::support::raw::op;

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
    let line = vec![op::CREATE2, op::GET_CHILDREN];
    let enter = [vec![op::CREATE2], vec![op::GET_CHILDREN]];
    let acquired = [vec![look.clone(), line, look.clone()], enter.to_vec()].concat();
    assert_eq!(scene.tap.take()[..5], acquired);

    assert_eq!(permit.number(), Ok(1));
    assert_eq!(scene.tap.take()[..2], [look, vec![op::MULTI]]);
    assert_eq!(permit.number(), Ok(1));
    let again = scene.tap.take().concat();
    assert!(!again.contains(&op::MULTI), "{again:?}");
    assert!(!again.contains(&op::GET_CHILDREN), "{again:?}");
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

/// What keeps the session proven in the first queue is good for the others, too.
#[test]
fn several_locks_that_were_waited_for_are_proven_once_however_many_they_are() {
    let scene = Scene::with_timeout("several", SHORT);
    let paths: Vec<_> = (0..5).map(|at| format!("{}-{at}", scene.path)).collect();
    let all = scene
        .client
        .multi_lock(paths.iter().map(String::as_str))
        .unwrap();
    all.lock().unwrap().unlock().unwrap();
    let other = scene.connect();
    let held = other.mutex(&paths[0]).unwrap().lock().unwrap();
    let (told, waits) = bounded(1);
    thread::scope(|scope| {
        scope.spawn(|| {
            let told = LockOptions::new().on_wait(|_| told.try_send(()).unwrap_or_default());
            let guard = all.lock_with(told).unwrap().unwrap();
            scene.tap.write_down(&[]);
            guard.unlock().unwrap();
        });
        waits.recv().unwrap();
        thread::sleep(LONG);
        scene.tap.take();
        drop(held);
    });
    let sent = scene.tap.take();
    let until = sent
        .iter()
        .position(Vec::is_empty)
        .expect("it has the locks");
    let proofs = sent[..until].concat();
    let proofs = proofs.iter().filter(|op| **op == op::MULTI).count();
    assert_eq!(proofs, 1, "{sent:?}");
}
