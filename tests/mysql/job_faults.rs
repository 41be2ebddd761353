//! Rarer faults of jobs: two late statements, odd rows, tables and clocks, and forks.

use std::collections::HashMap;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::bounded;
use fork::{Fork, fork, waitpid_nohang};
use mysql::consts::CapabilityFlags;
use mysql::prelude::Queryable;
use mysql::{OptsBuilder, Pool};
use zklock::mysql::{CREATE_TABLE, Client, Job};
use zklock::{Error, JobOptions, Once, Outcome, Owner};

use crate::database::{Database, Server, connections, opts};
use crate::proxy::Proxy;
use crate::relay::Relay;
use crate::support::worker::alone;
use crate::support::{aside, eventually, lasting, timed};
use crate::{LATE, client, seconds};

const END: &str = "SET `l`.`lease_end` = '2000-01-01'";

const T: Duration = Duration::from_secs(2);

fn job(url: &str) -> Job {
    client(url, seconds(20)).job("nightly").unwrap()
}

fn done() -> Result<(), Infallible> {
    Ok(())
}

/// The reports about a slot.
#[derive(Debug, Default)]
struct Told {
    begun: u32,
    done: u32,
    unconfirmed: u32,
    lost: u32,
    attempt: u32,
}

type Ran<T> = Once<T, Infallible, Owner>;

fn is_done<T>(once: Result<Ran<T>, Error>) -> bool {
    matches!(once.unwrap(), Once::Done(_))
}

fn is_done_before<T>(once: Result<Ran<T>, Error>) -> bool {
    matches!(once.unwrap(), Once::DoneBefore(_))
}

#[test]
#[ignore = "needs MariaDB"]
fn an_end_that_comes_late_after_a_late_insert_undoes_no_later_run() {
    let database = Database::new();
    let proxy = Proxy::new(&database.server);
    let (one, other) = (job(&database.url_through(&proxy)), job(&database.url()));
    let mut owner = String::new();
    proxy.hold(END);
    assert!(is_done(one.once("a", |run| {
        owner = run.node().to_owned();
        done()
    })));
    assert!(proxy.is_holding());
    assert!(is_done(other.once("b", |_| done())));
    database.wait_for_rows(0);
    // This is the row that a delayed INSERT of the first client leaves.
    let mut conn = database.conn();
    let insert = format!(
        "INSERT INTO database_lock (`lock`, owner, lease_end, token) \
         VALUES ('nightly', '{owner}', UTC_TIMESTAMP(6) + INTERVAL 20 SECOND, 1000)"
    );
    conn.query_drop(insert).unwrap();
    let before = connections(&mut conn);
    proxy.release();
    eventually("it is carried out", || connections(&mut conn) < before);
    assert_eq!(other.last().unwrap().unwrap().slot(), "b");
    conn.query_drop("DELETE FROM database_lock").unwrap();
    assert!(is_done_before(other.once("b", |_| done())));
}

#[test]
#[ignore = "needs MariaDB"]
fn a_forked_child_that_returns_from_a_run_ends_nothing() {
    alone(|| {
        let database = Database::new();
        let (one, other) = (job(&database.url()), job(&database.url()));
        for panics in [false, true] {
            let slot = if panics { "b" } else { "a" };
            let this = process::id();
            let mut child = 0;
            let begun = Instant::now();
            let ran = catch_unwind(AssertUnwindSafe(|| {
                one.once(slot, |_| {
                    match fork().unwrap() {
                        Fork::Child if panics => panic!("in the child"),
                        Fork::Child => {}
                        Fork::Parent(pid) => child = pid,
                    }
                    if child != 0 {
                        let mut status = None;
                        eventually("the child ends", || {
                            status = waitpid_nohang(child).unwrap();
                            status.is_some()
                        });
                        assert_eq!(status, Some(0));
                        let running = JobOptions::new().wait(false);
                        let told = other.once_with(slot, running, |_| done()).unwrap();
                        assert!(matches!(told, Once::Running(_)), "{told:?}");
                    }
                    done()
                })
            }));
            if process::id() != this {
                let is_right = match ran {
                    Ok(ran) => matches!(ran, Err(Error::Closed)),
                    Err(_) => panics,
                };
                let in_time = begun.elapsed() < seconds(5);
                process::exit(i32::from(!is_right) + 2 * i32::from(!in_time));
            }
            assert!(is_done(ran.unwrap()));
            assert!(is_done_before(other.once(slot, |_| done())));
            database.wait_for_rows(0);
        }
    });
}

