//! Jobs, which run once even if answers are lost, rows are deleted and holders die.

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::bounded;
use mysql::prelude::Queryable;
use zklock::mysql::{Client, Job};
use zklock::{Error, JobOptions, LostReason, Once, Outcome, Owner};

use crate::database::{Database, Server, connections};
use crate::proxy::Proxy;
use crate::relay::{CUTS, Cut, Relay};
use crate::support::{aside, eventually, timed};
use crate::{LATE, client, seconds};

/// The statement that ends a lease and writes a journal, and the one that only writes.
const END: &str = "SET `l`.`lease_end` = '2000-01-01'";
const WRITE: &str = "SET `l`.`lease_end` = `l`.`lease_end`";

const T: Duration = Duration::from_secs(2);

fn job(url: &str) -> Job {
    client(url, seconds(20)).job("nightly").unwrap()
}

fn two_jobs(database: &Database) -> (Job, Job) {
    (job(&database.url()), job(&database.url()))
}

fn done() -> Result<(), Infallible> {
    Ok(())
}

type Ran<T> = Once<T, Infallible, Owner>;

fn is_done<T>(once: Result<Ran<T>, Error>) -> bool {
    matches!(once.unwrap(), Once::Done(_))
}

fn is_done_before<T>(once: Result<Ran<T>, Error>) -> bool {
    matches!(once.unwrap(), Once::DoneBefore(_))
}

fn is_lost<T>(once: &Result<Ran<T>, Error>, reason: LostReason) -> bool {
    matches!(once, Err(Error::Lost { why, .. }) if *why == reason)
}

#[test]
#[ignore = "needs MariaDB"]
fn a_slot_is_run_once_and_what_ran_is_remembered() {
    let database = Database::new();
    let (one, other) = two_jobs(&database);
    assert_eq!(other.last().unwrap(), None);
    let mut token = None;
    let ran = one.once("2026-11-22", |run| {
        assert_eq!((run.slot(), run.attempt()), ("2026-11-22", 1));
        assert!(run.retry_of().is_none());
        run.verify().unwrap();
        run.set_message("42 rows");
        token = Some(run.fencing_token());
        Ok::<_, Infallible>(42)
    });
    assert!(matches!(ran.unwrap(), Once::Done(42)));
    for job in [&one, &other] {
        let again = job.once("2026-11-22", |_| -> Result<(), Infallible> {
            panic!("it is done")
        });
        let Once::DoneBefore(record) = again.unwrap() else {
            panic!("it is done")
        };
        assert_eq!(job.last().unwrap(), Some(record.clone()));
        assert_eq!(record.slot(), "2026-11-22");
        assert_eq!(record.outcome(), Outcome::Done);
        assert_eq!(Some(record.token()), token);
        assert_eq!(record.message(), Some("42 rows"));
        assert_eq!(record.owner().pid, Some(std::process::id()));
        assert!(record.started() <= record.ended().unwrap());
        assert_eq!(job.last_failure().unwrap(), None);
    }
    assert!(is_done(other.once("2026-11-23", |_| done())));
    assert!(is_done_before(one.once("2026-11-22", |_| done())));
    database.wait_for_rows(0);
}

#[test]
#[ignore = "needs MariaDB"]
fn of_many_that_come_at_once_one_runs_each_slot() {
    let database = Database::new();
    let running = AtomicU64::new(0);
    let ran = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..3 {
            let client = client(&database.url(), seconds(20));
            for _ in 0..3 {
                let job = client.job("nightly").unwrap();
                let (running, ran) = (&running, &ran);
                scope.spawn(move || {
                    for slot in 0..10 {
                        let once = job.once(&slot.to_string(), |run| {
                            assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0);
                            run.check().unwrap();
                            ran.fetch_add(1, Ordering::SeqCst);
                            running.fetch_sub(1, Ordering::SeqCst);
                            done()
                        });
                        assert!(matches!(
                            once.unwrap(),
                            Once::Done(()) | Once::DoneBefore(_)
                        ));
                    }
                });
            }
        }
    });
    assert_eq!(ran.into_inner(), 10);
    database.wait_for_rows(0);
}

