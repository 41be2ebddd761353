//! A guard's transaction that its servers carry out after the client was told that the outcome is unknown.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use log::{LevelFilter, Log, Metadata, Record};
use zklock::{Error, Mutex, MutexGuard};

use super::SOON;
use super::late_creates::Stage;
use crate::support::raw::{Raw, op};
use crate::support::{eventually, fresh_path, worker};

/// How long the user's logger takes, which the background thread calls before it deletes the nodes that are left.
const SLOW: Duration = Duration::from_millis(700);

/// The number of tries. Without the fix, two of three transactions were carried out under the next lock, and so
/// certainly one of this many.
const TRIES: usize = 6;

static IS_SLOW: AtomicBool = AtomicBool::new(false);
static IS_HELD_UP: AtomicBool = AtomicBool::new(false);

/// A logger that takes long for the line that a lock is suspect.
struct SlowLogger;

impl Log for SlowLogger {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let is_behind = thread::current().name() == Some("zklock-background");
        if is_behind && record.args().to_string().contains("is Suspect") {
            IS_HELD_UP.store(true, Ordering::SeqCst);
            while IS_SLOW.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(2));
            }
        }
    }

    fn flush(&self) {}
}

/// At that time the node of the last grant still exists: its deletion is left to the background thread. The thread
/// that comes back gets the very next number, and would not have to list.
#[test]
#[ignore = "needs ZooKeeper servers"]
fn a_transaction_in_doubt_is_not_carried_out_under_the_clients_next_lock() {
    worker::alone(|| {
        log::set_logger(&SlowLogger).expect("the only logger");
        log::set_max_level(LevelFilter::Info);
        let stage = Stage::new();
        for _ in 0..TRIES {
            let path = fresh_path("late");
            let mutex = stage.client.mutex(&path).expect("a mutex");
            // The client has come so often that it does not list, and the number of its node shows that the
            // directory is the same.
            (0..120).for_each(|_| drop(mutex.lock().expect("the directory is made")));
            let late = format!("{path}-late-write");
            let next = stage.creates((b"-late-write", op::MULTI), || in_doubt(&mutex, &late));
            eventually("it is back", || next.verify().is_ok());
            let written = Raw::connect(&stage.leader()).stat(&late);
            let under_the_next = written.is_some_and(|at| next.fencing_token().get() < at.czxid);
            assert!(!under_the_next, "{} has a write of before", next.node());
            next.unlock().expect("a release");
        }
    });
}

/// Leaves a transaction in doubt, releases its lock, and takes it again through the other server.
fn in_doubt(mutex: &Mutex, late: &str) -> MutexGuard {
    let guard = mutex.lock().expect("a lock");
    IS_HELD_UP.store(false, Ordering::SeqCst);
    IS_SLOW.store(true, Ordering::SeqCst);
    let told = guard.transaction().create(late, "late").commit();
    assert!(matches!(told, Err(Error::Unconfirmed { .. })), "{told:?}");
    eventually("the background thread is held up", || {
        IS_HELD_UP.load(Ordering::SeqCst)
    });
    drop(guard);
    let hurry = thread::spawn(|| {
        thread::sleep(SLOW);
        IS_SLOW.store(false, Ordering::SeqCst);
    });
    let next = mutex.try_lock_for(SOON).expect("an answer");
    let next = next.expect("a lock, through the other server");
    hurry.join().expect("no panic");
    next
}
