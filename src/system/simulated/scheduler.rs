//! Passes the baton between the threads of a run.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;
use std::{mem, thread};

use super::one_core::{core, stay_on};
use super::pool::Pool;
use super::report::{Failure, Options, Report};
use super::state::{Key, State, Task, TaskState, text_of};

/// How long, on the run's clock, threads may take to end after the test's own has.
const END_LIMIT: Duration = Duration::from_secs(300);
/// How often the run is checked, on the real clock.
const LOOK: Duration = Duration::from_secs(1);
/// After this many looks in a row without a step, a thread is assumed to wait for something outside the simulation.
/// Looks are counted, not seconds: whatever stops or starves the run stops the looks.
const STUCK: u32 = 10;

pub(super) struct World {
    state: Mutex<State>,
    ended: Mutex<Option<mpsc::Sender<Outcome>>>,
    pool: Mutex<Pool>,
    /// Where the system has put the main thread, which is new in each run; the others follow it.
    core: AtomicUsize,
}

/// What the test's own thread returned, or why the run failed.
type Outcome = Result<Box<dyn Any + Send>, String>;

#[derive(Clone)]
pub(super) struct Here {
    pub(super) world: Arc<World>,
    pub(super) me: usize,
}

/// A thread that was started, and the place for its result.
pub(super) struct Started<T> {
    pub(super) task: usize,
    pub(super) real: thread::Thread,
    pub(super) result: Arc<Mutex<Option<thread::Result<T>>>>,
}

thread_local! {
    static HERE: RefCell<Option<Here>> = const { RefCell::new(None) };
    /// The threads of the runs that this thread makes.
    static POOL: RefCell<Pool> = RefCell::default();
}

static KEYS: AtomicU64 = AtomicU64::new(1);

pub(super) fn new_key() -> Key {
    KEYS.fetch_add(1, Ordering::Relaxed)
}

/// Returns the run that this thread is part of, if any.
pub(super) fn try_here() -> Option<Here> {
    HERE.try_with(|here| here.borrow().clone()).ok().flatten()
}

pub(super) fn here() -> Here {
    try_here().expect("only within a simulated run")
}

impl Here {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.world.state()
    }

    /// Marks a point at which another thread may go on.
    pub(super) fn step(&self) {
        if thread::panicking() {
            return;
        }
        let mut state = self.state();
        if state.step(self.me) {
            self.pass(state);
        }
    }

    /// Waits until one of the keys is woken or the time passes; may return earlier.
    pub(super) fn block(&self, on: Vec<Key>, until: Option<u64>, what: &'static str) {
        let mut state = self.state();
        state.steps += 1;
        state.tasks[self.me].sleeps += 1;
        state.tasks[self.me].state = TaskState::Waiting { on, until, what };
        self.pass(state);
    }

    /// Waits until the check returns something, or the time passes.
    pub(super) fn wait<R>(
        &self,
        keys: &[Key],
        until: Option<u64>,
        what: &'static str,
        mut check: impl FnMut() -> Option<R>,
    ) -> Option<R> {
        loop {
            if let Some(result) = check() {
                return Some(result);
            }
            if until.is_some_and(|until| until <= self.state().now) {
                return None;
            }
            self.block(keys.to_vec(), until, what);
        }
    }

    /// Gives the baton to the thread that goes on, and waits until it comes back.
    fn pass(&self, mut state: MutexGuard<'_, State>) {
        let next = match state.pick(self.me) {
            Ok(next) => next,
            Err(reason) => {
                state.failure.get_or_insert_with(|| reason.clone());
                drop(state);
                self.world.end(Err(reason));
                stand_still();
            }
        };
        if next == self.me {
            return;
        }
        let mine = Arc::clone(&state.tasks[self.me].go);
        hand(state, next);
        wait_for(&mine);
    }
}

fn wait_for(go: &AtomicBool) {
    while !go.swap(false, Ordering::Acquire) {
        thread::park();
    }
}

/// Blocks for ever: the rest of a thread's life after its run has failed.
fn stand_still() -> ! {
    loop {
        thread::park();
    }
}

/// Unlocks the state, and gives the baton to a thread.
fn hand(state: MutexGuard<'_, State>, to: usize) {
    let task = &state.tasks[to];
    let (go, thread) = (Arc::clone(&task.go), task.thread.clone());
    drop(state);
    go.store(true, Ordering::Release);
    if let Some(thread) = thread {
        thread.unpark();
    }
}

impl State {
    fn add(&mut self, name: &str, process: usize) -> usize {
        self.tasks.push(Task {
            name: name.to_owned(),
            process,
            thread: None,
            go: Arc::default(),
            state: TaskState::Ready,
            token: false,
            paused_until: 0,
            park_key: new_key(),
            end_key: new_key(),
            sleeps: 0,
        });
        self.tasks.len() - 1
    }
}

