//! Client processes that take locks when they are told to, and hold them.
//!
//! They report each step to the test with one line: `held`, `lost`, `released`.

use std::thread;
use std::time::Duration;

use zklock::{Client, LockOptions, MutexGuard};

use crate::history::{Journal, Kind, What};
use crate::store::Writer;
use crate::support::worker;
use crate::workload::{QUIT, Task, is_valid, wait_for};

/// The file that makes the holders release.
pub(crate) const LET_GO: &str = "let-go";

/// The file that makes a late writer write.
pub(crate) const WRITE: &str = "write";

/// Holds the mutexes at the paths of its input, and checks its guards all the time.
///
/// Before the paths, the input names the servers to connect to.
#[test]
#[ignore = "a worker process"]
pub(crate) fn worker_that_holds_mutexes() {
    let Some(input) = worker::input() else { return };
    let (task, more) = Task::from_input(&input);
    let Some((hosts, paths)) = more.split_first() else {
        return;
    };
    let client = task.connect_to(hosts);
    let journal = task.journal();
    worker::say("ready");
    let taken = paths.iter().zip(1..);
    let mut held: Vec<_> = taken
        .map(|(path, op)| (op, take(&client, &journal, op, path)))
        .collect();
    worker::say("held");
    while !task.file(LET_GO).exists() {
        let before = held.len();
        for (op, guard) in &held {
            for event in guard.events().try_iter() {
                let event = format!("{event:?}");
                journal.note(*op, What::Told { event });
            }
        }
        let (valid, lost): (Vec<_>, _) = held
            .into_iter()
            .partition(|(op, guard)| is_valid(&journal, *op, guard));
        held = valid;
        for (op, guard) in lost {
            give_up(&journal, op, guard);
        }
        if held.len() < before {
            worker::say("lost");
        }
        thread::sleep(Duration::from_millis(2));
    }
    for (op, guard) in held {
        give_up(&journal, op, guard);
    }
    worker::say("released");
    worker::say("idle");
    wait_for(&task.file(QUIT));
    // This fails while the client is disconnected, which this run does not judge.
    drop(client.close());
    worker::say("bye");
}

/// Takes a mutex, finds its guard valid, and writes when it is told to, without another check.
#[test]
#[ignore = "a worker process"]
pub(crate) fn worker_that_writes_late() {
    let Some(input) = worker::input() else { return };
    let (task, more) = Task::from_input(&input);
    let [path] = &more[..] else { return };
    let client = task.connect();
    let journal = task.journal();
    let mut store = Writer::open(&task.file("store"), task.who);
    let guard = take(&client, &journal, 1, path);
    let token = guard.fencing_token().get();
    store.write(1, path, token);
    assert!(is_valid(&journal, 1, &guard));
    worker::say("held");
    wait_for(&task.file(WRITE));
    let accepted = store.write(1, path, token);
    worker::say(if accepted { "accepted" } else { "stale" });
    is_valid(&journal, 1, &guard);
    give_up(&journal, 1, guard);
    worker::say("idle");
    wait_for(&task.file(QUIT));
    drop(client.close());
    worker::say("bye");
}

/// Takes a mutex and records it.
pub(crate) fn take(client: &Client, journal: &Journal, op: usize, path: &str) -> MutexGuard {
    let mutex = client.mutex(path).expect("a mutex");
    let request = What::Request {
        kind: Kind::Exclusive,
        paths: vec![path.to_owned()],
        limit: None,
    };
    journal.note(op, request);
    let before = client.session_id();
    let options = LockOptions::new().on_wait(|waiting| {
        let session = client.session_id();
        if waiting.ahead().is_some() && session == before {
            journal.note(op, What::Queued { session });
        }
    });
    let guard = mutex.lock_with(options).expect("a lock");
    let guard = guard.expect("a lock without a limit");
    let granted = What::Granted {
        session: client.session_id(),
        tokens: vec![guard.fencing_token().get()],
    };
    journal.note(op, granted);
    guard
}

/// Unlocks a mutex and records it.
pub(crate) fn give_up(journal: &Journal, op: usize, guard: MutexGuard) {
    journal.note(op, What::Release);
    let well = guard.unlock().is_ok();
    journal.note(op, What::Released { well });
}

/// Drops a mutex and records it.
pub(crate) fn let_drop(journal: &Journal, op: usize, guard: MutexGuard) {
    journal.note(op, What::Release);
    drop(guard);
    journal.note(op, What::Released { well: true });
}
