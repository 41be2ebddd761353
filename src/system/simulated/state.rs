//! The state of the threads, and how the scheduler picks the next one.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::choice::Choice;

/// Events outside the threads, which wake them.
pub(super) trait Outside: Send {
    /// Does everything that is due.
    fn run_until(&mut self, now: u64);

    fn next_at(&self) -> Option<u64>;

    /// Takes the keys whose waiters must be woken.
    fn take_woken(&mut self) -> Vec<Key>;

    fn as_any(&mut self) -> &mut dyn Any;
}

/// The key of something that a thread waits for.
pub(super) type Key = u64;

/// A run that takes more steps than this while the clock hardly moves is in an endless loop.
const CIRCLE: u64 = 2_000_000;
/// How many lines of the story are kept.
const LINES: usize = 200_000;
/// How long a step takes, in nanoseconds.
const STEP: u64 = 100;

pub(super) struct State {
    /// The time since the run began, in nanoseconds.
    pub(super) now: u64,
    pub(super) rng: fastrand::Rng,
    pub(super) choice: Choice,
    pub(super) tasks: Vec<Task>,
    pub(super) processes: Vec<Process>,
    pub(super) outside: Option<Box<dyn Outside>>,
    pub(super) lines: VecDeque<String>,
    pub(super) record: bool,
    pub(super) steps: u64,
    pub(super) pauses: Vec<(usize, u64, u64)>,
    pub(super) failure: Option<String>,
    circle: (u64, u64),
    ready: Vec<usize>,
}

pub(super) struct Task {
    pub(super) name: String,
    pub(super) process: usize,
    pub(super) thread: Option<std::thread::Thread>,
    pub(super) go: Arc<AtomicBool>,
    pub(super) state: TaskState,
    /// Whether `unpark` was called since the last `park`.
    pub(super) token: bool,
    /// The time until which the scheduler has paused the thread.
    pub(super) paused_until: u64,
    pub(super) park_key: Key,
    pub(super) end_key: Key,
    /// How often the thread has gone to sleep.
    pub(super) sleeps: u64,
}

#[derive(Clone, Debug)]
pub(super) enum TaskState {
    Ready,
    Waiting {
        on: Vec<Key>,
        until: Option<u64>,
        what: &'static str,
    },
    Done,
}

/// A process: its name and its clocks.
#[derive(Clone, Debug, Default)]
pub(super) struct Process {
    pub(super) name: String,
    pub(super) frozen_until: u64,
    /// How long the process has been suspended so far, with its plain clock standing still.
    pub(super) suspended: u64,
}

impl State {
    pub(super) fn new(seed: u64, choice: Choice, record: bool) -> Self {
        Self {
            now: 0,
            rng: fastrand::Rng::with_seed(seed),
            choice,
            tasks: Vec::new(),
            processes: vec![Process {
                name: "test".to_owned(),
                ..Process::default()
            }],
            outside: None,
            lines: VecDeque::new(),
            record,
            steps: 0,
            pauses: Vec::new(),
            failure: None,
            circle: (0, 0),
            ready: Vec::new(),
        }
    }

    pub(super) fn wake(&mut self, key: Key) {
        for task in &mut self.tasks {
            if matches!(&task.state, TaskState::Waiting { on, .. } if on.contains(&key)) {
                task.state = TaskState::Ready;
            }
        }
    }

    /// Marks a point at which another thread may go on. Returns whether one should.
    pub(super) fn step(&mut self, me: usize) -> bool {
        self.steps += 1;
        self.now += STEP;
        match &self.choice {
            Choice::Bounded(_) => true,
            Choice::Random {
                switch,
                pause,
                longest,
            } => {
                let (switch, pause, longest) = (*switch, *pause, *longest);
                if pause > 0.0 && me != 0 && self.rng.f64() < pause {
                    self.pause(me, longest);
                    return true;
                }
                self.rng.f64() < switch
            }
        }
    }

    /// Pauses a thread, mostly for a short time and sometimes for a long one.
    fn pause(&mut self, me: usize, longest: Duration) {
        let longest = (longest.as_nanos() as f64).max(1e3);
        let time = (1e3 * (longest / 1e3).powf(self.rng.f64())) as u64;
        let until = self.now + time;
        if let Some(task) = self.tasks.get_mut(me) {
            task.paused_until = until;
            self.pauses.push((task.process, self.now, until));
        }
    }

