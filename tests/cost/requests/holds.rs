//! The costs of getting past a hold that is over.

use std::thread;
use std::time::Duration;

use zklock::LockOptions;
use zklock::diagnostics::Hold;

use super::SHORT;
use super::scene::{ENTER, LET_GO, Scene};
use crate::support::raw::op;

/// The length of a hold, so long that a session must be proven again meanwhile.
const LASTS: Duration = Duration::from_millis(2500);

/// Returns a scene with a hold of this length in its queue.
fn held(name: &str, timeout: Duration, lasts: Duration) -> Scene {
    let scene = Scene::with_timeout(name, timeout);
    let hold = Hold::new("a pause", None).lasting(lasts);
    scene.connect().pause(&scene.path, &hold).unwrap();
    scene
}

/// Returns the requests of a wait, with a mark where the waiter is told of the hold.
fn watched(scene: &Scene, wait: impl FnOnce(LockOptions<'_>)) -> Vec<Vec<i32>> {
    scene.tap.take();
    wait(LockOptions::new().on_wait(|_| scene.tap.write_down(&LET_GO)));
    scene.tap.take()
}

#[test]
fn who_waits_for_a_hold_removes_it_and_lists_in_one_write() {
    let scene = held("hold", SHORT, LASTS);
    let mutex = scene.client.mutex(&scene.path).unwrap();
    let sent = watched(&scene, |options| {
        let guard = mutex.lock_with(options).unwrap().unwrap();
        scene.tap.write_down(&LET_GO);
        guard.unlock().unwrap();
    });
    let told = sent.iter().position(|write| *write == LET_GO).unwrap();
    // Its node is confirmed meanwhile, like that of every contender that is next.
    let mut sent = sent[told..].to_vec();
    sent.retain(|write| *write != [op::MULTI]);
    let remove = vec![op::DELETE, op::GET_CHILDREN];
    let pass = [LET_GO.to_vec(), remove, LET_GO.to_vec()];
    assert_eq!(sent, [&pass[..], &[vec![op::DELETE]]].concat());
}

#[test]
fn a_writer_proves_its_session_in_the_same_write() {
    let scene = held("writer", SHORT, LASTS);
    let lock = scene.client.rwlock(&scene.path).unwrap();
    let sent = watched(&scene, |options| {
        lock.write_with(options).unwrap().unwrap().unlock().unwrap();
    });
    let told = sent.iter().position(|write| *write == LET_GO).unwrap();
    let remove = vec![op::DELETE, op::GET_CHILDREN, op::MULTI];
    let pass = [LET_GO.to_vec(), remove, vec![op::DELETE]];
    assert_eq!(sent[told..], pass);
}

#[test]
fn who_finds_a_hold_that_is_over_removes_it_and_lists_in_one_write() {
    let least = Duration::from_millis(1);
    let scene = held("over", Duration::from_secs(40), least);
    thread::sleep(10 * least);
    let mutex = scene.client.mutex(&scene.path).unwrap();
    let sent = watched(&scene, |options| {
        mutex.lock_with(options).unwrap().unwrap().unlock().unwrap();
    });
    let remove = vec![op::DELETE, op::GET_CHILDREN];
    let pass = [ENTER.to_vec(), vec![op::GET_DATA], remove, vec![op::DELETE]];
    assert_eq!(sent, pass);
}
