//! Slots that are run out of their order, and slots that are run again.

use std::convert::Infallible;
use std::time::Duration;

use zklock::{Error, Job, JobOptions, Once, Outcome, RunRecord};

use crate::support::fresh_path;
use crate::support::raw::Raw;
use crate::transport::{Place, on_every_server};

on_every_server! {
    a_slot_that_was_left_out_is_run_once_though_a_higher_one_is_done
    runs_in_order_and_by_themselves_share_one_record
    a_slot_that_is_done_is_run_once_more_when_told_to
    a_slot_that_is_forgotten_is_run_again
    attempts_at_a_slot_are_counted_whatever_others_do
    who_repeats_a_slot_learns_of_it_whatever_has_failed_since
    nobody_forgets_a_slot_while_the_job_is_run
    what_is_not_known_any_more_is_told_and_not_run
}

fn scene(place: Place) -> (Job, Job) {
    let (hosts, path) = (place.shared().hosts(), fresh_path("order"));
    let job = || place.connect(&hosts).job(&path).unwrap();
    (job(), job())
}

fn alone() -> JobOptions<'static> {
    JobOptions::new().any_order(true)
}

fn again() -> JobOptions<'static> {
    JobOptions::new().again(true)
}

/// Runs the job; returns the record that kept it from running.
fn run(job: &Job, slot: &str, options: JobOptions<'_>) -> Option<RunRecord> {
    match job.once_with(slot, options, |_| Ok::<_, Infallible>(())) {
        Ok(Once::Done(())) => None,
        Ok(Once::DoneBefore(record)) => Some(record),
        other => panic!("{other:?}"),
    }
}

fn a_slot_that_was_left_out_is_run_once_though_a_higher_one_is_done(place: Place) {
    let (one, other) = scene(place);
    for options in [JobOptions::new, alone] {
        assert_eq!(run(&one, "22", options()), None);
        assert_eq!(run(&other, "20", alone()), None);
        for job in [&one, &other] {
            for slot in ["20", "22"] {
                let record = run(job, slot, alone()).expect("it is done");
                assert_eq!((record.slot(), record.attempt()), (slot, 1));
                assert_eq!(record.outcome(), Outcome::Done);
                let text = record.to_string();
                assert!(text.starts_with(&format!("slot {slot}, attempt 1, begun 2")));
            }
        }
        assert_eq!(run(&one, "21", alone()), None);
        assert!(one.forget().unwrap().is_some());
    }
}

fn runs_in_order_and_by_themselves_share_one_record(place: Place) {
    let (one, other) = scene(place);
    assert_eq!(run(&one, "25", alone()), None);
    // In order, only that slot is done yet.
    assert!(run(&other, "25", JobOptions::new()).is_some());
    assert_eq!(run(&other, "23", JobOptions::new()), None);
    let below = run(&one, "22", JobOptions::new()).expect("it is done");
    assert_eq!(below.slot(), "23");
    assert_eq!(run(&one, "22", alone()), None);
    assert_eq!(run(&one, "24", JobOptions::new()), None);
    assert!(run(&one, "25", JobOptions::new()).is_some());
    assert_eq!(run(&one, "26", JobOptions::new()), None);
    // From the first run out of order on, the slots in order are kept by themselves, too.
    for slot in ["22", "23", "24", "25", "26"] {
        assert!(run(&other, slot, alone()).is_some(), "{slot}");
    }
}

fn a_slot_that_is_done_is_run_once_more_when_told_to(place: Place) {
    let (one, other) = scene(place);
    for slot in ["1", "2", "3"] {
        assert_eq!(run(&one, slot, JobOptions::new()), None);
    }
    assert_eq!(run(&other, "2", again()), None);
    let last = other.last().unwrap().unwrap();
    assert_eq!((last.slot(), last.attempt()), ("2", 1));
    // A run that fails leaves the slot done.
    let failed = other.once_with("3", again(), |run| {
        assert!(run.retry_of().is_none());
        Err::<(), _>("no disk")
    });
    assert!(matches!(failed, Ok(Once::Failed("no disk"))), "{failed:?}");
    for slot in ["2", "3"] {
        let record = run(&one, slot, JobOptions::new()).expect("it is done");
        assert_eq!(record.slot(), slot);
    }
    let retry = other.once_with("3", again(), |run| {
        assert_eq!(run.attempt(), 2);
        Ok::<_, Infallible>(run.retry_of().is_some())
    });
    assert!(matches!(retry, Ok(Once::Done(true))), "{retry:?}");
    assert_eq!(run(&one, "4", JobOptions::new()), None);
    // Without a slot, the interval does not count.
    let hour = Duration::from_secs(3600);
    let ran = one.at_most_every_with(hour, again(), |_| Ok::<_, Infallible>(()));
    assert!(matches!(ran, Ok(Once::Done(()))), "{ran:?}");
}

/// Runs the job without success.
fn fail(job: &Job, slot: &str, options: JobOptions<'_>) {
    let failed = job.once_with(slot, options, |_| Err::<(), _>("no disk"));
    assert!(matches!(failed, Ok(Once::Failed(_))), "{failed:?}");
}

