//! What a test can do in a run.

use std::time::Duration;

use super::scheduler::{here, try_here};
use super::state::{Process, Task, TaskState};
use super::thread::JoinHandle;

/// Starts a process with a thread; threads that it starts belong to the process too.
pub fn process<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> (usize, JoinHandle<T>) {
    let here = here();
    let number = {
        let mut state = here.state();
        state.processes.push(Process {
            name: name.to_owned(),
            ..Process::default()
        });
        state.processes.len() - 1
    };
    (number, JoinHandle::new(here.start("main", number, run)))
}

/// Returns the time since the run began.
pub fn elapsed() -> Duration {
    Duration::from_nanos(here().state().now)
}

/// Returns how often the calling thread has gone to sleep, whatever it waited for.
pub fn sleeps() -> u64 {
    let here = here();
    here.state().tasks[here.me].sleeps
}

/// Returns a number below `limit`, from the run's seed.
pub fn roll(limit: u64) -> u64 {
    here().state().rng.u64(..limit.max(1))
}

/// Adds a line to the story.
pub fn note(text: &str) {
    if let Some(here) = try_here() {
        here.state().note(Some(here.me), text);
    }
}

/// Returns whether the calling thread is part of a run.
pub fn is_inside() -> bool {
    try_here().is_some()
}

/// Returns whether lines are kept.
pub fn records() -> bool {
    try_here().is_some_and(|here| here.state().record)
}

/// Describes what each thread waits for now.
pub fn story() -> String {
    here().state().story()
}

/// Returns the number of threads.
pub fn threads() -> usize {
    let here = here();
    let state = here.state();
    let alive = |task: &&Task| !matches!(task.state, TaskState::Done);
    state.tasks.iter().filter(alive).count()
}

/// Returns the pauses of threads: in which process, from when, until when.
pub fn pauses() -> Vec<(usize, Duration, Duration)> {
    let time = Duration::from_nanos;
    let here = here();
    let state = here.state();
    let pauses = state.pauses.iter();
    pauses
        .map(|(process, from, to)| (*process, time(*from), time(*to)))
        .collect()
}

/// Stops all threads of a process for `time`, as SIGSTOP does.
pub fn freeze(process: usize, time: Duration) {
    let here = here();
    let mut state = here.state();
    let until = state.now + time.as_nanos() as u64;
    let now = state.now;
    state.pauses.push((process, now, until));
    let frozen = &mut state.processes[process].frozen_until;
    *frozen = (*frozen).max(until);
}

/// Stops all threads of a process until it is thawed, as if it had crashed.
pub fn freeze_for_ever(process: usize) {
    here().state().processes[process].frozen_until = u64::MAX;
}

/// Ends [`freeze_for_ever`].
pub fn thaw(process: usize) {
    here().state().processes[process].frozen_until = 0;
}

/// Like [`freeze`], but the process's plain clock and its timeouts stand still too, as when a
/// machine sleeps.
pub fn suspend(process: usize, time: Duration) {
    let here = here();
    let before = here.state().processes[process].frozen_until;
    freeze(process, time);
    let mut state = here.state();
    // If the process is frozen already, only the additional time counts.
    let time = state.processes[process].frozen_until - before.max(state.now);
    state.processes[process].suspended += time;
    for task in state
        .tasks
        .iter_mut()
        .filter(|task| task.process == process)
    {
        if let TaskState::Waiting {
            until: Some(until), ..
        } = &mut task.state
        {
            *until += time;
        }
    }
}