#[test]
#[ignore = "needs MariaDB"]
fn a_run_that_fails_or_panics_is_run_again_and_learns_of_it() {
    let database = Database::new();
    let (one, other) = two_jobs(&database);
    let failed = one.once("a", |run| {
        run.set_message("no disk");
        Err::<(), _>("disk")
    });
    assert!(matches!(failed.unwrap(), Once::Failed("disk")));
    let failure = other.last_failure().unwrap().unwrap();
    assert_eq!(failure.message(), Some("no disk"));
    assert_eq!(failure.outcome(), Outcome::Failed);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        other.once("a", |run| -> Result<(), Infallible> {
            assert_eq!(run.retry_of(), Some(&failure));
            panic!("on purpose")
        })
    }));
    assert!(panicked.is_err());
    let ran = one.once("a", |run| {
        let before = run.retry_of().expect("two have failed");
        assert_eq!(before.outcome(), Outcome::Failed);
        assert_eq!(before.message(), Some("it panicked"));
        Ok::<_, Infallible>(run.attempt())
    });
    assert!(matches!(ran.unwrap(), Once::Done(3)));
    assert_eq!(one.last().unwrap().unwrap().attempt(), 3);
}

#[test]
#[ignore = "needs MariaDB"]
fn a_run_that_dies_is_run_again_by_who_waits() {
    let database = Database::new();
    let proxy = Proxy::new(&database.server);
    let dying = client(&database.url_through(&proxy), T)
        .job("nightly")
        .unwrap();
    let next = job(&database.url());
    let (begun, has_begun) = bounded(1);
    let (end, may_end) = bounded::<()>(1);
    let dies = aside(move || {
        dying.once("a", move |_| {
            begun.send(()).unwrap();
            let _ = may_end.recv();
            done()
        })
    });
    has_begun.recv().unwrap();
    proxy.blackhole(true);
    let ran = next.once("a", |run| {
        let before = run.retry_of().expect("one has died");
        assert_eq!(before.outcome(), Outcome::Unknown);
        assert_eq!(before.ended(), None);
        // The write at the end of the dead run does not end this run.
        proxy.blackhole(false);
        end.send(()).unwrap();
        let lost = dies.recv_timeout(seconds(60)).unwrap();
        assert!(is_lost(&lost, LostReason::NotConfirmed), "{lost:?}");
        run.verify().unwrap();
        Ok::<_, Infallible>(run.attempt())
    });
    assert!(matches!(ran.unwrap(), Once::Done(2)));
    let last = next.last().unwrap().unwrap();
    assert_eq!((last.attempt(), last.outcome()), (2, Outcome::Done));
    database.wait_for_rows(0);
}

#[test]
#[ignore = "needs MariaDB"]
fn a_run_whose_row_is_deleted_is_not_done() {
    let database = Database::new();
    let (one, other) = two_jobs(&database);
    let ran = one.once("a", |_| {
        database
            .conn()
            .query_drop("DELETE FROM database_lock")
            .unwrap();
        let failure = other.last_failure().unwrap().expect("it holds nothing");
        assert_eq!(failure.outcome(), Outcome::Unknown);
        done()
    });
    assert!(is_lost(&ran, LostReason::Evicted), "{ran:?}");
    assert_eq!(other.last().unwrap(), None);
    assert!(is_done(other.once("a", |_| done())));
}

#[test]
#[ignore = "needs MariaDB"]
fn attempts_are_counted_before_they_begin() {
    let database = Database::new();
    let (one, other) = two_jobs(&database);
    let twice = || JobOptions::new().attempts(2);
    let failed = one.once_with("a", twice(), |_| Err::<(), _>("first"));
    assert!(matches!(failed.unwrap(), Once::Failed("first")));
    let lost = other.once_with("a", twice(), |_| {
        database
            .conn()
            .query_drop("DELETE FROM database_lock")
            .unwrap();
        done()
    });
    assert!(lost.is_err());
    let none = one.once_with("a", twice(), |_| done());
    let Once::NoAttemptsLeft(last) = none.unwrap() else {
        panic!("there were two")
    };
    assert_eq!((last.attempt(), last.outcome()), (2, Outcome::Unknown));
    assert!(is_done(one.once_with("b", twice(), |_| done())));
}

