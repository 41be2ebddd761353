//! The history of a job: as many of its last runs are kept as its options say.

use std::panic::{AssertUnwindSafe, catch_unwind};

use zklock::{Client, Job, JobOptions, Once, Outcome, RunRecord};

use crate::support::fresh_path;
use crate::support::raw::Raw;
use crate::transport::{Place, on_every_server};

on_every_server! {
    every_run_that_is_kept_is_told_once_and_the_newest_first
    who_says_nothing_keeps_as_many_as_before
    the_record_stays_small_however_many_runs_are_to_be_kept
}

fn scene(place: Place) -> (Client, Job, String) {
    let (client, path) = (
        place.connect(&place.shared().hosts()),
        fresh_path("history"),
    );
    let job = client.job(&path).unwrap();
    (client, job, path)
}

fn run(job: &Job, slot: &str, options: JobOptions<'_>) {
    let ran = job.once_with(slot, options, |run| {
        run.set_message(&format!("ran {slot}"));
        Ok::<_, String>(())
    });
    assert!(matches!(ran, Ok(Once::Done(()))), "{ran:?}");
}

fn slots(history: &[RunRecord]) -> Vec<&str> {
    history.iter().map(RunRecord::slot).collect()
}

fn every_run_that_is_kept_is_told_once_and_the_newest_first(place: Place) {
    let (client, job, path) = scene(place);
    let keep = || JobOptions::new().keep(20);
    assert_eq!(job.history().unwrap(), []);
    run(&job, "1", keep());
    let failed = job.once_with("2", keep(), |run| {
        run.set_message("no disk");
        Err::<(), _>("no disk")
    });
    assert!(matches!(failed, Ok(Once::Failed(_))), "{failed:?}");
    run(&job, "2", keep());
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        job.once_with("3", keep(), |_| -> Result<(), ()> { panic!("half way") })
    }));
    assert!(panicked.is_err());
    let lost = job.once_with("3", keep(), |run| {
        Raw::connect(&place.shared().hosts())
            .delete(run.node())
            .unwrap();
        let during = client.job(&path).unwrap().history().unwrap();
        assert_eq!(during[0].token(), run.fencing_token());
        Ok::<_, ()>(())
    });
    assert!(lost.is_err(), "{lost:?}");
    let running = job.once_with("3", keep(), |run| {
        let during = client.job(&path).unwrap().history().unwrap();
        Ok::<_, ()>(
            during
                .iter()
                .all(|record| record.token() != run.fencing_token()),
        )
    });
    assert!(matches!(running, Ok(Once::Done(true))), "{running:?}");
    let history = job.history().unwrap();
    let told = history
        .iter()
        .map(|run| (run.slot(), run.attempt(), run.outcome()));
    use Outcome::{Done, Failed, Unknown};
    let expected = [
        ("3", 3, Done),
        ("3", 2, Unknown),
        ("3", 1, Failed),
        ("2", 2, Done),
        ("2", 1, Failed),
        ("1", 1, Done),
    ];
    assert_eq!(told.collect::<Vec<_>>(), expected);
    assert_eq!(history[4].message(), Some("no disk"));
    assert_eq!(history[5].message(), Some("ran 1"));
    for run in history.iter().filter(|run| run.outcome() != Unknown) {
        assert!(run.started() <= run.ended().unwrap(), "{run:?}");
        assert_eq!(run.owner().pid, Some(std::process::id()));
    }
}

fn who_says_nothing_keeps_as_many_as_before(place: Place) {
    let (_, job, _) = scene(place);
    for slot in ["1", "2"] {
        run(&job, slot, JobOptions::new());
    }
    assert_eq!(slots(&job.history().unwrap()), ["2"]);
    run(&job, "3", JobOptions::new().keep(3));
    for slot in ["4", "5", "6"] {
        run(&job, slot, JobOptions::new());
    }
    assert_eq!(slots(&job.history().unwrap()), ["6", "5", "4"]);
    // Each slot that is kept is known by itself.
    let again = job.once_with("5", JobOptions::new().any_order(true), |_| Ok::<_, ()>(()));
    let Ok(Once::DoneBefore(record)) = again else {
        panic!("{again:?}")
    };
    assert_eq!(record.message(), Some("ran 5"));
    run(&job, "7", JobOptions::new().keep(0));
    assert_eq!(slots(&job.history().unwrap()), ["7"]);
}

fn the_record_stays_small_however_many_runs_are_to_be_kept(place: Place) {
    let (_, job, path) = scene(place);
    for slot in 0..70 {
        let options = JobOptions::new().keep(u32::MAX);
        let ran = job.once_with(&format!("{slot:0>250}"), options, |run| {
            run.set_message(&"x".repeat(600));
            Ok::<_, ()>(())
        });
        assert!(matches!(ran, Ok(Once::Done(()))), "{ran:?}");
    }
    let history = job.history().unwrap();
    assert!((10..60).contains(&history.len()), "{}", history.len());
    assert!(history[0].slot().ends_with("69"));
    let record = Raw::connect(&place.shared().hosts()).data(&path).unwrap();
    assert!(record.len() < 20_000, "{} bytes", record.len());
}