#[test]
#[ignore = "needs MariaDB"]
fn who_does_not_wait_is_answered_within_its_limit_too() {
    let database = Database::new();
    let proxy = Proxy::new(&database.server);
    let one = job(&database.url_through(&proxy));
    assert!(is_done(one.once("a", |_| done())));
    database.wait_for_rows(0);
    proxy.blackhole(true);
    let soon = Duration::from_millis(300);
    let now = JobOptions::new()
        .wait(false)
        .deadline(Instant::now() + soon);
    let (told, took) = timed(|| one.at_most_every_with(Duration::ZERO, now, |_| done()));
    assert!(told.is_err(), "{told:?}");
    assert!(took < seconds(2), "{took:?}");
    let (cancel, cancelled) = bounded(1);
    cancel.send(()).unwrap();
    let now = JobOptions::new().wait(false).cancel(cancelled);
    let (told, took) = timed(|| one.at_most_every_with(Duration::ZERO, now, |_| done()));
    assert!(told.is_err(), "{told:?}");
    assert!(took < seconds(2), "{took:?}");
}

#[test]
#[ignore = "needs MariaDB"]
fn a_row_that_was_written_by_hand_is_read_or_told_in_words() {
    let half = r#"'{"job":1,"done":7,"slot":[],"running":{"slot":"x"},"attempts":{"b":-1}}'"#;
    for (change, is_read) in [
        ("journal = ''", false),
        ("journal = 'nonsense'", false),
        ("journal = REPEAT('[', 100000)", false),
        ("journal = '{\"job\":3}'", false),
        (&*format!("journal = {half}"), false),
        ("changed = '0000-00-00'", false),
        ("version = -2147483648", true),
    ] {
        let database = Database::new();
        let one = job(&database.url());
        assert!(is_done(one.once("a", |_| done())));
        let mut conn = database.conn();
        conn.query_drop("SET sql_mode = ''").unwrap();
        conn.query_drop(format!("UPDATE database_lock_job SET {change}"))
            .unwrap();
        let answers = aside(move || {
            let told = [one.last().map(|_| ()), one.last_failure().map(|_| ())];
            let ran = [
                one.once("b", |_| done()),
                one.at_most_every(Duration::ZERO, |_| done()),
            ];
            (told, ran)
        });
        let (told, ran) = answers.recv_timeout(seconds(20)).expect(change);
        let in_words = |error: &Error| error.to_string().contains("cannot be read");
        for told in told {
            assert_eq!(told.is_ok(), is_read, "{change}: {told:?}");
            assert!(told.as_ref().err().is_none_or(in_words), "{told:?}");
        }
        for ran in ran {
            assert!(ran.as_ref().err().is_none_or(in_words), "{ran:?}");
            let is_done = matches!(ran, Ok(Once::Done(())));
            assert_eq!(is_done, is_read, "{change}: {ran:?}");
        }
    }
}

