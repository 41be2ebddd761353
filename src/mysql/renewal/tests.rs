//! What the thread does with commands, and what its jobs report.

use ::mysql::Opts;

use super::*;
use crate::guard::GuardState;
use crate::mysql::source::{Purpose, Source};

const HOUR: Duration = Duration::from_secs(3600);

fn renewal() -> Renewal {
    let source = Arc::new(Source::Server(Opts::default()));
    let pool = |purpose| WorkerPool::new("test", source.clone(), purpose, HOUR, 1);
    let workers = (Arc::new(pool(Purpose::Rest)), pool(Purpose::Renewals));
    Renewal::new(HOUR, HOUR, unbounded().1, workers)
}

#[test]
fn a_lease_that_comes_after_the_close_is_lost() {
    let (mut renewal, now) = (renewal(), since_boot());
    let lease = Arc::new(RowLease::new("a".into(), String::new(), 1, HOUR, now));
    renewal.command(Command::Renew(lease.clone()));
    assert_eq!(lease.state(now), GuardState::Held);
    renewal.command(Command::Close);
    assert_eq!(lease.state(now), GuardState::Lost);
    let late = Arc::new(RowLease::new("a".into(), String::new(), 2, HOUR, now));
    renewal.command(Command::Renew(late.clone()));
    assert_eq!(late.state(now), GuardState::Lost);
}

/// The thread used to spin while a deletion was left.
#[test]
fn what_is_closed_sleeps_when_the_time_to_clean_has_come() {
    let mut renewal = renewal();
    let now = renewal.clean_at;
    assert_eq!(renewal.until_next(now), Duration::ZERO);
    renewal.clean(now, false);
    assert_eq!(renewal.until_next(now), HOUR);
}

#[test]
fn a_job_that_never_ran_or_panicked_is_reported_all_the_same() {
    let (to, done) = unbounded();
    let none = Err(StatementError::no_answer());
    drop(Report {
        done: Some(Done::Renewed(7, none)),
        to: to.clone(),
    });
    let report = Report {
        done: Some(Done::Deleted(None)),
        to,
    };
    report.tell(Done::Renewed(8, Ok(())));
    let told: Vec<_> = done.iter().collect();
    assert!(
        matches!(
            told[..],
            [Done::Renewed(7, Err(_)), Done::Renewed(8, Ok(()))]
        ),
        "{told:?}"
    );
}