#[test]
#[ignore = "needs MariaDB"]
fn who_does_not_wait_or_not_for_long_is_told_who_runs() {
    let database = Database::new();
    let (one, other) = two_jobs(&database);
    let noted = JobOptions::new().note("ask Jo");
    let ran = one.once_with("a", noted, |_| {
        let (cancel, cancelled) = bounded(1);
        let soon = Duration::from_millis(300);
        let canceller = thread::spawn(move || {
            thread::sleep(2 * soon);
            cancel.send(())
        });
        let ways: [&dyn Fn() -> JobOptions<'static>; 3] = [
            &|| JobOptions::new().cancel(cancelled.clone()),
            &|| JobOptions::new().deadline(Instant::now() + soon),
            &|| JobOptions::new().wait(false),
        ];
        for options in ways {
            let (told, took) = timed(|| other.once_with("a", options(), |_| done()));
            assert!(took < seconds(1) + LATE, "{took:?}");
            let Once::Running(runner) = told.unwrap() else {
                panic!("it runs")
            };
            assert_eq!(runner.pid, Some(std::process::id()));
            assert_eq!(runner.note.as_deref(), Some("ask Jo"));
        }
        canceller.join().unwrap().unwrap();
        let running = other.running().unwrap().expect("a run");
        assert!(running.to_string().ends_with(": under way"), "{running}");
        // This is so even for a thread of the same client.
        let same = one.clone();
        let told = thread::spawn(move || {
            let now = JobOptions::new().wait(false);
            same.once_with("a", now, |_| done())
        });
        assert!(matches!(told.join().unwrap().unwrap(), Once::Running(_)));
        done()
    });
    assert!(is_done(ran));
}

#[test]
#[ignore = "needs MariaDB"]
fn a_run_within_a_run_is_told_that_it_would_wait_for_itself() {
    let database = Database::new();
    let (one, _) = two_jobs(&database);
    let ran = one.once("a", |_| {
        let nested = one.once("b", |_| done());
        assert!(matches!(nested, Err(Error::WouldDeadlock { .. })));
        done()
    });
    assert!(is_done(ran));
}

#[test]
#[ignore = "needs MariaDB"]
fn at_most_every_goes_by_the_databases_clock() {
    let database = Database::new();
    let (one, other) = two_jobs(&database);
    let hour = seconds(3600);
    assert!(is_done(one.at_most_every(hour, |_| done())));
    assert!(is_done_before(other.at_most_every(hour, |_| done())));
    // For the database an hour has passed.
    let past = "UPDATE database_lock_job SET journal = \
                REGEXP_REPLACE(journal, '\"started_ms\":[0-9]+', '\"started_ms\":1')";
    database.conn().query_drop(past).unwrap();
    assert!(is_done(other.at_most_every(hour, |_| done())));
    assert!(is_done_before(one.at_most_every(hour, |_| done())));
    assert!(is_done(one.once("2026-11-22", |_| done())));
    assert!(is_done_before(one.at_most_every(hour, |_| done())));
}

#[test]
#[ignore = "needs MariaDB"]
fn the_answer_to_the_end_may_be_lost() {
    let database = Database::new();
    let proxy = Proxy::new(&database.server);
    let (one, other) = (job(&database.url_through(&proxy)), job(&database.url()));
    proxy.swallow_answer_to(END);
    assert!(is_done(one.once("a", |_| done())));
    assert!(proxy.has_swallowed());
    assert!(is_done_before(other.once("a", |_| done())));
    proxy.swallow_answer_to(WRITE);
    assert!(is_done(one.once("b", |run| {
        assert_eq!(run.attempt(), 1);
        done()
    })));
    assert!(proxy.has_swallowed());
    database.wait_for_rows(0);
}

