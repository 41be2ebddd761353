//! The threads of one client are served in the order in which they came.
//!
//! Such threads wait inside the client, where no event shows that. The kernel does: a thread that
//! sleeps has found its place in the line.

use std::sync::{Mutex, mpsc};
use std::thread;

use crate::support::task::{is_asleep, own_task};
use crate::support::{eventually, fresh_path};
use crate::transport::{Place, in_every_place};

const THREADS: usize = 20;

in_every_place! {
    the_threads_of_one_client_get_a_mutex_in_the_order_in_which_they_came
    the_threads_of_one_client_get_a_reentrant_mutex_in_the_order_in_which_they_came
}

fn the_threads_of_one_client_get_a_mutex_in_the_order_in_which_they_came(place: Place) {
    let client = place.connect(&place.shared().hosts());
    let mutex = client.mutex(&fresh_path("order")).unwrap();
    assert_in_order(|| mutex.lock().unwrap());
}

fn the_threads_of_one_client_get_a_reentrant_mutex_in_the_order_in_which_they_came(place: Place) {
    let client = place.connect(&place.shared().hosts());
    let mutex = client.reentrant_mutex(&fresh_path("order")).unwrap();
    assert_in_order(|| mutex.lock().unwrap());
}

#[track_caller]
fn assert_in_order<G>(lock: impl Fn() -> G + Sync) {
    let first = lock();
    let order = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for i in 0..THREADS {
            let (order, lock) = (&order, &lock);
            let (tell, told) = mpsc::channel();
            scope.spawn(move || {
                tell.send(own_task()).unwrap();
                let _guard = lock();
                order.lock().unwrap().push(i);
            });
            let task = told.recv().unwrap();
            eventually("the thread waits", || is_asleep(&task));
        }
        drop(first);
    });
    let order = order.into_inner().unwrap();
    assert_eq!(order, (0..THREADS).collect::<Vec<_>>());
}
