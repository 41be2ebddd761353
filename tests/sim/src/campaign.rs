//! Campaigns, which play one seed after the other.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::plan::Plan;
use crate::play::play;

/// The condition for beginning no further run.
pub(crate) enum Stop {
    At(Instant),
    After(u64),
}

/// Many runs, until one fails.
pub(crate) struct Campaign {
    next: AtomicU64,
    stop: AtomicBool,
    failed: Mutex<Option<(u64, String)>>,
    total: Mutex<Total>,
    took: Mutex<Duration>,
}

#[derive(Default)]
struct Total {
    runs: u64,
    simulated: Duration,
    steps: u64,
    requests: usize,
    grants: usize,
    lost: usize,
    faults: usize,
    begun: usize,
    done: usize,
    killed: usize,
    unanswered: usize,
    holds: usize,
    numbers: usize,
    terms: usize,
}

impl Campaign {
    pub(crate) fn run((first, every): (u64, u64), end: &Stop, jobs: u64) -> Self {
        let campaign = Self {
            next: AtomicU64::new(first),
            stop: AtomicBool::new(false),
            failed: Mutex::default(),
            total: Mutex::default(),
            took: Mutex::default(),
        };
        let begun = Instant::now();
        thread::scope(|scope| {
            for _ in 0..jobs {
                let campaign = &campaign;
                scope.spawn(move || campaign.work(first, every, end));
            }
        });
        *campaign.took.lock().expect("no panic") = begun.elapsed();
        campaign
    }

    fn work(&self, first: u64, every: u64, end: &Stop) {
        while !self.stop.load(Ordering::Relaxed) {
            let seed = self.next.fetch_add(every, Ordering::Relaxed);
            let over = match end {
                Stop::At(time) => *time <= Instant::now(),
                Stop::After(count) => *count <= (seed - first) / every,
            };
            if over {
                return;
            }
            match play(&Plan::from_seed(seed), false) {
                Ok(played) => {
                    let mut total = self.total.lock().expect("no panic");
                    total.runs += 1;
                    total.simulated += played.elapsed;
                    total.steps += played.steps;
                    total.requests += played.summary.requests;
                    total.grants += played.summary.grants;
                    total.lost += played.summary.lost;
                    total.faults += played.summary.faults;
                    total.begun += played.jobs.begun;
                    total.done += played.jobs.done;
                    total.killed += played.jobs.killed;
                    total.unanswered += played.jobs.unanswered;
                    total.holds += played.lives.holds;
                    total.numbers += played.lives.numbers;
                    total.terms += played.lives.terms;
                }
                Err(story) => {
                    self.stop.store(true, Ordering::Relaxed);
                    let mut failed = self.failed.lock().expect("no panic");
                    failed.get_or_insert((seed, story));
                }
            }
        }
    }

    /// Returns the seed that failed, and what was violated.
    pub(crate) fn failed(&self) -> Option<(u64, String)> {
        self.failed.lock().expect("no panic").clone()
    }

    pub(crate) fn summary(&self, first: u64) -> String {
        let total = self.total.lock().expect("no panic");
        let took = self.took.lock().expect("no panic").as_secs_f64();
        let simulated = total.simulated.as_secs_f64() / 3600.0;
        format!(
            "{} seeds from {first} in {took:.1} s: {simulated:.1} hours of the runs' own time ({:.0} an hour), \
             {} steps, {} calls, {} grants, {} of them lost, {} faults, \
             {} runs of jobs, {} of them done, {} killed, {} lost answers to their marks, {} holds, {} numbers of permits, {} terms on shards",
            total.runs,
            simulated / (took / 3600.0),
            total.steps,
            total.requests,
            total.grants,
            total.lost,
            total.faults,
            total.begun,
            total.done,
            total.killed,
            total.unanswered,
            total.holds,
            total.numbers,
            total.terms,
        )
    }
}
