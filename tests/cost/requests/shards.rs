//! The costs of a change of the members of shards.

use std::ops::ControlFlow;
use std::thread;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use zklock::Client;

use super::scene::Scene;
use crate::support::eventually;
use crate::support::raw::op;

/// Works on the shards that the client gets, and reports each.
fn work(client: &Client, path: &str, stop: Receiver<()>, tell: Sender<bool>, mine: bool) {
    let shards = client.shards(path, 2).unwrap();
    let worked = shards.run_until(stop, move |_, term| {
        tell.send(mine).unwrap();
        while !term.is_over() {
            thread::yield_now();
        }
        ControlFlow::Continue(())
    });
    worked.unwrap();
}

#[test]
fn who_takes_over_a_shard_reads_the_names_of_the_members_and_no_data() {
    let scene = Scene::new("members");
    let other = scene.connect();
    let path = format!("{}/shards", scene.path);
    let (to, begun) = unbounded();
    let ((stop_other, other_stops), (stop, stops)) = (bounded(0), bounded(0));
    thread::scope(|scope| {
        let (scene, path, tell) = (&scene, &path, to.clone());
        scope.spawn(move || work(&other, path, other_stops, tell, false));
        // The client has both shards.
        (0..2).for_each(|_| assert_eq!(begun.recv(), Ok(false)));
        scope.spawn(move || work(&scene.client, path, stops, to, true));
        assert_eq!(begun.iter().find(|mine| *mine), Some(true));
        // The client looks once at each of its two locks. If that of the shard had to wait, one look is at its
        // holder, and the other may come late.
        let is_look = |op: &&i32| **op == op::GET_DATA;
        let looks = || scene.tap.log().concat().iter().filter(is_look).count();
        eventually("both of its locks are looked at", || looks() >= 2);
        scene.tap.take();
        drop(stop_other);
        assert_eq!(begun.iter().find(|mine| *mine), Some(true));
        let sent = scene.tap.take().concat();
        // These are the requests until it queues for the shard: then it may have to wait, and reads who holds.
        let asked = sent.split(|asked| *asked == op::CREATE2).next();
        let count = |kind| {
            asked
                .iter()
                .copied()
                .flatten()
                .filter(|op| **op == kind)
                .count()
        };
        assert!(count(op::GET_CHILDREN) <= 2, "{sent:?}");
        assert!(count(op::GET_DATA) <= 1, "{sent:?}");
        drop(stop);
    });
}
