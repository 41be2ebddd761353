//! A core behind a small shell: real threads, sockets and a server.
//!
//! ```text
//!  lock, drop ──► inbox ──► ┌───────────────────────┐ ──► bytes ──► the thread that writes
//!                           │ one mutex: the core,  │
//!  the thread that reads ──►│ who sleeps, what to   │ ──► wakes ──► a sleeper each
//!  the clock ──────────────►│ write                 │
//!                           └───────────────────────┘ ──► notices ─► what guards believe
//! ```
//!
//! The shell shows that a core needs nothing more, and `benches/shell` what that costs. It lacks what users also
//! want: TLS, logins, chroots, older servers, several addresses, writes to a full socket that wait for nothing,
//! forks.

mod client;
mod reader;
mod sleeper;
mod turns;
mod who_reads;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use zklock::embedded::{RequestKind, Server};
use zklock_play::Outcome;

use client::{Client, now};

/// The session timeout, so long that no session expires.
const T: Duration = Duration::from_secs(20);

/// The numbers on which the holders of one lock agree.
#[derive(Default)]
struct Agreed {
    is_held: AtomicBool,
    token: AtomicI64,
    grants: AtomicU64,
}

impl Agreed {
    fn holds(&self, guard: &client::Guard<'_>) {
        assert!(!self.is_held.swap(true, Ordering::SeqCst), "two hold it");
        let before = self.token.swap(guard.token, Ordering::SeqCst);
        assert!(before < guard.token, "tokens grow");
        assert!(guard.check());
        self.grants.fetch_add(1, Ordering::SeqCst);
        self.is_held.store(false, Ordering::SeqCst);
    }
}

#[test]
fn threads_exclude_each_other_whatever_becomes_of_connections_and_answers() {
    let server = Server::start().unwrap();
    let clients: Vec<_> = (0..3)
        .map(|_| Client::connect(server.hosts(), T, 0))
        .collect();
    let paths: Vec<Arc<str>> = vec!["/a".into(), "/b/c".into()];
    let agreed: Vec<_> = paths.iter().map(|_| Agreed::default()).collect();
    let broken = || -> u64 {
        let of = |client: &Client| client.shared.broken.load(Ordering::Relaxed);
        clients.iter().map(of).sum()
    };
    let grants = || agreed.iter().map(|one| one.grants.load(Ordering::Relaxed));
    // On a busy machine the grants take longer.
    let is_enough = || grants().all(|grants| 30 < grants) && 30 < broken();
    let (at_least, at_most) = (Duration::from_secs(3), Duration::from_secs(60));
    let (began, over) = (Instant::now(), AtomicBool::new(false));
    thread::scope(|scope| {
        for at in 0..12 {
            let (client, path, agreed, over) = (
                &clients[at % 3],
                &paths[at / 3 % 2],
                &agreed[at / 3 % 2],
                &over,
            );
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let guard = client.lock(path, None).expect("no limit");
                    agreed.holds(&guard);
                    match agreed.grants.load(Ordering::Relaxed) % 3 {
                        0 => assert_eq!(guard.unlock(), Outcome::Released),
                        1 => assert_eq!(guard.verify(), Outcome::Verified),
                        _ => {}
                    }
                }
            });
        }
        let kinds = [
            RequestKind::Create,
            RequestKind::Delete,
            RequestKind::List,
            RequestKind::Multi,
        ];
        while began.elapsed() < at_least || !is_enough() && began.elapsed() < at_most {
            thread::sleep(Duration::from_millis(fastrand::u64(1..40)));
            match fastrand::usize(..2 * kinds.len()) {
                at if at < kinds.len() => server.drop_next_reply_to(kinds[at]),
                at => clients[at % clients.len()].cut(),
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    println!(
        "{:?} grants, {} connections broke",
        grants().collect::<Vec<_>>(),
        broken()
    );
    assert!(is_enough());
    drop(clients);
    let left: Vec<_> = server
        .nodes()
        .into_iter()
        .filter(|node| node.contains("lock-"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_wait_ends_at_its_limit_and_a_drop_calls_the_next() {
    let server = Server::start().unwrap();
    let [first, second] = [(); 2].map(|()| Client::connect(server.hosts(), T, 0));
    let path = Arc::from("/a");
    let guard = first.lock(&path, None).unwrap();
    for client in [&first, &second] {
        let began = Instant::now();
        let limit = Duration::from_millis(100);
        let taken = thread::scope(|scope| {
            let waits = || client.lock(&path, Some(now() + limit)).map(drop);
            scope.spawn(waits).join().unwrap()
        });
        assert_eq!(taken, Err(Outcome::GaveUp { taken: true }));
        let took = began.elapsed();
        assert!((limit..100 * limit).contains(&took), "{took:?}");
    }
    assert_eq!(
        first.lock(&path, None).map(drop),
        Err(Outcome::WouldDeadlock)
    );
    thread::scope(|scope| {
        let waits = || second.lock(&path, None).map(drop);
        let waiter = scope.spawn(waits);
        thread::sleep(Duration::from_millis(50));
        drop(guard);
        assert_eq!(waiter.join().unwrap(), Ok(()));
    });
}

#[test]
fn a_thread_gets_the_lock_from_another_though_the_server_says_nothing() {
    let server = Server::start().unwrap();
    let client = Client::connect(server.hosts(), T, u32::MAX);
    let path = Arc::from("/a");
    let hand_over = || {
        let guard = client.lock(&path, None).unwrap();
        thread::scope(|scope| {
            let waits = || client.lock(&path, None).map(|guard| (guard.token, now()));
            let waiter = scope.spawn(waits);
            // When an answer comes, the thread that waits may begin to read.
            thread::sleep(Duration::from_millis(10));
            assert_eq!(guard.verify(), Outcome::Verified);
            thread::sleep(Duration::from_millis(2));
            let (before, token) = (now(), guard.token);
            drop(guard);
            let (handed_on, at) = waiter.join().unwrap().unwrap();
            assert_eq!(handed_on, token);
            at.saturating_sub(before)
        })
    };
    let fastest = (0..20).map(|_| hand_over()).min().unwrap();
    // After 50 ms, the client asks the server for something anyway.
    assert!(fastest < Duration::from_millis(20), "{fastest:?}");
}
