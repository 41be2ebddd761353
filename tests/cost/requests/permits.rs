//! What a permit costs, and its number.

use zklock::Client;

use super::scene::Scene;
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
