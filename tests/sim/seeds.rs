//! Plays seeds: fresh ones, one, or those that have found something.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, Once};
use std::time::{Duration, Instant};
use std::{env, panic, thread};

use crate::client::ON_PURPOSE;
use crate::plan::Plan;
use crate::play::play;
use crate::shrink::shrink;

/// How many runs are in progress at the same time.
const JOBS: u64 = 2;

fn setting(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
}

/// Panics on purpose are not worth a line.
fn be_quiet() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if info.payload_as_str() != Some(ON_PURPOSE) {
                usual(info);
            }
        }));
    });
}

/// Plays fresh seeds: so many, or for so long; or one, and tells its story.
#[test]
fn fresh_seeds_keep_every_promise() {
    be_quiet();
    if let Some(seed) = setting("ZKLOCK_SIM_SEED") {
        return tell(seed);
    }
    let first = setting("ZKLOCK_SIM_FIRST").unwrap_or_else(|| fastrand::u64(..1 << 48));
    let end = match setting("ZKLOCK_SIM_MINUTES") {
        Some(minutes) => Stop::At(Instant::now() + Duration::from_secs(60 * minutes)),
        None => Stop::After(setting("ZKLOCK_SIM_SEEDS").unwrap_or(200)),
    };
    let campaign = Campaign::run(first, end);
    println!("{}", campaign.summary(first));
    let failed = campaign.failed.lock().expect("no panic").take();
    if let Some((seed, story)) = failed {
        let plan = Plan::from_seed(seed);
        let (smaller, story) = match env::var_os("ZKLOCK_SIM_UNSHRUNK") {
            Some(_) => (plan, story),
            None => shrink(&plan, play(&plan, true).err().unwrap_or(story)),
        };
        panic!("seed {seed} failed; the smallest plan that does:\n{smaller:#?}\n{story}");
    }
}

fn tell(seed: u64) {
    let plan = Plan::from_seed(seed);
    println!("{plan:#?}");
    match play(&plan, true) {
        Ok(played) => println!("{}\n{:?}", played.lines.join("\n"), played.summary),
        Err(story) => panic!("seed {seed}: {story}"),
    }
}

/// A seed repeats a run, bit by bit.
#[test]
fn a_seed_repeats_its_run() {
    be_quiet();
    for seed in 1..20 {
        let plan = Plan::from_seed(seed);
        let run = || match play(&plan, true) {
            Ok(played) => (played.lines, played.steps),
            Err(story) => panic!("seed {seed}: {story}"),
        };
        let (one, other) = (run(), run());
        let differs = one.0.iter().zip(&other.0).find(|(one, other)| one != other);
        assert_eq!(differs, None, "seed {seed}");
        assert_eq!(one.1, other.1, "seed {seed}");
    }
}

enum Stop {
    At(Instant),
    After(u64),
}

struct Campaign {
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
}

impl Campaign {
    fn run(first: u64, end: Stop) -> Self {
        let campaign = Self {
            next: AtomicU64::new(first),
            stop: AtomicBool::new(false),
            failed: Mutex::default(),
            total: Mutex::default(),
            took: Mutex::default(),
        };
        let begun = Instant::now();
        thread::scope(|scope| {
            for _ in 0..JOBS {
                scope.spawn(|| campaign.work(first, &end));
            }
        });
        *campaign.took.lock().expect("no panic") = begun.elapsed();
        campaign
    }

    fn work(&self, first: u64, end: &Stop) {
        while !self.stop.load(Ordering::Relaxed) {
            let seed = self.next.fetch_add(1, Ordering::Relaxed);
            let over = match end {
                Stop::At(time) => *time <= Instant::now(),
                Stop::After(count) => *count <= seed - first,
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
                }
                Err(story) => {
                    self.stop.store(true, Ordering::Relaxed);
                    let mut failed = self.failed.lock().expect("no panic");
                    failed.get_or_insert((seed, story));
                }
            }
        }
    }

    fn summary(&self, first: u64) -> String {
        let total = self.total.lock().expect("no panic");
        let took = self.took.lock().expect("no panic").as_secs_f64();
        let simulated = total.simulated.as_secs_f64() / 3600.0;
        format!(
            "{} seeds from {first} in {took:.1} s: {simulated:.1} hours of the runs' own time ({:.0} an hour), \
             {} steps, {} calls, {} grants, {} of them lost, {} faults",
            total.runs,
            simulated / (took / 3600.0),
            total.steps,
            total.requests,
            total.grants,
            total.lost,
            total.faults,
        )
    }
}
