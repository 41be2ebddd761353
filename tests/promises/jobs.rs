//! A job is run once per slot, over our own client, on the embedded server and on a real one.

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::bounded;
use zklock::{Client, Error, Job, JobOptions, LockOptions, LostReason, Once, Outcome};

use crate::support::proxy::Proxy;
use crate::support::raw::{Raw, assert_nothing_left, op};
use crate::support::{aside, eventually, fresh_path, timed};
use crate::transport::{Place, SOON, expire_owner, on_every_server, wait_for_queue};

// The end of a run needs a transaction, which a handle does not have.
on_every_server! {
    a_slot_is_run_once_and_what_ran_is_remembered
    a_slot_below_the_last_one_is_done
    of_many_that_come_at_once_one_runs
    a_run_that_fails_is_run_again_and_learns_of_it
    a_panic_is_a_failure_and_the_next_one_learns_of_it
    a_run_that_dies_is_run_again_by_who_waits
    a_run_that_is_evicted_is_not_done
    attempts_are_counted_before_they_begin
    who_does_not_wait_is_told_who_runs
    who_waits_for_a_limited_time_is_told_who_runs
    who_waits_behind_another_waiter_is_not_told_that_nobody_runs
    a_cancelled_wait_ends_and_runs_nothing
    at_most_every_goes_by_the_servers_clock
    the_reply_to_the_end_may_be_lost
    other_locks_on_the_path_exclude_and_leave_the_record
    a_lock_that_is_in_use_is_refused
    the_end_of_a_run_leaves_what_has_taken_the_place_of_its_record
    late_machines_cost_one_read
}

fn done() -> Result<(), Infallible> {
    Ok(())
}

fn scene(place: Place) -> (Client, Client, String) {
    let hosts = place.shared().hosts();
    let path = fresh_path("job");
    (place.connect(&hosts), place.connect(&hosts), path)
}

fn job(client: &Client, path: &str) -> Job {
    client.job(path).unwrap()
}

fn is_done_before<T, E>(once: &Once<T, E>) -> bool {
    matches!(once, Once::DoneBefore(_))
}

fn a_slot_is_run_once_and_what_ran_is_remembered(place: Place) {
    let (one, other, path) = scene(place);
    let (one, other) = (job(&one, &path), job(&other, &path));
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
    assert!(matches!(
        other.once("2026-11-23", |_| done()).unwrap(),
        Once::Done(())
    ));
    assert_nothing_left(&place.shared().hosts(), &path);
}

fn a_slot_below_the_last_one_is_done(place: Place) {
    let (one, _, path) = scene(place);
    let job = job(&one, &path);
    assert!(matches!(job.once("b", |_| done()).unwrap(), Once::Done(())));
    assert!(is_done_before(&job.once("a", |_| done()).unwrap()));
    assert!(matches!(job.once("c", |_| done()).unwrap(), Once::Done(())));
    // A run for a time belongs to no slot, and leaves the slots as they are.
    let every = job.at_most_every(Duration::ZERO, |_| done());
    assert!(matches!(every.unwrap(), Once::Done(())));
    assert_eq!(job.last().unwrap().unwrap().slot(), "");
    for slot in ["b", "c"] {
        assert!(is_done_before(&job.once(slot, |_| done()).unwrap()));
    }
    for slot in ["", "two\nlines", &"x".repeat(257)] {
        let refused = job.once(slot, |_| done());
        assert!(matches!(
            refused,
            Err(Error::BadArgument { name: "slot", .. })
        ));
    }
}

fn of_many_that_come_at_once_one_runs(place: Place) {
    let (one, other, path) = scene(place);
    let runs = AtomicUsize::new(0);
    for slot in ["1", "2", "3"] {
        thread::scope(|scope| {
            for i in 0..8 {
                let job = job([&one, &other][i % 2], &path);
                let runs = &runs;
                scope.spawn(move || {
                    let ran = job.once(slot, |_| {
                        runs.fetch_add(1, Ordering::SeqCst);
                        done()
                    });
                    ran.unwrap()
                });
            }
        });
    }
    assert_eq!(runs.into_inner(), 3);
}

