//! A server that has too many requests, and answers some of them without carrying them out.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use zklock::Error;

use super::{SOON, connect};
use crate::support::eventually;
use crate::support::zookeeper::ZooKeeper;

/// The node into which holders of the lock write.
const NUMBER: &str = "/number";

/// Returns a server that lets one request after the other in, and throws away those that waited.
fn throttles() -> ZooKeeper {
    ZooKeeper::builder()
        .fsync(false)
        .property("zookeeper.request_throttle_max_requests", "1")
        .property("zookeeper.throttled_op_wait_time", "1")
        .start()
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn requests_that_a_server_throws_away_cost_no_lock_and_leave_nothing_in_doubt() {
    let server = throttles();
    let thrown_away = || server.monitor("zk_throttled_ops").unwrap_or_default();
    let (path, permits, counter) = ("/busy".to_owned(), "/permits".to_owned(), AtomicU32::new(0));
    let client = connect(&server.hosts(), SOON);
    client.nodes().create(NUMBER, b"0".to_vec()).unwrap();
    let until = Instant::now() + Duration::from_secs(3);
    let goes_on =
        || Instant::now() < until || (thrown_away() == 0 && Instant::now() < until + SOON);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let client = connect(&server.hosts(), SOON);
                let (mutex, semaphore) = (
                    client.mutex(&path).unwrap(),
                    client.semaphore(&permits, 2).unwrap(),
                );
                while goes_on() {
                    let guard = mutex.lock().unwrap();
                    let count = counter.load(Ordering::Relaxed) + 1;
                    let write = guard.transaction();
                    match write.set(NUMBER, count.to_string()).commit() {
                        Ok(()) => counter.store(count, Ordering::Relaxed),
                        Err(Error::Refused { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                    guard.unlock().unwrap();
                    semaphore.acquire().unwrap().unlock().unwrap();
                }
            });
        }
    });
    assert_ne!(thrown_away(), 0);
    let stored = client.nodes().get(NUMBER).unwrap().expect("the count");
    assert_eq!(stored.data(), counter.into_inner().to_string().as_bytes());
    eventually("nothing is left", || {
        client.contenders(&path).is_ok_and(|left| left.is_empty())
            && client
                .contenders(&permits)
                .is_ok_and(|left| left.is_empty())
    });
}
