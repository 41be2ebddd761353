//! The costs of taking a lock over from another process.

use zklock::Client;

use super::scene::Scene;
use super::tap::Tap;
use crate::support::raw::op;

#[test]
fn a_lock_is_taken_over_with_one_write() {
    let scene = Scene::new("taken-over");
    let guard = scene.client.mutex(&scene.path).unwrap().lock().unwrap();
    let handover = guard.hand_over().unwrap();
    let tap = Tap::start(scene.server.hosts());
    let (client, guard) = Client::builder(&tap.hosts).take_over(&handover).unwrap();
    let mark = vec![op::SET_DATA, op::GET_DATA, op::GET_EPHEMERALS];
    assert_eq!(tap.take(), [mark]);
    guard.unlock().unwrap();
    client.close().unwrap();
}
