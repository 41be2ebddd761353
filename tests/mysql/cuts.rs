//! Every packet of every statement is lost once: before it reaches the server, in part, and after.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use mysql::prelude::Queryable;
use zklock::mysql::{Client, Mutex};

use crate::database::Database;
use crate::relay::{CUTS, Cut, Relay};

/// Takes a free lock and one whose lease has ended, and releases both; returns the number of
/// pieces that this took.
fn take_and_release(database: &Database, cut: Option<(u64, Cut)>) -> u64 {
    let rule = move |piece| cut.and_then(|(at, cut)| (piece == at).then_some(cut));
    let relay = Relay::new(database.server.port, rule);
    let url = database.url_by(relay.port);
    let client = Client::connect(&url).unwrap_or_else(|error| panic!("{cut:?}: {error}"));
    let other = Client::connect(&database.url()).unwrap();
    let mut conn = database.conn();
    for (name, is_expired) in [("free", false), ("ended", true)] {
        let other = other.mutex(name).unwrap();
        let last = token(&other);
        if is_expired {
            let row = "INSERT INTO database_lock (`lock`, owner, lease_end, token) \
                       VALUES ('ended', 'dead', '2000-01-01', 0)";
            conn.query_drop(row).unwrap();
        }
        let mutex = client.mutex(name).unwrap();
        let guard = mutex
            .lock()
            .unwrap_or_else(|error| panic!("{cut:?}: {error}"));
        assert!(guard.fencing_token().get() > last, "{cut:?}");
        assert!(other.try_lock().unwrap().is_none());
        guard
            .verify()
            .unwrap_or_else(|error| panic!("{cut:?}: {error}"));
        guard
            .unlock()
            .unwrap_or_else(|error| panic!("{cut:?}: {error}"));
        assert!(token(&other) > last + 1);
        drop(mutex.lock().unwrap());
    }
    drop(client);
    database.wait_for_rows(0);
    relay.pieces()
}

fn token(mutex: &Mutex) -> i64 {
    let guard = mutex.lock().unwrap();
    let token = guard.fencing_token().get();
    guard.unlock().unwrap();
    token
}

#[test]
#[ignore = "needs MariaDB"]
fn whatever_packet_is_lost_a_lock_is_taken_kept_and_released() {
    let pieces = take_and_release(&Database::new(), None);
    assert!(pieces > 30, "{pieces}");
    let next = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let database = Database::new();
                loop {
                    let run = next.fetch_add(1, Ordering::Relaxed);
                    let cut = CUTS[usize::try_from(run % 3).unwrap()];
                    if run / 3 > pieces {
                        break;
                    }
                    take_and_release(&database, Some((run / 3, cut)));
                }
            });
        }
    });
    println!("{pieces} pieces were cut in three ways");
}