#[test]
#[ignore = "needs MariaDB"]
fn a_table_of_jobs_that_cannot_keep_them_is_refused() {
    for change in [
        "MODIFY `journal` VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL",
        "MODIFY `journal` TEXT CHARACTER SET utf8mb4 NOT NULL",
        "MODIFY `journal` MEDIUMTEXT CHARACTER SET latin1 NOT NULL",
        "MODIFY `journal` MEDIUMTEXT CHARACTER SET utf8mb3 NOT NULL",
        "MODIFY `changed` TIMESTAMP(6) NOT NULL",
        "MODIFY `changed` DATETIME NOT NULL",
        "MODIFY `version` TINYINT NOT NULL",
        "ADD UNIQUE KEY (`version`)",
        "ADD UNIQUE KEY (`version`) USING HASH",
        "DROP COLUMN `changed`",
    ] {
        let database = Database::new();
        let alter = format!("ALTER TABLE database_lock_job {change}");
        database.conn().query_drop(alter).unwrap();
        let refused = Client::connect(&database.url());
        let refused = refused.expect_err(change).to_string();
        assert!(refused.contains("database_lock_job"), "{change}: {refused}");
    }
    for change in [
        "MODIFY `journal` LONGTEXT CHARACTER SET utf8mb4 NOT NULL",
        "MODIFY `version` BIGINT NOT NULL",
        "MODIFY `lock` VARBINARY(255) NOT NULL",
        "ADD COLUMN `more` INT",
    ] {
        let database = Database::new();
        let alter = format!("ALTER TABLE database_lock_job {change}");
        database.conn().query_drop(alter).unwrap();
        let one = Client::connect(&database.url()).expect(change);
        let one = one.job("nightly").unwrap();
        assert!(is_done(one.once("a", |_| done())), "{change}");
        assert!(is_done_before(one.once("a", |_| done())), "{change}");
    }
}

#[test]
#[ignore = "needs MariaDB"]
fn texts_of_any_kind_come_back_as_they_were() {
    let database = Database::new();
    let name = "n'\"\\%_\u{1f512}`;--";
    let one = client(&database.url(), seconds(20)).job(name).unwrap();
    let slot = "s'\"\\\u{1f512}\u{2028}é`%_".repeat(8);
    let message = "\u{1f512}\u{7f}\u{0}\u{1}'\"\\\n".repeat(200);
    let note = "\u{1f512}'\"\\\u{0}".repeat(100);
    let ran = one.once_with(&slot, JobOptions::new().note(&note), |run| {
        run.set_message(&message);
        assert_eq!(run.slot(), slot);
        done()
    });
    assert!(is_done(ran));
    let last = one.last().unwrap().unwrap();
    assert_eq!(last.slot(), slot);
    let kept: String = message.chars().take(512).collect();
    assert_eq!(last.message(), Some(&*kept));
    assert!(
        last.owner()
            .note
            .as_ref()
            .unwrap()
            .starts_with("\u{1f512}'\"\\")
    );
    assert!(is_done_before(one.once(&slot, |_| done())));
    // The largest number of open slots that are kept, with the longest names.
    for number in 0..40 {
        let slot = format!("{}{number:02}", "~\"".repeat(127));
        let failed = one.once(&slot, |run| {
            run.set_message(&message);
            Err::<(), _>(())
        });
        assert!(matches!(failed, Ok(Once::Failed(()))), "{failed:?}");
    }
    let failure = one.last_failure().unwrap().unwrap();
    assert_eq!(
        (failure.message(), failure.outcome()),
        (Some(&*kept), Outcome::Failed)
    );
}

