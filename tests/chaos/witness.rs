//! A witness, which sees whether the servers lose what they have committed.
//!
//! ZooKeeper 3.8 may lose it: a follower that has joined a new leader may count as newer than its log is
//! (ZOOKEEPER-4643, ZOOKEEPER-4646). Then nodes that were deleted exist again, and belong to nobody. No client can
//! know or mend that, so such a run shows nothing about this code.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::support::raw::{PERSISTENT, Raw};
use crate::support::{eventually, zookeeper::ZooKeeper};

const NODE: &str = "/witness";

/// The time between two writes.
const PACE: Duration = Duration::from_millis(30);

/// A client without locks that writes all the time.
#[derive(Debug)]
pub(crate) struct Witness {
    hosts: String,
    seen: Arc<Seen>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Seen {
    /// The highest version that a server has answered.
    version: AtomicI32,
    ends: AtomicBool,
}

impl Witness {
    pub(crate) fn start(hosts: String) -> Self {
        drop(Raw::connect(&hosts).create(NODE, b"", PERSISTENT));
        let seen = Arc::<Seen>::default();
        let (here, servers) = (seen.clone(), hosts.clone());
        let thread = thread::spawn(move || write(&servers, &here));
        Self {
            hosts,
            seen,
            thread: Mutex::new(Some(thread)),
        }
    }

    /// Ends the witness once the servers serve again; returns what they have lost.
    pub(crate) fn lost(&self) -> Option<String> {
        self.end();
        let seen = self.seen.version.load(Ordering::SeqCst);
        let stat = Raw::connect(&self.hosts).stat(NODE);
        let has = stat.map_or(-1, |stat| stat.version);
        (has < seen).then(|| format!("writes that were answered are lost: {seen}, then {has}"))
    }

    fn end(&self) {
        self.seen.ends.store(true, Ordering::SeqCst);
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.take() {
            thread.join().expect("it ends");
        }
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.end();
    }
}

fn write(hosts: &str, seen: &Seen) {
    let mut hosts: Vec<_> = hosts.split(',').collect();
    while !seen.ends.load(Ordering::SeqCst) {
        hosts.rotate_left(1);
        let raw = Raw::try_connect(&hosts.join(","), Duration::from_secs(20));
        if let Ok(mut raw) = raw {
            touch(&mut raw, seen);
        }
        thread::sleep(PACE);
    }
}

/// Writes until the witness must end, or the connection ends.
fn touch(raw: &mut Raw, seen: &Seen) {
    while !seen.ends.load(Ordering::SeqCst) {
        let Ok(version) = raw.try_touch(NODE) else {
            return;
        };
        seen.version.fetch_max(version, Ordering::SeqCst);
        thread::sleep(PACE);
    }
}

#[test]
#[ignore = "needs a real ZooKeeper: tests/chaos.sh"]
fn a_server_that_has_lost_what_it_answered_is_seen() {
    let server = ZooKeeper::start();
    for loses in [false, true] {
        let witness = Witness::start(server.hosts());
        let seen = || witness.seen.version.load(Ordering::SeqCst);
        let before = seen();
        eventually("it writes", || before + 3 < seen());
        match loses {
            true => server.restart_empty(),
            false => server.restart(),
        }
        assert_eq!(witness.lost().is_some(), loses);
    }
}
