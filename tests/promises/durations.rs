//! Every duration that can be passed in, with unusual values.
//!
//! No value panics on any thread, and each means what it does in the standard library: zero means
//! at once, and more than a clock can count means for ever.

use std::panic;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use zklock::embedded::Server;
use zklock::{Client, Error, LockOptions};

use crate::support::worker::alone;
use crate::support::{aside, eventually, free_port, fresh_path};

const SHORT: [Duration; 2] = [Duration::ZERO, Duration::from_nanos(1)];
const FOREVER: Duration = Duration::MAX;
const ALL: [Duration; 3] = [SHORT[0], SHORT[1], FOREVER];

/// A time longer than any call takes unless it hangs.
const SOON: Duration = Duration::from_secs(30);
/// How long a test watches a call that must not end.
const A_WHILE: Duration = Duration::from_millis(200);

/// The panics of any thread, with their messages.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// This test runs alone: no other test may panic meanwhile.
#[test]
fn every_duration_works_with_zero_with_one_nanosecond_and_with_the_longest() {
    alone(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANICS.lock().unwrap().push(info.to_string());
            usual(info);
        }));
        let server = Server::start().unwrap();
        let hosts = server.hosts();
        session_timeouts(hosts);
        connect_timeouts(hosts);
        limits_of_waits(hosts);
        watched_queues(hosts);
        least_times_to_hold(hosts);
        holders_that_are_overdue(hosts);
        delays_of_successors(hosts);
        #[cfg(feature = "zookeeper")]
        timeouts_of_handles(hosts);
        drop(server);
        assert_eq!(*PANICS.lock().unwrap(), [""; 0]);
    });
}

fn session_timeouts(hosts: &str) {
    for timeout in ALL {
        let client = Client::builder(hosts).session_timeout(timeout);
        let client = client.connect().unwrap();
        let granted = client.session_timeout();
        assert!(!granted.is_zero() && granted < Duration::from_secs(3600));
        let guard = client.mutex(&fresh_path("timeout")).unwrap().lock();
        guard.unwrap().verify().unwrap();
    }
    // Nothing has clamped it yet.
    let port = free_port();
    let client = Client::builder(&format!("127.0.0.1:{port}"));
    let client = client.session_timeout(FOREVER).connect_timeout(A_WHILE);
    assert!(matches!(
        client.connect(),
        Err(Error::ConnectTimeout { .. })
    ));
}

fn connect_timeouts(hosts: &str) {
    for limit in SHORT {
        let connected = Client::builder(hosts).connect_timeout(limit).connect();
        // The connection may have been fast enough.
        if let Err(error) = connected {
            assert!(matches!(error, Error::ConnectTimeout { .. }), "{error}");
        }
    }
    Client::builder(hosts)
        .connect_timeout(FOREVER)
        .connect()
        .unwrap();
}

