//! The leader is killed at each step of acquiring a lock and of releasing it.
//!
//! There are two clients in this process: one holds or waits, the other is at the step. The kill
//! comes a moment after the step began, so it falls before, into or after the leader's part of the
//! step.

use std::thread;
use std::time::Duration;

use fastrand::Rng;
use zklock::{Client, MutexGuard};

use crate::cluster::{Run, number, wait};
use crate::history::{Journal, Process};
use crate::holder::{give_up, take};
use crate::workload::{ROOT, Task, is_valid};

/// The session timeout, far longer than an election, so that no lock is lost to time alone.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The longest time from the beginning of a step to the kill, in microseconds.
const LATEST: u64 = 4000;

/// The step at which the leader is killed.
#[derive(Clone, Copy, Debug)]
enum Step {
    Request,
    Waiting,
    HandOff,
    Held,
    Unlock,
    Drop,
}

const STEPS: [Step; 6] = [
    Step::Request,
    Step::Waiting,
    Step::HandOff,
    Step::Held,
    Step::Unlock,
    Step::Drop,
];

/// A client of this process, with its history.
struct Party {
    client: Client,
    journal: Journal,
    op: usize,
}

#[test]
#[ignore = "needs a real ZooKeeper: tests/chaos.sh"]
fn a_leader_killed_at_each_step_harms_nobody() {
    let mut run = Run::start("leader killed at each step", TIMEOUT, None);
    let mut rng = Rng::with_seed(run.seed);
    let parties = [0, 1].map(|slot| Party::of(&run.task(Process { slot, life: 0 })));
    let [mut one, mut two] = parties;
    for _ in 0..number("ZKLOCK_CHAOS_ROUNDS").unwrap_or(1) {
        for step in STEPS {
            let leader = run.ensemble.wait_for_leader();
            let after = Duration::from_micros(rng.u64(0..LATEST));
            run.fault(&format!(
                "leader {leader} is killed {after:?} into {step:?}"
            ));
            let kill = || {
                thread::sleep(after);
                run.ensemble.kill(leader);
            };
            go_through(step, &mut one, &mut two, kill);
            run.make_whole();
            wait(500);
        }
    }
    let summary = run.finish();
    assert_eq!(summary.errors, 0);
}

/// Runs one step while `kill` strikes; at the end both clients have released.
fn go_through(step: Step, one: &mut Party, two: &mut Party, kill: impl FnOnce() + Send) {
    let path = &format!("{ROOT}/step");
    match step {
        Step::Request => {
            let guard = during(kill, || one.take(path));
            one.give_up(guard);
        }
        Step::Waiting => {
            let guard = one.take(path);
            thread::scope(|scope| {
                let waiter = scope.spawn(|| two.take_and_give_up(path));
                thread::sleep(Duration::from_millis(200));
                kill();
                one.give_up(guard);
                waiter.join().expect("the waiter");
            });
        }
        Step::HandOff => {
            let guard = one.take(path);
            thread::scope(|scope| {
                let waiter = scope.spawn(|| two.take_and_give_up(path));
                thread::sleep(Duration::from_millis(200));
                during(kill, || one.give_up(guard));
                waiter.join().expect("the waiter");
            });
        }
        Step::Held => {
            let guard = one.take(path);
            kill();
            one.give_up(guard);
        }
        Step::Unlock => {
            let guard = one.take(path);
            during(kill, || one.give_up(guard));
        }
        Step::Drop => {
            let guard = one.take(path);
            during(kill, || one.drop(guard));
        }
    }
    two.take_and_give_up(path);
}

fn during<T>(kill: impl FnOnce() + Send, act: impl FnOnce() -> T) -> T {
    thread::scope(|scope| {
        scope.spawn(kill);
        act()
    })
}

impl Party {
    fn of(task: &Task) -> Self {
        Self {
            client: task.connect(),
            journal: task.journal(),
            op: 0,
        }
    }

    fn take(&mut self, path: &str) -> MutexGuard {
        self.op += 1;
        let guard = take(&self.client, &self.journal, self.op, path);
        is_valid(&self.journal, self.op, &guard);
        guard
    }

    fn give_up(&mut self, guard: MutexGuard) {
        is_valid(&self.journal, self.op, &guard);
        give_up(&self.journal, self.op, guard);
    }

    fn drop(&mut self, guard: MutexGuard) {
        is_valid(&self.journal, self.op, &guard);
        crate::holder::let_drop(&self.journal, self.op, guard);
    }

    fn take_and_give_up(&mut self, path: &str) {
        let guard = self.take(path);
        self.give_up(guard);
    }
}
