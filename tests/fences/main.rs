//! The fences of `docs/fencing.md`, each run against the real storage.
//!
//! A holder finds its lock valid, and its process is stopped before it writes. Its session ends,
//! the next holder takes the lock and writes, and the first one continues: its write must be
//! refused. Without the fence the write is carried out, which shows that it really comes too late.
#![cfg(target_os = "linux")]

mod servers;
mod statements;
mod storage;
mod tokens;

use std::path::Path;
use std::thread;
use std::time::Duration;

use zklock::Client;
use zklock_testkit as support;

use crate::servers::{Server, Session};
use crate::statements::marked;
use crate::storage::{ALL, Kind, Storage};
use crate::support::fresh_path;
use crate::support::worker::{self, Worker};
use crate::support::zookeeper::{Folder, ZooKeeper};

/// The session timeout, short, so that nobody waits long for the end of a stopped holder's session.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Takes a lock, checks it, and writes when a file tells it to.
#[test]
#[ignore = "a worker process"]
fn worker_that_writes_late() {
    let Some(input) = worker::input() else { return };
    let words: Vec<_> = input.split(' ').collect();
    let [hosts, lock, kind, fenced, address, go] = words[..] else {
        return;
    };
    let storage = Storage {
        kind: ALL
            .into_iter()
            .find(|one| format!("{one:?}") == kind)
            .expect("a kind"),
        fenced: fenced == "true",
        address: address.to_owned(),
    };
    let client = Client::builder(hosts)
        .session_timeout(TIMEOUT)
        .connect()
        .expect("a client");
    let guard = client.mutex(lock).expect("a mutex").lock().expect("a lock");
    guard.check().expect("it is held");
    worker::say("held");
    while !Path::new(go).exists() {
        thread::sleep(Duration::from_millis(2));
    }
    let accepted = storage.write("late", guard.fencing_token());
    worker::say(if accepted { "accepted" } else { "refused" });
}

/// Stops a holder between its check and its write; returns whether the write was accepted.
fn write_late(storage: &Storage) -> bool {
    let zookeeper = ZooKeeper::shared();
    let (hosts, lock, folder) = (zookeeper.hosts(), fresh_path("fenced"), Folder::new());
    let (kind, fenced, address) = (storage.kind, storage.fenced, &storage.address);
    let go = folder.path("go");
    let input = format!(
        "{hosts} {lock} {kind:?} {fenced} {address} {}",
        go.display()
    );
    let holder = Worker::spawn(worker_that_writes_late, &input);
    holder.expect("held");
    holder.pause();
    let client = Client::connect(&hosts).expect("a client");
    let guard = client
        .mutex(&lock)
        .expect("a mutex")
        .lock()
        .expect("a lock");
    assert!(storage.write("new", guard.fencing_token()), "{storage:?}");
    // A holder may write twice.
    assert!(storage.write("new", guard.fencing_token()), "{storage:?}");
    std::fs::write(&go, "").expect("a file");
    holder.resume();
    let said = holder.hear();
    guard.unlock().expect("it is held");
    said == "accepted"
}

#[track_caller]
fn the_late_write_is_refused(kind: Kind, start: impl Fn() -> Server) {
    for fenced in [true, false] {
        let server = start();
        let address = server.address.clone();
        let storage = Storage {
            kind,
            fenced,
            address,
        };
        storage.make();
        let (accepted, left) = (write_late(&storage), storage.body());
        match fenced {
            true => assert_eq!((accepted, &*left), (false, "new"), "{storage:?}"),
            false => assert_eq!(left, "late", "{storage:?}"),
        }
    }
}

#[test]
#[ignore = "needs a real ZooKeeper and PostgreSQL"]
fn postgresql_refuses_a_late_write() {
    the_late_write_is_refused(Kind::PostgreSql, servers::postgresql);
}

#[test]
#[ignore = "needs a real ZooKeeper and PostgreSQL"]
fn postgresql_refuses_a_late_transaction() {
    the_late_write_is_refused(Kind::Transaction, servers::postgresql);
}

#[test]
#[ignore = "needs a real ZooKeeper and PostgreSQL"]
fn a_trigger_refuses_a_late_write() {
    the_late_write_is_refused(Kind::Trigger, servers::postgresql);
}

#[test]
#[ignore = "needs a real ZooKeeper and MariaDB"]
fn mariadb_refuses_a_late_write() {
    the_late_write_is_refused(Kind::MariaDb, servers::mariadb);
}