#[test]
#[ignore = "needs MariaDB"]
fn sessions_of_any_kind_run_a_job_once() {
    let server = Arc::new(Server::start(&[
        "--transaction-isolation=READ-COMMITTED",
        "--sql-safe-updates=1",
        "--innodb-snapshot-isolation=ON",
        "--log-bin",
        "--binlog-format=STATEMENT",
        "--server-id=1",
        "--innodb-autoinc-lock-mode=1",
        "--optimizer-switch=derived_merge=off,mrr=on",
    ]));
    let database = Database::empty_on(server);
    let mut conn = database.conn();
    conn.query_drop(CREATE_TABLE).unwrap();
    conn.query_drop("ALTER TABLE database_lock MODIFY `lock` VARBINARY(255) NOT NULL")
        .unwrap();
    let found_rows = OptsBuilder::from_opts(opts(&database.url()))
        .additional_capabilities(CapabilityFlags::CLIENT_FOUND_ROWS)
        .init(vec!["SET SESSION sql_mode = 'ANSI,NO_BACKSLASH_ESCAPES', tx_isolation = 'READ-COMMITTED', time_zone = '+07:00'"]);
    let pool = Client::from_pool(Pool::new(found_rows).unwrap()).unwrap();
    let plain = client(&database.url(), seconds(20));
    let jobs = [pool.job("nightly").unwrap(), plain.job("nightly").unwrap()];
    for slot in 0..6 {
        let slot = slot.to_string();
        for (one, other) in [(0, 1), (1, 0)] {
            let slot = format!("{slot}{one}");
            assert!(is_done(jobs[one].once(&slot, |run| {
                assert_eq!(run.attempt(), 1);
                done()
            })));
            assert!(is_done_before(jobs[other].once(&slot, |_| done())));
        }
    }
    let hour = seconds(3600);
    assert!(is_done_before(jobs[0].at_most_every(hour, |_| done())));
    assert!(is_done_before(jobs[1].at_most_every(hour, |_| done())));
    database.wait_for_rows(0);
}

#[test]
#[ignore = "needs MariaDB"]
fn a_row_of_the_plain_form_is_told_as_the_runner() {
    let database = Database::new();
    let one = job(&database.url());
    let insert = "INSERT INTO database_lock(`lock`, description) VALUES ('nightly', 'by hand')";
    database.conn().query_drop(insert).unwrap();
    let now = JobOptions::new().wait(false);
    let told = one.once_with("a", now, |_| done()).unwrap();
    assert!(
        matches!(&told, Once::Running(owner) if owner.text.as_deref() == Some("by hand")),
        "{told:?}"
    );
    assert_eq!(one.last_failure().unwrap(), None);
}

#[test]
#[ignore = "needs MariaDB"]
fn while_the_row_of_a_run_that_has_ended_waits_to_be_deleted_the_next_one_runs() {
    let database = Database::new();
    let proxy = Proxy::new(&database.server);
    let (one, other) = (job(&database.url_through(&proxy)), job(&database.url()));
    proxy.hold("DELETE FROM `database_lock` WHERE `lock`");
    let (ran, took) = timed(|| one.once("a", |_| done()));
    assert!(is_done(ran));
    assert!(took < seconds(4), "{took:?}");
    eventually("it is held", || proxy.is_holding());
    assert!(is_done_before(other.once("a", |_| done())));
    assert!(is_done(other.once("b", |run| {
        proxy.release();
        thread::sleep(Duration::from_millis(300));
        run.verify().unwrap();
        done()
    })));
    database.wait_for_rows(0);
}

#[test]
#[ignore = "needs MariaDB"]
fn a_client_that_is_closed_in_a_run_tells_what_became_of_it() {
    let database = Database::new();
    let client = client(&database.url(), T);
    let one = client.job("nightly").unwrap();
    let other = job(&database.url());
    let (ran, took) = timed(|| {
        one.once("a", |run| {
            client.close();
            eventually("it is lost", || run.check().is_err());
            done()
        })
    });
    assert!(took < T + LATE, "{took:?}");
    database.wait_for_rows(0);
    assert_eq!(ran.is_ok(), is_done_before(other.once("a", |_| done())));
}

#[test]
#[ignore = "needs MariaDB"]
fn a_run_in_a_drop_during_a_panic_is_done() {
    struct Runs(Job);
    impl Drop for Runs {
        fn drop(&mut self) {
            assert!(thread::panicking());
            assert!(is_done(self.0.once("a", |_| done())));
        }
    }
    let database = Database::new();
    let (one, other) = (job(&database.url()), job(&database.url()));
    let panicked = thread::spawn(move || {
        let _runs = Runs(one);
        panic!("on purpose");
    });
    assert!(panicked.join().is_err());
    assert!(is_done_before(other.once("a", |_| done())));
    assert_eq!(other.last_failure().unwrap(), None);
}

