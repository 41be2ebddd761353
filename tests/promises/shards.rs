//! Shards: one process works on each, and they move when processes come and go.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use zklock::{Client, Contender, Error, LockOptions, Term};

use crate::support::raw::assert_nothing_left;
use crate::support::{aside, eventually, fresh_path};
use crate::transport::{
    Place, SOON, expire_owner, in_every_place, on_every_server, wait_for_queue,
};

in_every_place! {
    shards_are_divided_and_move_to_who_comes_and_from_who_goes
    a_break_of_one_shard_ends_them_all
    a_panic_in_one_shard_ends_them_all_and_propagates
    who_is_evicted_joins_again
    who_waits_among_the_members_without_being_one_gets_no_shard
}

// A handle has been given up by then.
on_every_server! {
    who_loses_its_session_joins_again
}

const COUNT: u32 = 12;

/// The work of the processes: which process works on each shard.
struct Field {
    /// The process that works on each shard; 0 is none.
    at_work: Vec<AtomicI64>,
    overlaps: AtomicU32,
    terms: AtomicU32,
}

impl Field {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            at_work: (0..COUNT).map(|_| AtomicI64::new(0)).collect(),
            overlaps: AtomicU32::new(0),
            terms: AtomicU32::new(0),
        })
    }

    fn work(&self, me: i64, shard: u32, term: &Term<'_>) -> ControlFlow<()> {
        let at_work = &self.at_work[shard as usize];
        if at_work.swap(me, Ordering::SeqCst) != 0 {
            self.overlaps.fetch_add(1, Ordering::SeqCst);
        }
        self.terms.fetch_add(1, Ordering::SeqCst);
        while !term.is_over() {
            thread::sleep(Duration::from_millis(5));
        }
        // The next process may be at work already if a server was told to end the session of this
        // one.
        let _ = at_work.compare_exchange(me, 0, Ordering::SeqCst, Ordering::SeqCst);
        ControlFlow::Continue(())
    }

    /// Returns how many shards each of these processes works on.
    fn numbers(&self, who: &[i64]) -> Vec<usize> {
        let of = |me: &i64| {
            let mine = |shard: &&AtomicI64| shard.load(Ordering::SeqCst) == *me;
            self.at_work.iter().filter(mine).count()
        };
        who.iter().map(of).collect()
    }
}

/// A process that works on its shards until it is told to stop.
struct Member {
    stop: Sender<()>,
    ended: Receiver<Result<(), Error>>,
}

fn member(client: &Client, path: &str, me: i64, field: &Arc<Field>) -> Member {
    let shards = client.shards(path, COUNT).unwrap();
    let ((stop, stopped), field) = (bounded(0), field.clone());
    let work = move |shard: u32, term: &Term<'_>| field.work(me, shard, term);
    let ended = aside(move || shards.run_until(stopped, work));
    Member { stop, ended }
}

impl Member {
    fn leave(self) {
        drop(self.stop);
        self.ended.recv_timeout(SOON).expect("it ends").unwrap();
    }
}

fn shards_are_divided_and_move_to_who_comes_and_from_who_goes(place: Place) {
    let (hosts, path) = (place.shared().hosts(), fresh_path("shards"));
    let clients = [(); 3].map(|()| place.connect(&hosts));
    let field = Field::new();
    let first = member(&clients[0], &path, 1, &field);
    eventually("one has all", || field.numbers(&[1]) == [12]);
    let second = member(&clients[1], &path, 2, &field);
    eventually("two share", || field.numbers(&[1, 2]) == [6, 6]);
    let third = member(&clients[2], &path, 3, &field);
    eventually("three share", || field.numbers(&[1, 2, 3]) == [4, 4, 4]);
    let shards = clients[0].shards(&path, COUNT).unwrap();
    assert_eq!(shards.members().unwrap().len(), 3);
    second.leave();
    eventually("two share again", || field.numbers(&[1, 3]) == [6, 6]);
    first.leave();
    third.leave();
    assert_eq!(field.overlaps.load(Ordering::SeqCst), 0);
    let places = (0..COUNT).map(|shard| shard.to_string());
    for place_of in places.chain(["members".to_owned()]) {
        assert_nothing_left(&hosts, &format!("{path}/{place_of}"));
    }
}

fn a_break_of_one_shard_ends_them_all(place: Place) {
    let (hosts, path) = (place.shared().hosts(), fresh_path("shards"));
    let client = place.connect(&hosts);
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let ended = {
        let (seen, shards) = (seen.clone(), client.shards(&path, 3).unwrap());
        aside(move || {
            shards.run(move |shard, term| {
                seen.lock().unwrap().insert(shard);
                while !term.is_over() && seen.lock().unwrap().len() < 3 {
                    thread::sleep(Duration::from_millis(5));
                }
                match shard {
                    1 => ControlFlow::Break(()),
                    _ => ControlFlow::Continue(()),
                }
            })
        })
    };
    ended.recv_timeout(SOON).expect("it ends").unwrap();
    assert!(
        client
            .shards(&path, 3)
            .unwrap()
            .members()
            .unwrap()
            .is_empty()
    );
}

