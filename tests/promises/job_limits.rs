//! The limits of runs: a run that takes longer cannot be relied on, and is not done.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use zklock::{
    Client, Error, GuardEvent, GuardState, Job, JobOptions, LostReason, Once, Outcome, Run,
};

use crate::support::fresh_path;
use crate::transport::{Place, SOON, on_every_server};

on_every_server! {
    a_run_that_takes_too_long_is_lost_and_keeps_the_lock_until_it_returns
    a_run_that_heeds_its_limit_has_failed
    a_run_in_time_is_done_however_long_the_limit_is
    a_limit_of_nothing_is_refused
}

const LIMIT: Duration = Duration::from_millis(300);

fn scene(place: Place) -> (Client, Job, String) {
    let (client, path) = (place.connect(&place.shared().hosts()), fresh_path("limit"));
    let job = client.job(&path).unwrap();
    (client, job, path)
}

fn limited() -> JobOptions<'static> {
    JobOptions::new().max_time(LIMIT)
}

fn is_over_time<T>(done: &Result<T, Error>) -> bool {
    let over = LostReason::OverTime;
    matches!(done, Err(Error::Lost { why, .. }) if *why == over)
}

/// Waits until the run is told that its time is over.
fn await_limit(run: &Run<'_>) {
    let begun = Instant::now();
    assert!(run.valid_for() <= LIMIT);
    while run.events().recv_timeout(SOON).expect("an event") != GuardEvent::Lost {}
    assert!(begun.elapsed() > LIMIT / 2);
}

fn a_run_that_takes_too_long_is_lost_and_keeps_the_lock_until_it_returns(place: Place) {
    let (client, job, path) = scene(place);
    let ran = job.once_with("1", limited(), |run| {
        run.check().unwrap();
        run.set_state("one").unwrap();
        await_limit(run);
        assert!(is_over_time(&run.check()));
        assert_eq!(run.lost_reason(), Some(LostReason::OverTime));
        assert_eq!(run.guard_state(), GuardState::Lost);
        assert_eq!(run.valid_for(), Duration::ZERO);
        // Nobody else gets the lock as long as this run goes on.
        assert!(client.contenders(&path).unwrap()[0].holds());
        let now = JobOptions::new().wait(false);
        let other = place.connect(&place.shared().hosts()).job(&path).unwrap();
        let other = other.once_with("1", now, |_| Ok::<_, Infallible>(()));
        assert!(matches!(other, Ok(Once::Running(_))), "{other:?}");
        Ok::<_, Infallible>(())
    });
    assert!(is_over_time(&ran), "{ran:?}");
    assert_eq!(job.last().unwrap(), None);
    assert_eq!(job.state().unwrap(), None);
    let failure = job.last_failure().unwrap().unwrap();
    assert_eq!(failure.outcome(), Outcome::Failed);
    assert_eq!(failure.message(), Some("it ran longer than 300ms"));
    let again = job.once("1", |run| Ok::<_, Infallible>(run.retry_of().is_some()));
    assert!(matches!(again, Ok(Once::Done(true))), "{again:?}");
}

fn a_run_that_heeds_its_limit_has_failed(place: Place) {
    let (_, job, _) = scene(place);
    let ran = job.once_with("1", limited(), |run| {
        run.set_message("half of it");
        await_limit(run);
        run.check()
    });
    assert!(
        matches!(ran, Ok(Once::Failed(Error::Lost { .. }))),
        "{ran:?}"
    );
    let failure = job.last_failure().unwrap().unwrap();
    let message = "it ran longer than 300ms: half of it";
    assert_eq!(failure.message(), Some(message));
}

fn a_run_in_time_is_done_however_long_the_limit_is(place: Place) {
    let (_, job, _) = scene(place);
    let limits = [
        Duration::from_secs(3600),
        Duration::from_secs(u64::MAX),
        Duration::MAX,
    ];
    for (slot, limit) in limits.into_iter().enumerate() {
        let options = JobOptions::new().max_time(limit);
        let ran = job.once_with(&slot.to_string(), options, |run| {
            assert!(run.valid_for() > Duration::ZERO);
            run.verify()
        });
        assert!(matches!(ran, Ok(Once::Done(()))), "{ran:?}");
    }
}

fn a_limit_of_nothing_is_refused(place: Place) {
    let (_, job, _) = scene(place);
    let nothing = JobOptions::new().max_time(Duration::ZERO);
    let ran = job.once_with("1", nothing, |_| -> Result<(), ()> { panic!("no time") });
    let is_told = matches!(
        ran,
        Err(Error::BadArgument {
            name: "max_time",
            ..
        })
    );
    assert!(is_told, "{ran:?}");
    assert_eq!(job.last_failure().unwrap(), None);
}
