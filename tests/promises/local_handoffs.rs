//! The promises where the threads of one client pass a lock on among themselves, on the embedded
//! server and on a real one. A client on a handle cannot be told to do so.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam_channel::bounded;
use zklock::{Client, Error, FencingToken, GuardEvent, GuardState, LockOptions, MutexGuard};

use crate::support::proxy::Proxy;
use crate::support::raw::{Raw, assert_nothing_left, op};
use crate::support::{Room, eventually, fresh_path, within};
use crate::transport::{
    Place, SOON, Stoppable, expire_owner, on_every_server, wait_for, wait_for_line,
};

on_every_server! {
    a_row_of_local_hand_offs_is_as_long_as_allowed_and_has_one_token
    local_hand_offs_exclude_threads_and_clients
    another_client_finds_the_lock_taken_and_gets_it_after_the_row
    a_session_that_expires_ends_the_row
    a_node_that_is_deleted_ends_the_row
    a_wish_to_have_the_lock_ends_the_row
    a_broken_connection_sends_the_lock_back
    a_transaction_in_doubt_sends_the_lock_back
    the_guards_of_a_row_hear_of_a_loss_each
    a_waiter_that_leaves_or_wants_a_node_of_its_own_is_respected
    closing_the_client_ends_a_local_wait
}

fn a_row_of_local_hand_offs_is_as_long_as_allowed_and_has_one_token(place: Place) {
    for most in [0, 1, 3] {
        let scene = Scene::new(place, most);
        let tokens = scene.tokens_of_a_queue(9);
        let mut rows = vec![1];
        for pair in tokens.windows(2) {
            assert!(pair[0] <= pair[1], "{tokens:?}");
            match pair[0] == pair[1] {
                true => *rows.last_mut().unwrap() += 1,
                false => rows.push(1),
            }
        }
        // The very first thread also passed the lock on, as it held the lock while the others came.
        let longest = rows.iter().max().copied();
        assert_eq!(longest, Some(most + 1), "{rows:?}");
        assert_eq!(rows.len(), 10usize.div_ceil(most as usize + 1), "{rows:?}");
        assert_nothing_left(&scene.server.hosts(), &scene.path);
    }
}

fn local_hand_offs_exclude_threads_and_clients(place: Place) {
    let scene = Scene::new(place, 20);
    let (room, entered) = (Room::default(), AtomicUsize::new(0));
    let others: Vec<_> = (0..2).map(|_| scene.connect(5)).collect();
    thread::scope(|scope| {
        for client in others.iter().chain([&scene.client]) {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mutex = client.mutex(&scene.path).unwrap();
                    for _ in 0..50 {
                        let guard = mutex.lock().unwrap();
                        room.visit();
                        guard.check().unwrap();
                        entered.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        }
    });
    assert_eq!(entered.load(Ordering::SeqCst), 600);
    assert_nothing_left(&scene.server.hosts(), &scene.path);
}

fn another_client_finds_the_lock_taken_and_gets_it_after_the_row(place: Place) {
    let scene = Scene::new(place, 10);
    let other = scene.connect(0).mutex(&scene.path).unwrap();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mutex = scene.client.mutex(&scene.path).unwrap();
                while !over.load(Ordering::SeqCst) {
                    let _guard = mutex.lock().unwrap();
                    thread::yield_now();
                }
            });
        }
        // Between two rows the lock is free for a moment, so one try is not enough.
        let taken = within(SOON, || other.try_lock().unwrap().is_none());
        let guard = other.try_lock_for(SOON).unwrap();
        over.store(true, Ordering::SeqCst);
        assert!(taken);
        drop(guard.expect("the lock, between two rows"));
    });
}

fn a_session_that_expires_ends_the_row(place: Place) {
    let scene = Scene::new(place, 1000);
    let guard = scene.client.mutex(&scene.path).unwrap().lock().unwrap();
    let (first, next) = scene.hand_on_after(guard, |guard| {
        expire_owner(scene.server, guard.node());
        wait_for(guard, GuardEvent::Lost);
    });
    assert!(first < next, "{first} {next}");
    assert_nothing_left(&scene.server.hosts(), &scene.path);
}

fn a_node_that_is_deleted_ends_the_row(place: Place) {
    let scene = Scene::new(place, 1000);
    let guard = scene.client.mutex(&scene.path).unwrap().lock().unwrap();
    let (first, next) = scene.hand_on_after(guard, |guard| {
        Raw::connect(&scene.server.hosts())
            .delete(guard.node())
            .unwrap();
        wait_for(guard, GuardEvent::Lost);
    });
    assert!(first < next, "{first} {next}");
}

fn a_wish_to_have_the_lock_ends_the_row(place: Place) {
    let scene = Scene::new(place, 1000);
    let guard = scene.client.mutex(&scene.path).unwrap().lock().unwrap();
    let (first, next) = scene.hand_on_after(guard, |guard| {
        scene.client.contenders(&scene.path).unwrap()[0]
            .revoke()
            .unwrap();
        wait_for(guard, GuardEvent::RevokeRequested);
    });
    assert!(first < next, "{first} {next}");
}