fn a_panic_in_one_shard_ends_them_all_and_propagates(place: Place) {
    let (hosts, path) = (place.shared().hosts(), fresh_path("shards"));
    let client = place.connect(&hosts);
    let shards = client.shards(&path, 2).unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        shards.run(|shard, term| {
            assert_ne!(shard, 1, "at work");
            while !term.is_over() {
                thread::sleep(Duration::from_millis(5));
            }
            ControlFlow::Continue(())
        })
    }));
    assert!(panicked.is_err());
    for shard in ["0", "1", "members"] {
        assert_nothing_left(&hosts, &format!("{path}/{shard}"));
    }
}

fn who_loses_its_session_joins_again(place: Place) {
    let (server, path) = (place.shared(), fresh_path("shards"));
    let clients = [(); 2].map(|()| place.connect(&server.hosts()));
    let field = Field::new();
    let first = member(&clients[0], &path, 1, &field);
    let second = member(&clients[1], &path, 2, &field);
    eventually("two share", || field.numbers(&[1, 2]) == [6, 6]);
    let shards = clients[0].shards(&path, COUNT).unwrap();
    let before = shards.members().unwrap();
    expire_owner(server, before[0].node());
    eventually("both are members, one of them anew", || {
        let members = shards.members().unwrap();
        members.len() == 2 && members[1].token() > before[1].token()
    });
    eventually("two share again", || field.numbers(&[1, 2]) == [6, 6]);
    first.leave();
    second.leave();
}

/// A guard gets a watch only after some time, so it hears of this late.
fn who_is_evicted_joins_again(place: Place) {
    let (hosts, path) = (place.shared().hosts(), fresh_path("shards"));
    let clients = [(); 2].map(|()| place.connect(&hosts));
    let field = Field::new();
    let shards = clients[1].shards(&path, COUNT).unwrap();
    let only = member(&clients[0], &path, 1, &field);
    let mut last = None;
    for _ in 0..3 {
        eventually("it is a member anew", || {
            let members = shards.members().unwrap();
            let is_new = |one: &&Contender| last.is_none_or(|last| last < one.token());
            let Some(one) = members.iter().find(is_new) else {
                return false;
            };
            one.evict().unwrap();
            last = Some(one.token());
            true
        });
    }
    eventually("it is a member", || shards.members().unwrap().len() == 1);
    only.leave();
}

/// Nobody would work on its shards.
fn who_waits_among_the_members_without_being_one_gets_no_shard(place: Place) {
    let (hosts, path) = (place.shared().hosts(), fresh_path("shards"));
    let clients = [(); 3].map(|()| place.connect(&hosts));
    let field = Field::new();
    let shards = clients[0].shards(&path, COUNT).unwrap();
    let first = member(&clients[0], &path, 1, &field);
    eventually("it has all", || field.numbers(&[1]) == [12]);

    let dir = format!("{path}/members");
    let lock = clients[1].rwlock(&dir).unwrap();
    let (stop, stopped) = bounded(0);
    let writer = aside(move || {
        let taken = lock.write_with(LockOptions::new().cancel(stopped));
        taken.map(|taken| taken.is_none())
    });
    wait_for_queue(&clients[0], &dir, 2);
    let second = member(&clients[2], &path, 2, &field);
    wait_for_queue(&clients[0], &dir, 3);
    // The shard that is given up comes back only to who owns it.
    let given_up = field.terms.load(Ordering::SeqCst);
    let held = clients[1].contenders(&format!("{path}/0")).unwrap();
    held[0].revoke().unwrap();
    eventually("it begins anew", || {
        field.terms.load(Ordering::SeqCst) != given_up && field.numbers(&[1, 2]) == [12, 0]
    });
    assert_eq!(shards.members().unwrap().len(), 1);

    drop(stop);
    let waited_in_vain = writer.recv_timeout(SOON).expect("it ends").unwrap();
    assert!(waited_in_vain);
    eventually("two share", || field.numbers(&[1, 2]) == [6, 6]);
    first.leave();
    second.leave();
    assert_eq!(field.overlaps.load(Ordering::SeqCst), 0);
}

#[test]
fn shards_have_a_number_and_a_path() {
    let server = zklock::embedded::Server::start().unwrap();
    let client = Client::connect(server.hosts()).unwrap();
    for count in [0, 10_001, u32::MAX] {
        let refused = client.shards("/a", count).unwrap_err();
        assert!(matches!(refused, Error::BadArgument { .. }), "{refused}");
    }
    let refused = client.shards("a", 1).unwrap_err();
    assert!(matches!(refused, Error::BadPath { .. }), "{refused}");
}