#[test]
#[ignore = "needs MariaDB"]
fn what_the_database_carries_out_late_changes_nothing() {
    for text in [WRITE, END] {
        let database = Database::new();
        let proxy = Proxy::new(&database.server);
        let (one, other) = (job(&database.url_through(&proxy)), job(&database.url()));
        proxy.hold(text);
        assert!(is_done(one.once("a", |_| done())));
        assert!(proxy.is_holding());
        assert!(is_done(other.once("b", |_| {
            proxy.release();
            // The connection that was given up has been read to its end.
            thread::sleep(Duration::from_millis(300));
            done()
        })));
        let last = other.last().unwrap().unwrap();
        assert_eq!((last.slot(), last.attempt()), ("b", 1));
        assert!(is_done_before(one.once("b", |_| done())));
    }
}

#[test]
#[ignore = "needs MariaDB"]
fn what_was_written_before_a_run_began_does_not_come_back_while_it_runs() {
    let database = Database::new();
    let proxy = Proxy::new(&database.server);
    let one = job(&database.url_through(&proxy));
    assert!(is_done(one.once("a", |_| done())));
    // The client asks for the time, and asks again on another connection.
    proxy.hold(WRITE);
    assert!(is_done(one.at_most_every(Duration::ZERO, |_| {
        assert!(proxy.is_holding());
        let mut conn = database.conn();
        let before = connections(&mut conn);
        proxy.release();
        // The connection that was given up ends when its statement has been answered.
        eventually("it is carried out", || connections(&mut conn) < before);
        let running = "SELECT journal LIKE '%running%' FROM database_lock_job";
        assert_eq!(conn.query_first::<bool, _>(running).unwrap(), Some(true));
        done()
    })));
}

#[test]
#[ignore = "needs MariaDB"]
fn an_end_that_cannot_be_written_is_not_told_as_a_loss() {
    let database = Database::new();
    let one = client(&database.url(), T).job("nightly").unwrap();
    let other = job(&database.url());
    let mut foreign = database.conn();
    let (ran, took) = timed(|| {
        one.once("a", |_| {
            foreign.query_drop("START TRANSACTION").unwrap();
            let lock = "SELECT * FROM database_lock_job FOR UPDATE";
            foreign.query_drop(lock).unwrap();
            done()
        })
    });
    assert!(took < T + LATE, "{took:?}");
    assert!(matches!(ran, Err(Error::Unconfirmed { .. })), "{ran:?}");
    foreign.query_drop("ROLLBACK").unwrap();
    let ran = other.once("a", |run| Ok::<_, Infallible>(run.attempt()));
    // The last try may have waited for the lock until then.
    assert!(matches!(ran.unwrap(), Once::Done(2) | Once::DoneBefore(_)));
}

#[test]
#[ignore = "needs MariaDB"]
fn an_end_that_nobody_confirms_is_told_as_such_and_learned_by_the_next() {
    let database = Database::new();
    let proxy = Proxy::new(&database.server);
    let one = client(&database.url_through(&proxy), T)
        .job("nightly")
        .unwrap();
    let other = job(&database.url());
    let (ran, took) = timed(|| {
        one.once("a", |_| {
            proxy.blackhole(true);
            done()
        })
    });
    assert!(took < T + LATE, "{took:?}");
    assert!(matches!(ran, Err(Error::Unconfirmed { .. })), "{ran:?}");
    let next = other.once("a", |_| done()).unwrap();
    assert!(matches!(next, Once::Done(()) | Once::DoneBefore(_)));
    proxy.blackhole(false);
    assert!(is_done_before(other.once("a", |_| done())));
}