impl World {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the outcome. A thread that waits for something outside the simulation keeps the
    /// baton, so that no other thread goes on.
    fn await_the_end(&self, ended: &mpsc::Receiver<Outcome>) -> Outcome {
        let (mut steps, mut looks) = (None, 0);
        while looks < STUCK {
            match ended.recv_timeout(LOOK) {
                Ok(outcome) => return outcome,
                Err(RecvTimeoutError::Disconnected) => return Err("the run vanished".to_owned()),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let before = steps.replace(self.state().steps);
            looks = if before == steps { looks + 1 } else { 0 };
        }
        Err("a thread waits for something outside of the simulation".to_owned())
    }

    fn end(&self, outcome: Outcome) {
        let ended = self
            .ended
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(ended) = ended {
            let _ = ended.send(outcome);
        }
    }
}

/// Runs a test's own thread, and all threads that it starts, until all have ended.
pub fn run<T: Send + 'static>(
    options: Options,
    main: impl FnOnce() -> T + Send + 'static,
) -> Result<Report<T>, Failure> {
    let Options {
        seed,
        choice,
        record,
    } = options;
    let (to, ended) = mpsc::channel();
    let world = Arc::new(World {
        state: Mutex::new(State::new(seed, choice, record)),
        ended: Mutex::new(Some(to)),
        pool: Mutex::new(POOL.take()),
        core: AtomicUsize::default(),
    });
    let me = world.state().add("main", 0);
    let go = Arc::clone(&world.state().tasks[me].go);
    let (start, seed) = (Arc::clone(&go), world.state().rng.u64(..));
    let inner = Arc::clone(&world);
    let real = thread::Builder::new().name("main".to_owned());
    let real = real.spawn(move || {
        let here = Here { world: inner, me };
        here.world.core.store(core(), Ordering::Relaxed);
        begin(&here, &go, seed);
        let value = catch_unwind(AssertUnwindSafe(main));
        let outcome = match value {
            Ok(value) => here
                .await_the_others()
                .map(|()| Box::new(value) as Box<dyn Any + Send>),
            Err(panic) => Err(text_of(&*panic)),
        };
        here.state().tasks[me].state = TaskState::Done;
        here.world.end(outcome);
    });
    let real = real.expect("a thread").thread().clone();
    world.state().tasks[me].thread = Some(real.clone());
    start.store(true, Ordering::Release);
    real.unpark();
    let outcome = world.await_the_end(&ended);
    if outcome.is_ok() {
        let mut pool = mem::take(&mut *world.pool());
        pool.take_back();
        POOL.set(pool);
    }
    let mut state = world.state();
    let lines = mem::take(&mut state.lines).into();
    let choice = state.choice.clone();
    match outcome {
        Ok(value) => Ok(Report {
            value: *value.downcast().expect("what the main thread returned"),
            choice,
            elapsed: Duration::from_nanos(state.now),
            steps: state.steps,
            lines,
        }),
        Err(reason) => Err(Failure {
            reason,
            threads: state.story(),
            lines,
            choice,
        }),
    }
}

/// Waits for the baton. Until then, nothing in the run may depend on the thread: the machine
/// decides when it starts.
fn begin(here: &Here, go: &AtomicBool, seed: u64) {
    stay_on(here.world.core.load(Ordering::Relaxed));
    HERE.with(|slot| *slot.borrow_mut() = Some(here.clone()));
    fastrand::seed(seed);
    wait_for(go);
}

impl Here {
    fn await_the_others(&self) -> Result<(), String> {
        let until = self.state().now + END_LIMIT.as_nanos() as u64;
        loop {
            let left = {
                let state = self.state();
                let others = state
                    .tasks
                    .iter()
                    .filter(|task| !matches!(task.state, TaskState::Done));
                let keys: Vec<_> = others.map(|task| task.end_key).collect();
                let own = state.tasks[self.me].end_key;
                keys.into_iter()
                    .filter(|key| *key != own)
                    .collect::<Vec<_>>()
            };
            if left.is_empty() {
                return Ok(());
            }
            if until <= self.state().now {
                return Err("threads are left at the end".to_owned());
            }
            self.block(left, Some(until), "for the other threads to end");
        }
    }

    /// Starts a thread in a process.
    pub(super) fn start<T: Send + 'static>(
        &self,
        name: &str,
        process: usize,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> Started<T> {
        let (me, go) = {
            let mut state = self.state();
            let me = state.add(name, process);
            (me, Arc::clone(&state.tasks[me].go))
        };
        let seed = self.state().rng.u64(..);
        let result = Arc::new(Mutex::new(None));
        let (slot, world) = (Arc::clone(&result), Arc::clone(&self.world));
        let run = Box::new(move || {
            let here = Self { world, me };
            begin(&here, &go, seed);
            let value = catch_unwind(AssertUnwindSafe(run));
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
            here.finish();
        });
        let real = self.world.pool().start(name, run).unwrap_or_else(|error| {
            let reason = format!("a thread cannot be started: {error}");
            self.world.end(Err(reason));
            stand_still()
        });
        self.state().tasks[me].thread = Some(real.clone());
        self.step();
        Started {
            task: me,
            real,
            result,
        }
    }

    fn finish(&self) {
        HERE.with(|slot| slot.borrow_mut().take());
        let mut state = self.state();
        let key = state.tasks[self.me].end_key;
        state.tasks[self.me].state = TaskState::Done;
        state.wake(key);
        match state.pick(self.me) {
            Ok(next) => hand(state, next),
            Err(reason) => {
                drop(state);
                self.world.end(Err(reason));
            }
        }
    }
}