/// Returns whether the lock was granted. A limit may end before a server has said that the lock is
/// taken.
fn got<G>(tried: zklock::Result<Option<G>>) -> bool {
    match tried {
        Ok(guard) => guard.is_some(),
        Err(Error::ConnectTimeout { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

fn limits_of_waits(hosts: &str) {
    let [client, other] = [(); 2].map(|()| Client::connect(hosts).unwrap());
    let path = fresh_path("limits");
    let guard = client.mutex(&path).unwrap().lock().unwrap();
    let permit = client.semaphore(&fresh_path("full"), 1).unwrap();
    let full = permit.path().to_owned();
    let permit = permit.acquire().unwrap();
    type Try = Box<dyn Fn(Duration) -> bool + Send>;
    let (mutex, reentrant) = (
        other.mutex(&path).unwrap(),
        other.reentrant_mutex(&path).unwrap(),
    );
    let written = fresh_path("written");
    let writer = client.rwlock(&written).unwrap().write().unwrap();
    let (reads, writes) = (
        other.rwlock(&written).unwrap(),
        other.rwlock(&written).unwrap(),
    );
    let multi = other.multi_lock([path.as_str(), "/b"]).unwrap();
    let semaphore = other.semaphore(&full, 1).unwrap();
    let tries: [Try; 6] = [
        Box::new(move |limit| got(mutex.try_lock_for(limit))),
        Box::new(move |limit| got(reentrant.try_lock_for(limit))),
        Box::new(move |limit| got(reads.try_read_for(limit))),
        Box::new(move |limit| got(writes.try_write_for(limit))),
        Box::new(move |limit| got(multi.try_lock_for(limit))),
        Box::new(move |limit| got(semaphore.try_acquire_for(limit))),
    ];
    for attempt in &tries {
        for limit in SHORT {
            assert!(!attempt(limit));
        }
    }
    let waits = tries.map(|attempt| aside(move || attempt(FOREVER)));
    thread::sleep(A_WHILE);
    assert!(waits.iter().all(|wait| wait.is_empty()));
    drop((guard, permit, writer));
    for wait in waits {
        assert_eq!(wait.recv_timeout(SOON), Ok(true));
    }
}

fn watched_queues(hosts: &str) {
    let client = Client::connect(hosts).unwrap();
    let path = fresh_path("watched");
    for limit in SHORT {
        // The limit is over before a server can answer, unless this thread is late.
        match client.wait_for_change(&path, &[], limit) {
            Ok(present) => assert!(present.is_empty()),
            Err(Error::ConnectTimeout { limit: told, .. }) => assert_eq!(told, limit),
            Err(error) => panic!("{error}"),
        }
    }
    let (watching, of) = (client.clone(), path.clone());
    let changed = aside(move || watching.wait_for_change(&of, &[], FOREVER).unwrap().len());
    thread::sleep(A_WHILE);
    assert!(changed.is_empty());
    let _guard = client.mutex(&path).unwrap().lock().unwrap();
    assert_eq!(changed.recv_timeout(SOON), Ok(1));
}

fn least_times_to_hold(hosts: &str) {
    let other = Client::connect(hosts).unwrap();
    let held = |path: &str, time: Duration| {
        let client = Client::connect(hosts).unwrap();
        let options = LockOptions::new().hold_at_least(time);
        let guard = client.mutex(path).unwrap().lock_with(options).unwrap();
        (client, guard.unwrap())
    };
    for time in SHORT {
        let path = fresh_path("short");
        let (_client, guard) = held(&path, time);
        drop(guard);
        assert!(
            other
                .mutex(&path)
                .unwrap()
                .try_lock_for(SOON)
                .unwrap()
                .is_some()
        );
    }
    // For ever means as long as the client exists, even if a thread waits for its end.
    let path = fresh_path("forever");
    let (client, guard) = held(&path, FOREVER);
    drop(guard);
    let mutex = other.mutex(&path).unwrap();
    assert!(mutex.try_lock_for(A_WHILE).unwrap().is_none());
    let closed = aside(move || client.close());
    closed.recv_timeout(SOON).expect("close returns").unwrap();
    assert!(mutex.try_lock_for(SOON).unwrap().is_some());

    let (client, guard) = held(&path, FOREVER);
    let send = guard.into_send();
    let unlocked = aside(move || send.unlock());
    assert!(mutex.try_lock_for(A_WHILE).unwrap().is_none());
    assert!(unlocked.is_empty());
    client.close().unwrap();
    let lost = unlocked.recv_timeout(SOON).expect("unlock returns");
    assert!(lost.unwrap_err().is_lost());
    assert!(mutex.try_lock_for(SOON).unwrap().is_some());
}

fn holders_that_are_overdue(hosts: &str) {
    let [client, other] = [(); 2].map(|()| Client::connect(hosts).unwrap());
    for time in ALL {
        for grace in ALL {
            let path = fresh_path("overdue");
            let guard = client.mutex(&path).unwrap().lock().unwrap();
            let evicts = FOREVER != time && FOREVER != grace;
            let limit = if evicts { SOON } else { A_WHILE };
            let options = LockOptions::new()
                .deadline(Instant::now() + limit)
                .evict_overdue(time, grace);
            let got = other.mutex(&path).unwrap().lock_with(options).unwrap();
            assert_eq!(got.is_some(), evicts, "{time:?} {grace:?}");
            eventually("the holder knows", || guard.check().is_err() == evicts);
        }
    }
}

fn delays_of_successors(hosts: &str) {
    let client = Client::connect(hosts).unwrap();
    for delay in ALL {
        let path = fresh_path("delay");
        let mutex = client.mutex(&path).unwrap();
        let within = |limit| {
            let options = LockOptions::new().successor_delay(delay).timeout(limit);
            mutex.lock_with(options).unwrap()
        };
        within(SOON).expect("a free lock").unlock().unwrap();
        assert!(within(SOON).is_some(), "nobody was abandoned");
        // A predecessor that panics has not released the lock.
        let panicking = mutex.clone();
        let end = thread::spawn(move || {
            let tracking = LockOptions::new().track_abandonment();
            let _guard = panicking.lock_with(tracking).unwrap();
            panic::resume_unwind(Box::new(()));
        });
        end.join().unwrap_err();
        let limit = if delay == FOREVER { A_WHILE } else { SOON };
        let got = within(limit);
        assert_eq!(got.is_some(), delay != FOREVER, "{delay:?}");
    }
}

#[cfg(feature = "zookeeper")]
fn timeouts_of_handles(hosts: &str) {
    for timeout in ALL {
        let handle = zookeeper::ZooKeeper::connect(hosts, Duration::from_secs(5), |_| ());
        let client = Client::from_zookeeper(handle.unwrap(), timeout).unwrap();
        let mutex = client.mutex(&fresh_path("handle")).unwrap();
        // With a tiny session timeout, no lock can be held, and the error says so. The first lock
        // takes a third of the session timeout, which is at most 4 s here.
        let got = mutex.try_lock_for(if timeout == FOREVER { SOON } else { A_WHILE });
        if timeout == FOREVER {
            got.unwrap().expect("a guard").verify().unwrap();
        }
    }
}