fn a_run_that_fails_is_run_again_and_learns_of_it(place: Place) {
    let (one, other, path) = scene(place);
    let (one, other) = (job(&one, &path), job(&other, &path));
    let failed = one.once("a", |run| {
        run.set_message("no disk");
        Err::<(), _>(7)
    });
    assert!(matches!(failed.unwrap(), Once::Failed(7)));
    assert_eq!(other.last().unwrap(), None);
    let failure = other.last_failure().unwrap().unwrap();
    assert_eq!((failure.slot(), failure.attempt()), ("a", 1));
    assert_eq!(failure.outcome(), Outcome::Failed);
    assert_eq!(failure.message(), Some("no disk"));
    assert!(failure.ended().is_some());
    let again = other.once("a", |run| {
        assert_eq!(run.attempt(), 2);
        assert_eq!(run.retry_of(), Some(&failure));
        done()
    });
    assert!(matches!(again.unwrap(), Once::Done(())));
    // The failure of one slot does not count for the next one.
    let next = one.once("b", |run| {
        assert_eq!(run.attempt(), 1);
        assert!(run.retry_of().is_none());
        done()
    });
    assert!(matches!(next.unwrap(), Once::Done(())));
}

fn a_panic_is_a_failure_and_the_next_one_learns_of_it(place: Place) {
    let (one, other, path) = scene(place);
    let (one, other) = (job(&one, &path), job(&other, &path));
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        one.once("a", |_| -> Result<(), Infallible> {
            panic!("half way through the import")
        })
    }));
    assert!(panicked.is_err());
    let ran = other.once("a", |run| {
        let before = run.retry_of().unwrap();
        assert_eq!(before.outcome(), Outcome::Failed);
        assert!(before.ended().is_some());
        done()
    });
    assert!(matches!(ran.unwrap(), Once::Done(())));
}

fn a_run_that_dies_is_run_again_by_who_waits(place: Place) {
    let (dying, next, path) = scene(place);
    let (begun, has_begun) = bounded(1);
    let (end, may_end) = bounded::<()>(1);
    let dying_job = job(&dying, &path);
    let dies = aside(move || {
        dying_job.once("a", move |run| {
            begun.send(run.node().to_owned()).unwrap();
            let _ = may_end.recv();
            done()
        })
    });
    let node = has_begun.recv().unwrap();
    let waiting = job(&next, &path);
    let ran = aside(move || {
        waiting.once("a", |run| {
            let before = run.retry_of().unwrap();
            assert_eq!(before.outcome(), Outcome::Unknown);
            assert_eq!(before.ended(), None);
            Ok::<_, Infallible>(run.attempt())
        })
    });
    wait_for_queue(&next, &path, 2);
    expire_owner(place.shared(), &node);
    assert!(matches!(
        ran.recv_timeout(SOON).unwrap().unwrap(),
        Once::Done(2)
    ));
    end.send(()).unwrap();
    let lost = dies.recv_timeout(SOON).unwrap();
    assert!(matches!(lost, Err(Error::Lost { .. })), "{lost:?}");
    let last = job(&next, &path).last().unwrap().unwrap();
    assert_eq!(last.attempt(), 2);
}

fn a_run_that_is_evicted_is_not_done(place: Place) {
    let (one, other, path) = scene(place);
    let ran = job(&one, &path).once("a", |_| {
        let running = other.contenders(&path).unwrap();
        running[0].evict().unwrap();
        // Before it is done, it is known to have begun and to hold nothing.
        let failure = job(&other, &path).last_failure().unwrap().unwrap();
        assert_eq!(failure.outcome(), Outcome::Unknown);
        done()
    });
    let error = ran.unwrap_err();
    let evicted = matches!(
        error,
        Error::Lost {
            why: LostReason::Evicted,
            ..
        }
    );
    assert!(evicted, "{error:?}");
    assert_eq!(job(&other, &path).last().unwrap(), None);
    assert!(matches!(
        job(&other, &path).once("a", |_| done()).unwrap(),
        Once::Done(())
    ));
}