/// Runs three slots with one packet lost; returns the number of pieces that this took.
fn run_through(database: &Database, cut: Option<(u64, Cut)>) -> u64 {
    let rule = move |piece| cut.and_then(|(at, cut)| (piece == at).then_some(cut));
    let relay = Relay::new(database.server.port, rule);
    let client = Client::connect(&database.url_by(relay.port)).unwrap();
    let name = format!("{cut:?}").replace(char::is_control, "");
    let (one, other) = (client.job(&name).unwrap(), Client::connect(&database.url()));
    let other = other.unwrap().job(&name).unwrap();
    for slot in ["a", "b"] {
        let mut runs = 0;
        let before = other.state().unwrap();
        let ran = one.once(slot, |run| {
            runs += 1;
            run.check().unwrap();
            assert_eq!(run.state(), before.as_deref(), "{cut:?}");
            run.set_state(slot).unwrap();
            done()
        });
        assert!(is_done(ran), "{cut:?}");
        assert_eq!(runs, 1, "{cut:?}");
        assert_eq!(other.state().unwrap().as_deref(), Some(slot.as_bytes()));
        assert!(is_done_before(other.once(slot, |_| done())), "{cut:?}");
        assert_eq!(other.last().unwrap().unwrap().attempt(), 1, "{cut:?}");
    }
    let failed = one.once("c", |run| {
        run.set_state("c").unwrap();
        Err::<(), _>("no disk")
    });
    assert!(matches!(failed.unwrap(), Once::Failed("no disk")));
    assert_eq!(other.state().unwrap().as_deref(), Some(&b"b"[..]));
    let failure = other.last_failure().unwrap().unwrap();
    assert_eq!(failure.outcome(), Outcome::Failed, "{cut:?}");
    assert!(is_done(one.at_most_every(Duration::ZERO, |_| done())));
    relay.pieces()
}

#[test]
#[ignore = "needs MariaDB"]
fn whatever_packet_is_lost_a_slot_is_run_once() {
    let database = Database::new();
    let pieces = run_through(&database, None);
    assert!(pieces > 40, "{pieces}");
    let next = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let run = next.fetch_add(1, Ordering::Relaxed);
                    let cut = CUTS[usize::try_from(run % 3).unwrap()];
                    if run / 3 > pieces {
                        break;
                    }
                    run_through(&database, Some((run / 3, cut)));
                }
            });
        }
    });
    database.wait_for_rows(0);
}

#[test]
#[ignore = "needs MariaDB"]
fn slots_are_run_by_themselves_and_again_when_told_to() {
    let database = Database::new();
    let (one, other) = two_jobs(&database);
    let alone = || JobOptions::new().any_order(true);
    assert!(is_done(one.once("22", |_| done())));
    assert!(is_done(other.once_with("20", alone(), |_| done())));
    for job in [&one, &other] {
        assert!(is_done_before(job.once_with("20", alone(), |_| done())));
    }
    let again = || JobOptions::new().again(true);
    assert!(is_done(one.once_with("22", again(), |_| done())));
    assert!(is_done_before(other.once("21", |_| done())));
    for slot in 1..=70 {
        let slot = format!("{slot:0>250}");
        assert!(is_done(one.once_with(&slot, alone(), |_| done())));
    }
    let old = other.once_with(&format!("{:0>250}", 1), alone(), |_| done());
    assert!(matches!(old, Err(Error::SlotForgotten { .. })), "{old:?}");
}

#[test]
#[ignore = "needs MariaDB"]
fn the_last_runs_are_kept() {
    let database = Database::new();
    let (one, other) = two_jobs(&database);
    let keep = || JobOptions::new().keep(3);
    for slot in ["1", "2"] {
        assert!(is_done(one.once_with(slot, keep(), |_| done())));
    }
    let failed = one.once("3", |_| Err::<(), _>("no disk"));
    assert!(matches!(failed, Ok(Once::Failed(_))), "{failed:?}");
    assert!(is_done(one.once("3", |_| done())));
    let history = other.history().unwrap();
    let told = history.iter().map(|run| (run.slot(), run.outcome()));
    let expected = [
        ("3", Outcome::Done),
        ("3", Outcome::Failed),
        ("2", Outcome::Done),
    ];
    assert_eq!(told.collect::<Vec<_>>(), expected);
    assert!(history.iter().all(|run| run.ended().is_some()));
}

