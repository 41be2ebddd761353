//! The troubles of connections, rows, tables, the server and the way to it.

use std::thread;
use std::time::Duration;

use mysql::prelude::Queryable;

use super::{NAMES, Storm};
use crate::history::{Journal, What};
use crate::relay::Relay;

/// The options of the server, with which a test can make it wait for a replica.
pub(super) const OPTIONS: &[&str] = &["--log-bin"];

const KILL: &str = "SELECT ID FROM information_schema.PROCESSLIST \
                    WHERE USER LIKE 'client%' ORDER BY RAND() LIMIT 1";

/// The statements that keep others waiting until they are rolled back.
const LOCKS: &[&str] = &[
    "SELECT 1 FROM database_lock_token FOR UPDATE",
    "SELECT 1 FROM database_lock FOR UPDATE",
    "SELECT 1 FROM database_lock WHERE `lock` = '{}' FOR UPDATE",
    "SELECT 1 FROM database_lock WHERE `lock` < '{}' FOR UPDATE",
    "SELECT 1 FROM database_lock WHERE `lock` > '{}' LOCK IN SHARE MODE",
    "INSERT INTO database_lock (`lock`, description) VALUES ('{}', 'plain')",
    "LOCK TABLES database_lock WRITE",
    "LOCK TABLES database_lock READ, database_lock_token WRITE",
    "FLUSH TABLES WITH READ LOCK",
    "ALTER TABLE database_lock FORCE",
];

/// Locks rows, gaps, counters and tables, and kills connections and statements.
pub(super) fn lock_and_kill(storm: &Storm) {
    let journal = storm.journal("locks");
    let mut conn = None;
    while !storm.is_over() {
        thread::sleep(pause(0..500));
        conn = conn.or_else(|| storm.conn());
        let Some(other) = &mut conn else { continue };
        if fastrand::u8(..3) == 0 {
            if let Ok(Some(id)) = other.query_first::<u64, _>(KILL) {
                let what = ["CONNECTION", "QUERY"][fastrand::usize(..2)];
                let _ = other.query_drop(format!("KILL {what} {id}"));
            }
            continue;
        }
        let name = format!("n{}", fastrand::usize(..NAMES));
        let lock = LOCKS[fastrand::usize(..LOCKS.len())].replace("{}", &name);
        let _ = other.query_drop("START TRANSACTION");
        let locked = other.query_drop(&lock).is_ok();
        journal.note(0, What::Fault { text: lock });
        if locked {
            thread::sleep(pause(0..1200));
        }
        journal.note(0, What::Healed);
        if other.query_drop("ROLLBACK; UNLOCK TABLES").is_err() {
            conn = None;
        }
    }
}

/// Makes commits wait for a replica that does not come, restarts the server, and makes it refuse
/// writes, in turn.
pub(super) fn change_the_server(storm: &Storm) {
    let journal = storm.journal("server");
    for round in 0.. {
        if !sleep(storm, pause(1000..6000)) {
            break;
        }
        match round % 6 {
            1 => {
                let begin = "SET GLOBAL rpl_semi_sync_master_timeout = 10000; \
                             SET GLOBAL rpl_semi_sync_master_enabled = 1";
                let end = "SET GLOBAL rpl_semi_sync_master_enabled = 0";
                set_for(storm, &journal, begin, end, pause(9000..10_000));
            }
            0 | 3 | 4 => {
                let (begin, end) = ("SET GLOBAL read_only = 1", "SET GLOBAL read_only = 0");
                set_for(storm, &journal, begin, end, pause(0..3000));
            }
            _ => {
                let text = "restart".to_owned();
                journal.note(0, What::Fault { text });
                storm.database.server.kill();
                thread::sleep(pause(0..1000));
                storm.database.server.resume(OPTIONS);
                journal.note(0, What::Healed);
            }
        }
    }
}

fn set_for(storm: &Storm, journal: &Journal, begin: &str, end: &str, pause: Duration) {
    let text = begin.to_owned();
    journal.note(0, What::Fault { text });
    if let Some(mut conn) = storm.conn()
        && conn.query_drop(begin).is_ok()
    {
        thread::sleep(pause);
        // The statement waits for locks, and may fail.
        while conn.query_drop(end).is_err() {
            let Some(again) = storm.conn() else { break };
            conn = again;
        }
    }
    journal.note(0, What::Healed);
}

/// Keeps one client at a time from the server, for up to twice its lease.
pub(super) fn stall(storm: &Storm, relays: &[Relay]) {
    let journal = storm.journal("stalls");
    while sleep(storm, pause(0..2000)) {
        let client = fastrand::usize(..relays.len());
        let text = format!("client {client} is stalled");
        journal.note(0, What::Fault { text });
        relays[client].stall(true);
        thread::sleep(pause(500..5000));
        relays[client].stall(false);
        journal.note(0, What::Healed);
    }
}

fn pause(milliseconds: std::ops::Range<u64>) -> Duration {
    Duration::from_millis(fastrand::u64(milliseconds))
}

/// Sleeps; returns `false` if the run has ended by then.
fn sleep(storm: &Storm, pause: Duration) -> bool {
    thread::sleep(pause);
    !storm.is_over()
}