fn attempts_are_counted_before_they_begin(place: Place) {
    let (one, _, path) = scene(place);
    let job = job(&one, &path);
    let twice = || JobOptions::new().attempts(2);
    let failed = job.once_with("a", twice(), |_| Err::<(), _>("first"));
    assert!(matches!(failed.unwrap(), Once::Failed("first")));
    let hosts = place.shared().hosts();
    let dying = place.connect(&hosts);
    let dies = dying.job(&path).unwrap().once_with("a", twice(), |run| {
        expire_owner(place.shared(), run.node());
        done()
    });
    assert!(matches!(dies, Err(Error::Lost { .. })));
    let none = job.once_with("a", twice(), |_| Err::<(), _>("third"));
    let Once::NoAttemptsLeft(last) = none.unwrap() else {
        panic!("there were two")
    };
    assert_eq!((last.attempt(), last.outcome()), (2, Outcome::Unknown));
    // Another slot has its own attempts, which are not mixed up with these.
    let failed = job.once_with("b", twice(), |_| Err::<(), _>("b"));
    assert!(matches!(failed.unwrap(), Once::Failed("b")));
    let none = job.once_with("a", twice(), |_| done());
    assert!(matches!(none.unwrap(), Once::NoAttemptsLeft(_)));
    let again = job.once_with("b", twice(), |run| Ok::<_, &str>(run.attempt()));
    assert!(matches!(again.unwrap(), Once::Done(2)));
    assert!(is_done_before(&job.once("a", |_| done()).unwrap()));
}

fn who_does_not_wait_is_told_who_runs(place: Place) {
    let (one, other, path) = scene(place);
    let ran = job(&one, &path).once("a", |run| {
        let now = JobOptions::new().wait(false);
        let other = job(&other, &path).once_with("a", now, |_| done());
        let Once::Running(runner) = other.unwrap() else {
            panic!("it runs")
        };
        assert_eq!(runner.node(), run.node());
        assert_eq!(runner.token(), run.fencing_token());
        done()
    });
    assert!(matches!(ran.unwrap(), Once::Done(())));
}

fn who_waits_for_a_limited_time_is_told_who_runs(place: Place) {
    let (one, other, path) = scene(place);
    let ran = job(&one, &path).once("a", |run| {
        let shortly = JobOptions::new().deadline(Instant::now() + Duration::from_secs(1));
        let (told, took) = timed(|| job(&other, &path).once_with("a", shortly, |_| done()));
        assert!(took < SOON, "{took:?}");
        let Once::Running(runner) = told.unwrap() else {
            panic!("it runs")
        };
        assert_eq!(runner.node(), run.node());
        done()
    });
    assert!(matches!(ran.unwrap(), Once::Done(())));
    assert_nothing_left(&place.shared().hosts(), &path);
}

fn who_waits_behind_another_waiter_is_not_told_that_nobody_runs(place: Place) {
    let (one, other, path) = scene(place);
    let hosts = place.shared().hosts();
    let ran = job(&one, &path).once("a", |_| {
        let second = job(&other, &path);
        let second = aside(move || second.once("a", |_| done()));
        wait_for_queue(&one, &path, 2);
        let third = job(&place.connect(&hosts), &path);
        let (end, cancelled) = bounded(1);
        let until_it_waits = JobOptions::new()
            .cancel(cancelled)
            .on_wait(|_| end.try_send(()).unwrap_or_default());
        let told = third.once_with("a", until_it_waits, |_| done());
        let Err(error @ Error::GaveUp { .. }) = told else {
            panic!("{told:?}")
        };
        let said = error.to_string();
        assert!(said.contains("who runs it is not known"), "{said}");
        Ok::<_, Infallible>(second)
    });
    let Once::Done(second) = ran.unwrap() else {
        panic!("it was not run before")
    };
    let second = second.recv_timeout(SOON).unwrap();
    assert!(is_done_before(&second.unwrap()));
}