    /// Decides which thread goes on; the clock jumps if necessary. Fails if no thread can ever go on.
    pub(super) fn pick(&mut self, me: usize) -> Result<usize, String> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        if self.now - self.circle.0 > 1_000_000 {
            self.circle = (self.now, self.steps);
        } else if self.steps - self.circle.1 > CIRCLE {
            return Err("the threads go round in circles".to_owned());
        }
        loop {
            self.bring()?;
            self.find_ready(me);
            if !self.ready.is_empty() {
                return Ok(self.choose(me));
            }
            match self.next_at() {
                Some(at) => self.now = self.now.max(at),
                None => return Err("nobody can ever go on".to_owned()),
            }
        }
    }

    fn choose(&mut self, me: usize) -> usize {
        let could = self.ready.first() == Some(&me);
        let place = match &mut self.choice {
            Choice::Random { .. } => self.rng.usize(..self.ready.len()),
            Choice::Bounded(bounded) => bounded.choose(self.ready.len(), could),
        };
        self.ready[place]
    }

    /// Wakes the threads whose time has come, and those for which something has arrived.
    fn bring(&mut self) -> Result<(), String> {
        let now = self.now;
        if let Some(mut outside) = self.outside.take() {
            // Any thread may run this, so a panic is the run's failure, not that thread's.
            catch_unwind(AssertUnwindSafe(|| outside.run_until(now)))
                .map_err(|panic| format!("the servers panicked: {}", text_of(&*panic)))?;
            for key in outside.take_woken() {
                self.wake(key);
            }
            self.outside = Some(outside);
        }
        for task in &mut self.tasks {
            if matches!(task.state, TaskState::Waiting { until: Some(until), .. } if until <= now) {
                task.state = TaskState::Ready;
            }
        }
        Ok(())
    }

    /// Finds the threads that can go on, `me` first.
    fn find_ready(&mut self, me: usize) {
        self.ready.clear();
        for (number, task) in self.tasks.iter().enumerate() {
            let frozen = self.processes[task.process].frozen_until;
            if matches!(task.state, TaskState::Ready)
                && task.paused_until <= self.now
                && frozen <= self.now
            {
                self.ready.push(number);
            }
        }
        if let Some(place) = self.ready.iter().position(|number| *number == me) {
            self.ready[..=place].rotate_right(1);
        }
    }

    fn next_at(&self) -> Option<u64> {
        let threads = self.tasks.iter().filter_map(|task| {
            let at = match &task.state {
                TaskState::Ready => task.paused_until,
                TaskState::Waiting { until, .. } => (*until)?,
                TaskState::Done => return None,
            };
            let at = at.max(self.processes[task.process].frozen_until);
            (at < u64::MAX).then_some(at)
        });
        let outside = self.outside.as_ref().and_then(|outside| outside.next_at());
        threads.chain(outside).filter(|at| *at > self.now).min()
    }

    pub(super) fn note(&mut self, me: Option<usize>, text: &str) {
        if !self.record {
            return;
        }
        let who = me
            .and_then(|me| self.tasks.get(me))
            .map_or("", |task| &task.name);
        let now = Duration::from_nanos(self.now).as_secs_f64();
        if self.lines.len() == LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(format!("{now:12.6} {who:<24} {text}"));
    }

    /// Describes what each thread waits for.
    pub(super) fn story(&self) -> String {
        let mut story = String::new();
        for task in &self.tasks {
            let process = &self.processes[task.process].name;
            let what = match &task.state {
                TaskState::Ready => "could go on".to_owned(),
                TaskState::Done => continue,
                TaskState::Waiting { until, what, .. } => match until {
                    Some(until) => {
                        let left = until.saturating_sub(self.now);
                        format!("waits {what}, for {:?} at most", Duration::from_nanos(left))
                    }
                    None => format!("waits {what}"),
                },
            };
            story += &format!("    {process}/{}: {what}\n", task.name);
        }
        story
    }
}

pub(super) fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a text").to_owned()
}