#[test]
#[ignore = "needs MariaDB"]
fn a_limit_for_a_run_is_refused() {
    let database = Database::new();
    let job = job(&database.url());
    let limited = JobOptions::new().max_time(Duration::from_secs(60));
    let refused = job.once_with("1", limited, |_| done());
    assert!(
        matches!(refused, Err(Error::Unsupported { .. })),
        "{refused:?}"
    );
}

#[test]
#[ignore = "needs MariaDB"]
fn any_bytes_can_be_left_for_the_next_run_if_there_is_room() {
    let database = Database::new();
    let (one, other) = two_jobs(&database);
    let all: Vec<u8> = (0..=255).cycle().take(8192).collect();
    let texts = [&all[..], b"'\"\\%\n", b"\0", "\u{1f980}".as_bytes(), b""];
    for (slot, state) in texts.into_iter().enumerate() {
        let ran = one.once(&slot.to_string(), |run| {
            let refused = run.set_state(vec![0; 8193]);
            assert!(matches!(
                refused,
                Err(Error::BadArgument { name: "state", .. })
            ));
            run.set_state(state).unwrap();
            done()
        });
        assert!(is_done(ran));
        assert_eq!(other.state().unwrap().as_deref(), Some(state));
    }
}

#[test]
#[ignore = "needs MariaDB"]
fn without_its_table_a_job_says_so_and_locks_go_on() {
    let database = Database::new();
    database
        .conn()
        .query_drop("DROP TABLE database_lock_job")
        .unwrap();
    let client = Client::connect(&database.url()).unwrap();
    drop(client.mutex("a").unwrap().lock().unwrap());
    let refused = client.job("a").unwrap().once("a", |_| done()).unwrap_err();
    assert!(refused.to_string().contains("create_table"), "{refused}");
    client.create_table().unwrap();
    assert!(is_done(client.job("a").unwrap().once("a", |_| done())));
}

#[test]
#[ignore = "needs MariaDB"]
fn a_table_in_which_two_jobs_could_be_one_is_refused() {
    for (change, why) in [
        (
            "MODIFY `lock` VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
            "_bin",
        ),
        ("DROP PRIMARY KEY", "unique"),
        ("MODIFY `lock` VARBINARY(255), ENGINE = MyISAM", "InnoDB"),
    ] {
        let database = Database::empty_on(Server::shared());
        let mut conn = database.conn();
        conn.query_drop(zklock::mysql::CREATE_TABLE).unwrap();
        conn.query_drop(format!("ALTER TABLE database_lock_job {change}"))
            .unwrap();
        let refused = Client::connect(&database.url())
            .expect_err(change)
            .to_string();
        assert!(refused.contains(why), "{change}: {refused}");
    }
}

#[test]
#[ignore = "needs MariaDB"]
fn a_wait_while_nothing_answers_ends_at_its_limit() {
    let database = Database::new();
    let proxy = Proxy::new(&database.server);
    let one = job(&database.url_through(&proxy));
    assert!(is_done(one.once("a", |_| done())));
    proxy.blackhole(true);
    let until = JobOptions::new().deadline(Instant::now() + Duration::from_millis(500));
    let (refused, took) = timed(|| one.once_with("b", until, |_| done()));
    assert!(took < seconds(1) + LATE, "{took:?}");
    assert!(
        matches!(refused, Err(Error::Database { .. })),
        "{refused:?}"
    );
    let (cancel, cancelled) = bounded(1);
    let waiting = one.clone();
    let waits =
        aside(move || waiting.once_with("b", JobOptions::new().cancel(cancelled), |_| done()));
    cancel.send(()).unwrap();
    assert!(waits.recv_timeout(LATE).unwrap().is_err());
    proxy.blackhole(false);
    eventually("it goes on", || one.once("b", |_| done()).is_ok());
}