fn a_cancelled_wait_ends_and_runs_nothing(place: Place) {
    let (one, other, path) = scene(place);
    let ran = job(&one, &path).once("a", |_| {
        let (cancel, cancelled) = bounded(1);
        let (look, looked) = bounded(8);
        let waiting = job(&other, &path);
        let told = aside(move || {
            let options = JobOptions::new().cancel(cancelled);
            let options = options.on_wait(|_| {
                let _ = look.try_send(());
            });
            waiting.once_with("a", options, |_| -> Result<(), Infallible> {
                panic!("it was cancelled")
            })
        });
        // A waiter that has not looked yet has seen nobody.
        looked.recv_timeout(SOON).unwrap();
        cancel.send(()).unwrap();
        let told = told.recv_timeout(SOON).unwrap().unwrap();
        assert!(matches!(told, Once::Running(_)));
        done()
    });
    assert!(matches!(ran.unwrap(), Once::Done(())));
    let (cancel, cancelled) = bounded(1);
    cancel.send(()).unwrap();
    let options = JobOptions::new().cancel(cancelled);
    let told = job(&other, &path).once_with("b", options, |_| done());
    assert_eq!(told.unwrap_err(), Error::GaveUp { path: path.clone() });
    assert_nothing_left(&place.shared().hosts(), &path);
}

fn at_most_every_goes_by_the_servers_clock(place: Place) {
    const LONG: Duration = Duration::from_secs(3600);
    let (one, other, path) = scene(place);
    let (one, other) = (job(&one, &path), job(&other, &path));
    assert!(matches!(
        one.at_most_every(LONG, |_| Err::<(), _>(1)).unwrap(),
        Once::Failed(1)
    ));
    assert!(matches!(
        one.at_most_every(LONG, |run| Ok::<_, ()>(run.attempt()))
            .unwrap(),
        Once::Done(2)
    ));
    let early = other.at_most_every(LONG, |_| done()).unwrap();
    assert!(is_done_before(&early));
    let began = one.last().unwrap().unwrap().started();
    // The servers' clock decides, so wait until it has advanced.
    let shortly = Duration::from_millis(300);
    let mut ran = 0;
    eventually("it is due again", || {
        let again = other.at_most_every(shortly, |_| done()).unwrap();
        ran += 1;
        matches!(again, Once::Done(()))
    });
    let again = other.last().unwrap().unwrap().started();
    assert!(
        shortly <= again.duration_since(began).unwrap(),
        "after {ran}"
    );
    // Attempts of a time count for that long.
    let once = || JobOptions::new().attempts(1);
    let every = |every| one.at_most_every_with(every, once(), |_| Err::<(), _>(1));
    eventually("it is due again", || {
        matches!(every(shortly).unwrap(), Once::Failed(1))
    });
    assert!(matches!(every(LONG / 2), Ok(Once::DoneBefore(_))));
    let tried = every(shortly).unwrap();
    assert!(!is_done_before(&tried), "{tried:?}");
    eventually("there are attempts again", || {
        matches!(every(shortly).unwrap(), Once::Failed(1))
    });
}

fn the_reply_to_the_end_may_be_lost(place: Place) {
    let path = fresh_path("unheard");
    let proxy = Proxy::start(&place.shared().hosts());
    let client = place.connect(&proxy.hosts());
    let job = job(&client, &path);
    for round in 0..5 {
        let slot = format!("{round}");
        let ran = job.once(&slot, |run| {
            // The requests for the proof of the lock must not take the reply's place.
            run.verify().unwrap();
            proxy.drop_next_reply_to(op::MULTI);
            done()
        });
        assert!(matches!(ran, Ok(Once::Done(()))), "{ran:?}");
        assert!(proxy.fired());
        assert_eq!(job.last().unwrap().unwrap().slot(), slot);
        assert!(is_done_before(&job.once(&slot, |_| done()).unwrap()));
    }
    assert_nothing_left(&place.shared().hosts(), &path);
}

