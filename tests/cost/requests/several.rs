//! The costs of several locks.

use std::thread;

use crossbeam_channel::bounded;
use zklock::{LockOptions, MultiLock};

use super::scene::{LET_GO, Scene};
use super::slow::{DELAY, ROUND_TRIP, Slow};
use super::{LONG, SHORT};
use crate::support::raw::op;
use crate::support::timed;

const COUNT: usize = 4;

/// Returns locks whose directories exist, and their paths.
fn several(scene: &Scene) -> (MultiLock, Vec<String>) {
    let paths: Vec<_> = (0..COUNT)
        .map(|at| format!("{}-{at}", scene.path))
        .collect();
    let all = scene
        .client
        .multi_lock(paths.iter().map(String::as_str))
        .unwrap();
    all.lock().unwrap().unlock().unwrap();
    (all, paths)
}

#[test]
fn several_free_locks_cost_three_round_trips_however_many_they_are_and_a_try_one_more() {
    let scene = Scene::new("several");
    let (all, _) = several(&scene);
    scene.tap.take();
    all.lock().unwrap().unlock().unwrap();
    let (look, list) = (vec![op::EXISTS; COUNT], vec![op::GET_CHILDREN; COUNT]);
    let looked = [look, list.clone()].concat();
    let taken = [
        vec![op::MULTI],
        looked,
        vec![op::MULTI],
        vec![op::DELETE; COUNT],
    ];
    assert_eq!(scene.tap.take(), taken);
    all.try_lock().unwrap().unwrap().unlock().unwrap();
    assert_eq!(scene.tap.take(), [vec![list], taken.to_vec()].concat());
}

#[test]
fn the_directories_of_several_new_locks_are_made_in_one_round_trip() {
    let slow = Slow::new("slow-several");
    slow.proxy.delay(DELAY);
    let mut tries = 0;
    // The refused create, the directories, and the lock as above take five round trips, and twenty
    // one by one.
    slow.within(ROUND_TRIP * 8, || {
        tries += 1;
        let paths: Vec<_> = (0..16)
            .map(|at| format!("{}-{tries}-{at}", slow.path))
            .collect();
        let all = slow.client.multi_lock(paths.iter().map(String::as_str));
        timed(|| drop(all.unwrap().lock().unwrap())).1
    });
}

/// The listing that shows which of them are free also shows whom to wait for. All its nodes are watched meanwhile.
#[test]
fn several_locks_one_of_which_is_taken_are_listed_once() {
    let scene = Scene::new("several");
    let (all, paths) = several(&scene);
    for taken in [0, COUNT - 1] {
        let holder = scene.connect();
        let held = holder.mutex(&paths[taken]).unwrap().lock().unwrap();
        let (told, waits) = bounded(1);
        scene.tap.take();
        thread::scope(|scope| {
            scope.spawn(|| {
                let told = LockOptions::new().on_wait(|_| told.send(()).unwrap());
                all.lock_with(told).unwrap().unwrap().unlock().unwrap();
            });
            waits.recv().unwrap();
            scene.tap.write_down(&LET_GO);
            drop(held);
        });
        let looked = [vec![op::EXISTS; COUNT], vec![op::GET_CHILDREN; COUNT]].concat();
        let watched = vec![op::GET_DATA; COUNT + 1];
        let waited = [vec![op::MULTI], looked, watched, LET_GO.to_vec()];
        let granted = [vec![op::MULTI], vec![op::DELETE; COUNT]];
        assert_eq!(scene.tap.take(), [&waited[..], &granted].concat());
    }
}

/// A holder of several locks releases them together.
#[test]
fn several_locks_of_one_holder_are_listed_together_once_the_first_has_been_waited_for() {
    let scene = Scene::new("several");
    let (all, paths) = several(&scene);
    let other = scene.connect();
    let first = other.mutex(&paths[0]).unwrap().lock().unwrap();
    let rest = other.multi_lock(paths[1..].iter().map(String::as_str));
    let rest = rest.unwrap().lock().unwrap();
    let (told, waits) = bounded(1);
    thread::scope(|scope| {
        scope.spawn(|| {
            let told = LockOptions::new().on_wait(|_| told.try_send(()).unwrap_or_default());
            all.lock_with(told).unwrap().unwrap().unlock().unwrap();
        });
        waits.recv().unwrap();
        scene.tap.take();
        rest.unlock().unwrap();
        drop(first);
    });
    let granted = [vec![op::MULTI], vec![op::DELETE; COUNT]];
    let passed = [&[vec![op::GET_CHILDREN; COUNT - 1]], &granted[..]].concat();
    assert_eq!(scene.tap.take(), passed);
}

/// The requests that keep the session proven in the first queue count for the other queues, too.
#[test]
fn several_locks_that_were_waited_for_are_proven_once_however_many_they_are() {
    let scene = Scene::with_timeout("several", SHORT);
    let (all, paths) = several(&scene);
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