/// A transaction that has read sees the row as it was then, and its own write if that changes
/// something; a refused write changes nothing.
#[test]
#[ignore = "needs MariaDB"]
fn mariadb_tells_a_late_write_that_read_before() {
    let answer = |late: &mut Session| assert_eq!(late.hear(), "0", "the write was accepted");
    a_late_write_that_read_before("OFF", answer);
}

/// Snapshot isolation is the default from 11.6.2: a change since the transaction began to read ends
/// the transaction, and here the client with it.
#[test]
#[ignore = "needs MariaDB"]
fn mariadb_with_snapshot_isolation_ends_a_late_transaction_that_read_before() {
    a_late_write_that_read_before("ON", |late| assert_eq!(late.hear(), ""));
}

#[track_caller]
fn a_late_write_that_read_before(isolation: &str, is_refused: impl FnOnce(&mut Session)) {
    let server = servers::mariadb();
    let storage = Storage {
        kind: Kind::MariaDb,
        fenced: true,
        address: server.address.clone(),
    };
    storage.make();
    assert!(storage.write("first", 5.into()));
    let mut late = Session::start(&server.address);
    late.say(&format!("SET innodb_snapshot_isolation = {isolation};"));
    late.say("SET @body = 'late', @token = 5; BEGIN; SELECT token FROM report;");
    assert_eq!(late.hear(), "5");
    assert!(storage.write("new", 9.into()));
    late.say(&marked("mariadb write").replace("BEGIN;", ""));
    is_refused(&mut late);
    assert_eq!(storage.body(), "new");
}

/// Whichever write comes first, the highest token remains.
#[track_caller]
fn the_highest_of_many_writes_is_left(kind: Kind, server: &Server) {
    let storage = Storage {
        kind,
        fenced: true,
        address: server.address.clone(),
    };
    storage.make();
    for round in 0..6 {
        let tokens = round * 8 + 1..round * 8 + 9;
        thread::scope(|scope| {
            for token in tokens.clone() {
                let storage = &storage;
                scope.spawn(move || {
                    let accepted = storage.write(&token.to_string(), token.into());
                    assert!(accepted || token < round * 8 + 8, "the highest was refused");
                });
            }
        });
        assert_eq!(storage.body(), (round * 8 + 8).to_string(), "{storage:?}");
    }
}

#[test]
#[ignore = "needs PostgreSQL and MariaDB"]
fn the_highest_of_many_writes_at_once_is_left() {
    the_highest_of_many_writes_is_left(Kind::PostgreSql, &servers::postgresql());
    the_highest_of_many_writes_is_left(Kind::Transaction, &servers::postgresql());
    the_highest_of_many_writes_is_left(Kind::MariaDb, &servers::mariadb());
    the_highest_of_many_writes_is_left(Kind::File, &servers::folder(""));
}

#[test]
#[ignore = "needs PostgreSQL"]
fn a_trigger_sees_no_token_that_is_not_named() {
    let server = servers::postgresql();
    let storage = Storage {
        kind: Kind::Trigger,
        fenced: true,
        address: server.address.clone(),
    };
    storage.make();
    assert!(storage.write("new", 9.into()));
    assert!(!storage.write("late", 5.into()));
    let told = storage.run("", 0, "UPDATE report SET body = 'late' WHERE id = 1;");
    assert!(told.status.success(), "{told:?}");
    assert_eq!(storage.body(), "late");
}

#[test]
#[ignore = "needs SQLite and Python"]
fn what_is_deleted_has_forgotten_the_token() {
    for (kind, server) in [
        (Kind::Sqlite, servers::folder("report.sqlite")),
        (Kind::File, servers::folder("")),
        (Kind::S3, servers::s3()),
    ] {
        let storage = Storage {
            kind,
            fenced: true,
            address: server.address.clone(),
        };
        storage.make();
        assert!(storage.write("new", 9.into()));
        assert!(!storage.write("late", 5.into()), "{storage:?}");
        storage.delete();
        assert!(storage.write("late", 5.into()), "{storage:?}");
    }
}

#[test]
#[ignore = "needs a real ZooKeeper and SQLite"]
fn sqlite_refuses_a_late_write() {
    the_late_write_is_refused(Kind::Sqlite, || servers::folder("report.sqlite"));
}

#[test]
#[ignore = "needs a real ZooKeeper"]
fn a_file_refuses_a_late_write() {
    the_late_write_is_refused(Kind::File, || servers::folder(""));
}

#[test]
#[ignore = "needs a real ZooKeeper and Python"]
fn an_object_refuses_a_late_write() {
    the_late_write_is_refused(Kind::S3, servers::s3);
}