fn a_broken_connection_sends_the_lock_back(place: Place) {
    let scene = Scene::new(place, 1000);
    let guard = scene.client.mutex(&scene.path).unwrap().lock().unwrap();
    let (first, next) = scene.hand_on_after(guard, |guard| {
        scene.network.refuse();
        wait_for(guard, GuardEvent::Suspect);
        assert_eq!(guard.state(), GuardState::Suspect);
        scene.network.accept();
    });
    assert!(first <= next, "{first} {next}");
}

/// The transaction may still be carried out, as long as the node that it checks exists.
fn a_transaction_in_doubt_sends_the_lock_back(place: Place) {
    let scene = Scene::new(place, 1000);
    let guard = scene.client.mutex(&scene.path).unwrap().lock().unwrap();
    let (first, next) = scene.hand_on_after(guard, |guard| {
        guard.verify().unwrap();
        scene.network.drop_next_reply_to(op::MULTI);
        let told = guard.transaction().commit();
        assert!(matches!(told, Err(Error::Unconfirmed { .. })), "{told:?}");
        eventually("it is held", || guard.verify().is_ok());
    });
    assert!(first < next, "{first} {next}");
}

fn the_guards_of_a_row_hear_of_a_loss_each(place: Place) {
    let scene = Scene::new(place, 1000);
    let guard = scene.client.mutex(&scene.path).unwrap().lock().unwrap();
    let node = guard.node().to_owned();
    thread::scope(|scope| {
        let next = scope.spawn(|| {
            let guard = scene.client.mutex(&scene.path).unwrap().lock().unwrap();
            assert_eq!(guard.node(), node);
            guard.check().unwrap();
            expire_owner(scene.server, &node);
            wait_for(&guard, GuardEvent::Lost);
            assert!(guard.unlock().unwrap_err().is_lost());
        });
        wait_for_line(&scene.client, 1);
        drop(guard);
        next.join().unwrap();
    });
}

fn a_waiter_that_leaves_or_wants_a_node_of_its_own_is_respected(place: Place) {
    let scene = Scene::new(place, 1000);
    let mutex = scene.client.mutex(&scene.path).unwrap();
    let guard = mutex.lock().unwrap();
    let first = guard.fencing_token();
    thread::scope(|scope| {
        let (cancel, cancelled) = bounded(1);
        let hurried = scope.spawn(|| {
            mutex
                .try_lock_for(Duration::from_millis(50))
                .unwrap()
                .is_none()
        });
        let stopped = scope.spawn(|| {
            let options = LockOptions::new().cancel(cancelled);
            mutex.lock_with(options).unwrap().is_none()
        });
        assert!(hurried.join().unwrap());
        cancel.send(()).unwrap();
        assert!(stopped.join().unwrap());
        let noted = scope.spawn(|| {
            let options = LockOptions::new().note("mine");
            mutex.lock_with(options).unwrap().unwrap().fencing_token()
        });
        wait_for_line(&scene.client, 1);
        drop(guard);
        assert!(first < noted.join().unwrap());
    });
    assert_nothing_left(&scene.server.hosts(), &scene.path);
}

fn closing_the_client_ends_a_local_wait(place: Place) {
    let scene = Scene::new(place, 1000);
    let mutex = scene.client.mutex(&scene.path).unwrap();
    let guard = mutex.lock().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| mutex.lock().map(drop));
        wait_for_line(&scene.client, 1);
        scene.client.close().unwrap();
        assert_eq!(waiter.join().unwrap(), Err(Error::Closed));
    });
    assert!(guard.check().is_err());
}

struct Scene {
    server: &'static dyn Stoppable,
    /// The proxy in front of the server.
    network: Proxy,
    client: Client,
    path: String,
}

impl Scene {
    fn new(place: Place, most: u32) -> Self {
        let server = place.shared();
        let network = Proxy::start(&server.hosts());
        let client = connect(&network.hosts(), most);
        let path = fresh_path("local");
        Self {
            server,
            network,
            client,
            path,
        }
    }

    fn connect(&self, most: u32) -> Client {
        connect(&self.network.hosts(), most)
    }

    /// Returns the tokens in the order of the grants: one thread holds while others come.
    fn tokens_of_a_queue(&self, threads: usize) -> Vec<FencingToken> {
        let mutex = self.client.mutex(&self.path).unwrap();
        let tokens = Mutex::new(Vec::new());
        let guard = mutex.lock().unwrap();
        tokens.lock().unwrap().push(guard.fencing_token());
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let guard = mutex.lock().unwrap();
                    tokens.lock().unwrap().push(guard.fencing_token());
                });
            }
            wait_for_line(&self.client, threads);
            drop(guard);
        });
        tokens.into_inner().unwrap()
    }

    /// Returns the tokens of a holder and of the thread that waits for it, with something
    /// that happens in between.
    fn hand_on_after(
        &self,
        guard: MutexGuard,
        happens: impl FnOnce(&MutexGuard),
    ) -> (FencingToken, FencingToken) {
        let first = guard.fencing_token();
        let mutex = self.client.mutex(&self.path).unwrap();
        thread::scope(|scope| {
            let next = scope.spawn(|| {
                let guard = mutex.lock().unwrap();
                guard.check().unwrap();
                guard.fencing_token()
            });
            wait_for_line(&self.client, 1);
            happens(&guard);
            drop(guard);
            (first, next.join().unwrap())
        })
    }
}

fn connect(hosts: &str, most: u32) -> Client {
    let client = Client::builder(hosts).local_handoffs(most);
    client.connect().unwrap()
}