#[test]
#[ignore = "needs MariaDB"]
fn an_end_that_is_killed_while_it_waits_is_written_again() {
    for table in ["database_lock", "database_lock_job"] {
        let database = Database::new();
        let one = job(&database.url());
        let [mut foreign, mut root] = [database.conn(), database.conn()];
        let (locked, is_locked) = bounded(1);
        let killer = thread::spawn(move || {
            let mut foreign: mysql::Conn = is_locked.recv().unwrap();
            let waiting = "SELECT ID FROM information_schema.PROCESSLIST WHERE DB = DATABASE() \
                           AND INFO LIKE '%lease_end%2000-01-01%' AND ID <> CONNECTION_ID()";
            let mut id = None;
            eventually("it waits", || {
                id = root.query_first::<u64, _>(waiting).unwrap();
                id.is_some()
            });
            let kill = format!("KILL QUERY {}", id.unwrap());
            root.query_drop(kill).unwrap();
            foreign.query_drop("ROLLBACK").unwrap();
        });
        let ran = one.once("a", |_| {
            foreign.query_drop("START TRANSACTION").unwrap();
            let lock = format!("SELECT * FROM {table} FOR UPDATE");
            foreign.query_drop(lock).unwrap();
            locked.send(foreign).unwrap();
            done()
        });
        assert!(is_done(ran), "{table}");
        killer.join().unwrap();
    }
}