fn other_locks_on_the_path_exclude_and_leave_the_record(place: Place) {
    let (one, other, path) = scene(place);
    let job = job(&one, &path);
    let mutex = other.mutex(&path).unwrap();
    let order = Mutex::new(Vec::new());
    let ran = job.once("a", |_| {
        assert!(mutex.try_lock().unwrap().is_none());
        assert!(matches!(
            one.mutex(&path).unwrap().lock(),
            Err(Error::WouldDeadlock { .. })
        ));
        assert!(matches!(
            job.once("a", |_| done()),
            Err(Error::WouldDeadlock { .. })
        ));
        done()
    });
    assert!(matches!(ran.unwrap(), Once::Done(())));
    let guard = mutex.lock().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let ran = job.once("b", |_| {
                order.lock().unwrap().push("the job");
                done()
            });
            assert!(matches!(ran.unwrap(), Once::Done(())));
        });
        wait_for_queue(&other, &path, 2);
        order.lock().unwrap().push("the mutex");
        guard.unlock().unwrap();
    });
    assert_eq!(order.into_inner().unwrap(), ["the mutex", "the job"]);
    assert_eq!(job.last().unwrap().unwrap().slot(), "b");
    // A mark does not take the record's place.
    let tracking = LockOptions::new().track_abandonment();
    let marks = other.mutex(&path).unwrap().lock_with(tracking);
    assert!(matches!(marks, Err(Error::Unmarked { .. })));
    assert_eq!(job.last().unwrap().unwrap().slot(), "b");
}

fn a_lock_that_is_in_use_is_refused(place: Place) {
    let (one, other, path) = scene(place);
    let guard = other.mutex(&path).unwrap().lock().unwrap();
    let job = job(&one, &path);
    let before = one.metrics().requests.creates;
    for refused in [
        job.once("a", |_| done()).map(|_| ()),
        job.at_most_every(SOON, |_| done()).map(|_| ()),
        job.last().map(|_| ()),
    ] {
        assert!(
            matches!(refused, Err(Error::Unmarked { .. })),
            "{refused:?}"
        );
    }
    assert_eq!(one.metrics().requests.creates, before);
    guard.unlock().unwrap();
    assert_nothing_left(&place.shared().hosts(), &path);
}

fn the_end_of_a_run_leaves_what_has_taken_the_place_of_its_record(place: Place) {
    let (one, _, path) = scene(place);
    let hosts = place.shared().hosts();
    let mut raw = Raw::connect(&hosts);
    let ended = job(&one, &path).once("a", |_| {
        raw.set_data(&path, b"somebody's").unwrap();
        done()
    });
    let Err(error @ Error::Unconfirmed { .. }) = ended else {
        panic!("{ended:?}")
    };
    // Nothing was waited for.
    let said = error.to_string();
    assert!(said.contains("run is not confirmed: "), "{said}");
    assert_eq!(raw.data(&path).unwrap(), b"somebody's");
    assert_nothing_left(&hosts, &path);
}

fn late_machines_cost_one_read(place: Place) {
    let (one, other, path) = scene(place);
    assert!(matches!(
        job(&one, &path).once("a", |_| done()).unwrap(),
        Once::Done(())
    ));
    let mut raw = Raw::connect(&place.shared().hosts());
    let before = raw.stat(&path).unwrap();
    let asked = other.metrics().requests;
    assert!(is_done_before(
        &job(&other, &path).once("a", |_| done()).unwrap()
    ));
    let now = other.metrics().requests;
    assert_eq!(now.reads - asked.reads, 1);
    assert_eq!(now.creates, asked.creates);
    assert_eq!(raw.stat(&path).unwrap(), before);
}