fn attempts_at_a_slot_are_counted_whatever_others_do(place: Place) {
    let (one, other) = scene(place);
    let twice = || alone().attempts(2);
    fail(&one, "1", twice());
    assert_eq!(run(&other, "2", JobOptions::new()), None);
    fail(&one, "1", twice());
    for slot in ["3", "5"] {
        assert_eq!(run(&other, slot, JobOptions::new()), None);
        fail(&other, "6", JobOptions::new());
        let none = one.once_with("1", twice(), |_| Ok::<_, Infallible>(()));
        let Ok(Once::NoAttemptsLeft(last)) = none else {
            panic!("{none:?}")
        };
        assert_eq!((last.slot(), last.attempt()), ("1", 2));
    }
    // More are to be had for who asks for more.
    assert_eq!(run(&one, "1", alone().attempts(3)), None);
}

fn who_repeats_a_slot_learns_of_it_whatever_has_failed_since(place: Place) {
    let (one, other) = scene(place);
    for slot in ["1", "2", "3"] {
        fail(&one, slot, alone());
    }
    for slot in ["1", "2", "3"] {
        let ran = other.once_with(slot, alone(), |run| {
            let before = run.retry_of().expect("it was begun before");
            assert_eq!((before.slot(), before.attempt()), (slot, 1));
            assert_ne!(before.outcome(), Outcome::Done);
            Ok::<_, Infallible>(run.attempt())
        });
        assert!(matches!(ran, Ok(Once::Done(2))), "{ran:?}");
    }
    // What is kept is told as a whole.
    for slot in ["4", "5"] {
        fail(&one, slot, JobOptions::new().keep(9));
    }
    let failed = one.history().unwrap();
    let ran = other.once("4", |run| {
        assert!(failed.iter().any(|failed| Some(failed) == run.retry_of()));
        Ok::<_, Infallible>(())
    });
    assert!(matches!(ran, Ok(Once::Done(()))), "{ran:?}");
}

fn a_slot_that_is_forgotten_is_run_again(place: Place) {
    let (one, other) = scene(place);
    assert!(!one.forget_slot("2").unwrap());
    for slot in ["1", "2", "3"] {
        assert_eq!(run(&one, slot, JobOptions::new()), None);
    }
    assert!(other.forget_slot("2").unwrap());
    assert!(!other.forget_slot("2").unwrap());
    assert!(run(&one, "1", JobOptions::new()).is_some());
    assert_eq!(run(&one, "2", JobOptions::new()), None);
    assert!(run(&one, "2", JobOptions::new()).is_some());
    assert!(run(&one, "2", alone()).is_some());
    assert!(other.forget_slot("2").unwrap());
    assert_eq!(run(&one, "2", alone()), None);
    // To forget a slot that was not done also forgets its attempts.
    let once = || JobOptions::new().attempts(1);
    let failed = one.once_with("4", once(), |_| Err::<(), _>("no disk"));
    assert!(matches!(failed, Ok(Once::Failed(_))), "{failed:?}");
    let left = one.once_with("4", once(), |_| Ok::<_, Infallible>(()));
    assert!(matches!(left, Ok(Once::NoAttemptsLeft(_))), "{left:?}");
    assert!(other.forget_slot("4").unwrap());
    assert_eq!(run(&one, "4", once()), None);
    for slot in ["", "two\nlines", &"x".repeat(257)] {
        let refused = one.forget_slot(slot);
        let is_told = matches!(refused, Err(Error::BadArgument { name: "slot", .. }));
        assert!(is_told, "{refused:?}");
    }
}

fn nobody_forgets_a_slot_while_the_job_is_run(place: Place) {
    let (one, other) = scene(place);
    assert_eq!(run(&one, "1", JobOptions::new()), None);
    let ran = one.once("2", |_| {
        for slot in ["1", "2"] {
            let refused = other.forget_slot(slot);
            assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
        }
        Ok::<_, Infallible>(())
    });
    assert!(matches!(ran, Ok(Once::Done(()))), "{ran:?}");
    assert!(run(&other, "1", JobOptions::new()).is_some());
    // A run whose lock is gone keeps nobody from the slot, and ends as lost.
    let lost = one.once("3", |run| {
        let mut raw = Raw::connect(&place.shared().hosts());
        raw.delete(run.node()).unwrap();
        assert!(other.forget_slot("2").unwrap());
        Ok::<_, Infallible>(())
    });
    assert!(matches!(lost, Err(Error::Lost { .. })), "{lost:?}");
    assert_eq!(run(&one, "2", JobOptions::new()), None);
}

fn what_is_not_known_any_more_is_told_and_not_run(place: Place) {
    let (one, _) = scene(place);
    let name = |slot: u32| format!("{slot:0>250}");
    // These are as many slots as have room, and some more.
    for slot in 1..=70 {
        assert_eq!(run(&one, &name(slot), alone()), None);
    }
    let old = one.once_with(&name(1), alone(), |_| Ok::<_, Infallible>(()));
    let Err(Error::SlotForgotten { slot, up_to, .. }) = old else {
        panic!("{old:?}")
    };
    assert_eq!(slot, name(1));
    assert!(name(1) <= up_to && up_to < name(70), "{up_to}");
    let zero = one.once_with(&name(0), alone(), |_| Ok::<_, Infallible>(()));
    assert!(matches!(zero, Err(Error::SlotForgotten { .. })), "{zero:?}");
    assert!(run(&one, &name(70), alone()).is_some());
    assert_eq!(run(&one, &name(0), alone().again(true)), None);
}
