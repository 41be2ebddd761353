//! Clients that share names while connections are cut, killed and stalled and rows are locked.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use mysql::prelude::Queryable;
use zklock::mysql::{Client, SendGuard};

use crate::database::Database;
use crate::relay::{CUTS, Relay};
use crate::seconds;
use crate::support::Ends;

const CLIENTS: usize = 4;
const NAMES: usize = 3;
const T: Duration = Duration::from_secs(2);

/// What happened so far.
#[derive(Default)]
struct History {
    /// Those inside, by name and client.
    inside: Mutex<HashMap<(usize, usize), Arc<SendGuard>>>,
    tokens: Mutex<HashMap<usize, i64>>,
    acquired: AtomicU64,
    lost: AtomicU64,
}

impl History {
    /// Checks that no other guard is valid while this one is.
    fn enter(&self, name: usize, client: usize, guard: &Arc<SendGuard>) {
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        let others = inside.iter().filter(|(key, _)| key.0 == name);
        for (_, other) in others {
            let overlap = guard.is_held() && other.is_held() && guard.is_held();
            assert!(!overlap, "two guards are valid: {guard:?} and {other:?}");
        }
        inside.insert((name, client), guard.clone());
        drop(inside);
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        let last = tokens.entry(name).or_default();
        let token = guard.fencing_token().get();
        // One that was lost on the way may come late.
        assert!(*last < token || !guard.is_held(), "{token} after {last}");
        *last = token.max(*last);
        self.acquired.fetch_add(1, Ordering::Relaxed);
    }

    fn leave(&self, name: usize, client: usize) {
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        inside.remove(&(name, client));
    }
}

fn contend(url: &str, number: usize, most: u64, history: &History) {
    let client = Client::builder(url)
        .lease(T)
        .poll_interval(Duration::from_millis(1), Duration::from_millis(30))
        .connect()
        .unwrap();
    while history.acquired.load(Ordering::Relaxed) < most {
        let name = fastrand::usize(..NAMES);
        let mutex = client.mutex(&format!("n{name}")).unwrap();
        let Ok(Some(guard)) = mutex.try_lock_for(seconds(10)) else {
            continue;
        };
        let guard = Arc::new(guard.into_send());
        history.enter(name, number, &guard);
        // Now and then for longer than the lease, which has to be renewed, or is lost.
        let pause = match fastrand::u8(..8) {
            0 => fastrand::u64(1000..6000),
            _ => fastrand::u64(..3),
        };
        thread::sleep(Duration::from_millis(pause));
        if !guard.is_held() {
            history.lost.fetch_add(1, Ordering::Relaxed);
        }
        history.leave(name, number);
        let guard = Arc::into_inner(guard).expect("nobody else has it");
        if fastrand::bool() {
            let _ = guard.unlock();
        }
    }
}

/// Locks rows, gaps and counters, and kills connections.
fn disturb(database: &Database, is_over: &AtomicBool) {
    let mut conn = database.conn();
    while !is_over.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(fastrand::u64(..300)));
        let kill = "SELECT ID FROM information_schema.PROCESSLIST \
                    WHERE DB = DATABASE() AND ID <> CONNECTION_ID() ORDER BY RAND()";
        let name = fastrand::usize(..NAMES);
        let lock = match fastrand::u8(..4) {
            0 => {
                if let Some(id) = conn.query_first::<u64, _>(kill).unwrap() {
                    let _ = conn.query_drop(format!("KILL {id}"));
                }
                continue;
            }
            1 => "SELECT 1 FROM database_lock_token FOR UPDATE".to_owned(),
            2 => "SELECT 1 FROM database_lock FOR UPDATE".to_owned(),
            _ => format!("SELECT 1 FROM database_lock WHERE `lock` = 'n{name}' FOR UPDATE"),
        };
        let _ = conn.query_drop("START TRANSACTION");
        let _ = conn.query_drop(lock);
        thread::sleep(Duration::from_millis(fastrand::u64(..1200)));
        let _ = conn.query_drop("ROLLBACK");
    }
}

/// Keeps one client at a time from the server, for up to twice its lease.
fn stall(relays: &[Relay], is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        let relay = &relays[fastrand::usize(..relays.len())];
        relay.stall(true);
        thread::sleep(Duration::from_millis(fastrand::u64(1000..5000)));
        relay.stall(false);
        thread::sleep(Duration::from_millis(fastrand::u64(..1000)));
    }
}

#[test]
#[ignore = "needs MariaDB"]
fn no_two_guards_are_valid_whatever_is_cut_killed_stalled_or_locked() {
    // More for a longer run.
    let wanted = std::env::var("ZKLOCK_TEST_ACQUISITIONS");
    let most = wanted.map_or(200, |wanted| wanted.parse().expect("a number"));
    let database = Database::new();
    let (history, is_over) = (History::default(), AtomicBool::new(false));
    let cut = |_| (fastrand::u8(..) < 3).then(|| CUTS[fastrand::usize(..3)]);
    let relays = [(); CLIENTS].map(|()| Relay::new(database.server.port, cut));
    thread::scope(|scope| {
        scope.spawn(|| disturb(&database, &is_over));
        scope.spawn(|| stall(&relays, &is_over));
        let _ends = Ends(&is_over);
        thread::scope(|scope| {
            for (number, relay) in relays.iter().enumerate() {
                let (url, history) = (database.url_by(relay.port), &history);
                scope.spawn(move || contend(&url, number, most, history));
            }
        });
    });
    let lost = history.lost.load(Ordering::Relaxed);
    let acquired = history.acquired.load(Ordering::Relaxed);
    println!("{acquired} acquired, {lost} of them lost");
    // What came too late for its guard stays for a lease.
    let live = "SELECT COUNT(*) FROM database_lock WHERE lease_end > UTC_TIMESTAMP(6)";
    thread::sleep(2 * T);
    assert_eq!(database.conn().query_first(live).unwrap(), Some(0));
}