#[test]
#[ignore = "needs MariaDB"]
fn whatever_is_cut_killed_stalled_or_locked_each_slot_is_done_once() {
    let limit = lasting(15);
    let database = Database::new();
    let relays: Vec<_> = (0..3)
        .map(|_| Relay::new(database.server.port, |_| None))
        .collect();
    let stop = AtomicBool::new(false);
    let last = AtomicI64::new(0);
    let told = Mutex::new(HashMap::<String, Told>::new());
    let tell = |slot: &str, what: &dyn Fn(&mut Told)| {
        what(told.lock().unwrap().entry(slot.to_owned()).or_default());
    };
    thread::scope(|scope| {
        for relay in &relays {
            let (stop, last, tell, database) = (&stop, &last, &tell, &database);
            scope.spawn(move || {
                let client = Client::builder(&database.url_by(relay.port))
                    .lease(seconds(3))
                    .clean_interval(Duration::from_millis(100))
                    .poll_interval(Duration::from_millis(5), Duration::from_millis(50));
                let client = client.connect().unwrap();
                let job = client.job("nightly").unwrap();
                let mut slot = 0;
                while !stop.load(Ordering::Relaxed) {
                    let name = format!("{slot:06}");
                    let ran = job.once(&name, |run| {
                        let token = run.fencing_token().get();
                        if run.check().is_ok() {
                            assert!(last.fetch_max(token, Ordering::SeqCst) < token);
                        }
                        tell(&name, &|told| {
                            told.begun += 1;
                            assert!(told.begun <= run.attempt());
                        });
                        let most = if fastrand::u8(..8) == 0 { 4_000 } else { 40 };
                        thread::sleep(Duration::from_millis(fastrand::u64(..most)));
                        done()
                    });
                    match ran {
                        Ok(Once::Done(())) => tell(&name, &|told| told.done += 1),
                        Ok(Once::DoneBefore(record)) => {
                            if record.slot() == name {
                                tell(&name, &|told| told.attempt = record.attempt());
                            }
                            slot += 1;
                        }
                        Err(Error::Unconfirmed { .. }) => {
                            tell(&name, &|told| told.unconfirmed += 1)
                        }
                        Err(Error::Lost { .. }) => tell(&name, &|told| told.lost += 1),
                        other => panic!("{other:?}"),
                    }
                }
            });
        }
        let mut root = database.conn();
        let begun = Instant::now();
        let slots = || told.lock().unwrap().len();
        // One slot may take longer than the whole time, because of its length and its faults.
        while begun.elapsed() < limit || slots() <= 10 && begun.elapsed() < 6 * limit {
            let pause = Duration::from_millis(fastrand::u64(..300));
            match fastrand::u8(..6) {
                0 => {
                    let relay = fastrand::choice(&relays).unwrap();
                    relay.stall(true);
                    thread::sleep(pause * fastrand::u32(1..25));
                    relay.stall(false);
                }
                1 | 2 => {
                    let at = "SELECT ID FROM information_schema.PROCESSLIST \
                              WHERE DB = DATABASE() AND ID <> CONNECTION_ID()";
                    for id in root.query::<u64, _>(at).unwrap() {
                        let what = fastrand::choice(["CONNECTION", "QUERY"]).unwrap();
                        if fastrand::bool() {
                            drop(root.query_drop(format!("KILL {what} {id}")));
                        }
                    }
                }
                3 | 4 => {
                    let tables = ["database_lock", "database_lock_job", "database_lock_token"];
                    let table = fastrand::choice(tables).unwrap();
                    drop(root.query_drop("START TRANSACTION"));
                    drop(root.query_drop(format!("SELECT * FROM {table} FOR UPDATE")));
                    thread::sleep(pause * 4);
                    drop(root.query_drop("ROLLBACK"));
                }
                _ => thread::sleep(pause),
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    let told = told.into_inner().unwrap();
    let (mut slots, mut twice, mut lost, mut unconfirmed) = (0, 0, 0, 0);
    for (slot, it) in &told {
        slots += 1;
        twice += u32::from(it.begun > 1);
        lost += it.lost;
        unconfirmed += it.unconfirmed;
        assert!(it.done <= 1, "{slot}: {it:?}");
        if it.attempt > 0 {
            assert!(it.done == 1 || it.unconfirmed > 0, "{slot}: {it:?}");
            assert!(it.begun <= it.attempt, "{slot}: {it:?}");
            assert!(it.begun <= 1 + it.lost + it.unconfirmed, "{slot}: {it:?}");
        }
    }
    println!("{slots} slots, {twice} begun again, {lost} lost, {unconfirmed} unconfirmed");
    assert!(10 < slots);
    database.wait_for_rows(0);
}

#[test]
#[ignore = "needs MariaDB"]
fn an_end_that_cannot_be_read_is_told_as_unconfirmed() {
    let database = Database::new();
    let proxy = Proxy::new(&database.server);
    let one = job(&database.url_through(&proxy));
    let ran = one.once("a", |_| {
        let delete = "DELETE FROM database_lock";
        database.conn().query_drop(delete).unwrap();
        // The right to read is gone.
        proxy.refuse("SELECT CAST(`journal`", 1142);
        done()
    });
    assert!(proxy.has_refused());
    assert!(matches!(ran, Err(Error::Unconfirmed { .. })), "{ran:?}");
}

#[test]
#[ignore = "needs MariaDB"]
fn a_run_that_begins_or_ends_on_a_replaced_primary_is_not_told_as_done() {
    let database = Database::new_alone();
    let mut root = database.conn();
    let builder = Client::builder(&database.url()).lease(seconds(3));
    let client = builder.connect_timeout(seconds(1)).connect().unwrap();
    let nightly = client.job("nightly").unwrap();
    // This applies to all accounts but those with this right.
    let ended = nightly.once("a", |_| root.query_drop("SET GLOBAL read_only = 1"));
    assert!(
        matches!(ended, Err(Error::Lost { .. } | Error::Unconfirmed { .. })),
        "{ended:?}"
    );
    let begun = nightly.once("b", |_| done()).unwrap_err().to_string();
    assert!(begun.contains("read-only"), "{begun}");
    root.query_drop("SET GLOBAL read_only = 0").unwrap();
    assert!(is_done(nightly.once("b", |_| done())));
}

#[test]
#[ignore = "needs MariaDB"]
fn on_a_replaced_primary_no_journal_is_created_or_written() {
    let database = Database::new_alone();
    let mut root = database.conn();
    let proxy = Proxy::new(&database.server);
    let builder = Client::builder(&database.url_through(&proxy)).lease(seconds(3));
    let client = builder.connect_timeout(seconds(1)).connect().unwrap();
    let nightly = client.job("nightly").unwrap();
    let journals = "SELECT `lock`, `journal`, `version` FROM database_lock_job";
    let journals =
        |root: &mut mysql::Conn| -> Vec<(String, String, i32)> { root.query(journals).unwrap() };
    proxy.hold("INSERT INTO `database_lock_job`");
    thread::scope(|scope| {
        let begun = scope.spawn(|| nightly.once("a", |_| done()));
        eventually("the lock is taken", || proxy.is_holding());
        root.query_drop("SET GLOBAL read_only = 1").unwrap();
        proxy.release();
        let refused = begun.join().unwrap().unwrap_err().to_string();
        assert!(refused.contains("read-only"), "{refused}");
    });
    assert_eq!(journals(&mut root), []);
    root.query_drop("SET GLOBAL read_only = 0").unwrap();
    let mut begun = Vec::new();
    let ended = nightly.once("a", |_| {
        begun = journals(&mut root);
        root.query_drop("SET GLOBAL read_only = 1")
    });
    assert!(ended.is_err(), "{ended:?}");
    assert_eq!(begun.len(), 1);
    assert_eq!(journals(&mut root), begun);
}

#[test]
#[ignore = "needs MariaDB"]
fn what_a_replaced_primary_knows_of_the_end_of_a_run_confirms_it_to_nobody() {
    let database = Database::new_alone();
    let mut root = database.conn();
    let proxy = Proxy::new(&database.server);
    let nightly = client(&database.url_through(&proxy), T);
    let nightly = nightly.job("nightly").unwrap();
    let ended = thread::scope(|scope| {
        nightly.once("a", |_| {
            proxy.hold_answer_to(END);
            scope.spawn(|| {
                eventually("the end is written", || proxy.is_holding_answer());
                root.query_drop("SET GLOBAL read_only = 1").unwrap();
                // A waiter would delete the row like this when the lease has ended.
                let delete = "DELETE FROM database_lock";
                root.query_drop(delete).unwrap();
                // The end is not written again, so the client reads the journal.
                proxy.refuse(END, 1142);
                proxy.cut();
                proxy.release_answer();
            });
            done()
        })
    });
    assert!(proxy.has_refused());
    assert!(
        matches!(ended, Err(Error::Lost { .. } | Error::Unconfirmed { .. })),
        "{ended:?}"
    );
}

#[test]
#[ignore = "needs MariaDB"]
fn a_call_that_ends_while_its_attempt_is_written_down_may_have_used_it() {
    let database = Database::new();
    let proxy = Proxy::new(&database.server);
    let (one, other) = (job(&database.url_through(&proxy)), job(&database.url()));
    proxy.hold_answer_to("SET `l`.`lease_end` = `l`.`lease_end`");
    let until = JobOptions::new().deadline(Instant::now() + seconds(1));
    let (told, took) = timed(|| one.once_with("a", until, |_| done()));
    assert!(told.is_err(), "{told:?}");
    assert!(took < seconds(1) + LATE, "{took:?}");
    proxy.release_answer();
    let ran = other.once("a", |run| {
        assert_eq!(
            run.retry_of().map(|it| it.outcome()),
            Some(Outcome::Unknown)
        );
        Ok::<_, Infallible>(run.attempt())
    });
    assert!(matches!(ran.unwrap(), Once::Done(2)));
    database.wait_for_rows(0);
}
