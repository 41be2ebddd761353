//! Threads with a name, which wait for the baton.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

use super::clock;
use super::scheduler::{Here, Started, here, try_here};
use super::state::TaskState;

/// A handle to a thread.
#[derive(Clone, Debug)]
pub struct Thread {
    task: usize,
    real: std::thread::Thread,
}

/// A thread that can be waited for.
#[derive(Debug)]
pub struct JoinHandle<T> {
    thread: Thread,
    result: Arc<Mutex<Option<std::thread::Result<T>>>>,
}

/// Starts a thread in the calling thread's process.
pub fn spawn<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let here = here();
    let process = here.state().tasks[here.me].process;
    Ok(JoinHandle::new(here.start(name, process, run)))
}

pub(crate) fn current() -> Thread {
    Thread::new(here().me, std::thread::current())
}

/// Blocks the calling thread for `time`, on the run's clock.
pub fn sleep(time: Duration) {
    let here = here();
    let until = clock::after(&here, time);
    here.wait::<()>(&[], Some(until), "in a sleep", || None);
}

pub(crate) fn park() {
    park_until(None);
}

pub(crate) fn park_timeout(time: Duration) {
    let here = here();
    park_until(Some(clock::after(&here, time)));
}

fn park_until(until: Option<u64>) {
    let here = here();
    here.step();
    let key = here.state().tasks[here.me].park_key;
    here.wait(&[key], until, "parked", || {
        let mut state = here.state();
        let token = &mut state.tasks[here.me].token;
        std::mem::take(token).then_some(())
    });
}

impl Thread {
    pub(super) fn new(task: usize, real: std::thread::Thread) -> Self {
        Self { task, real }
    }

    /// Returns the id of the thread.
    pub fn id(&self) -> ThreadId {
        self.real.id()
    }

    /// Ends the thread's `park`, or its next one.
    pub fn unpark(&self) {
        let here: Here = here();
        {
            let mut state = here.state();
            let task = &mut state.tasks[self.task];
            task.token = true;
            let key = task.park_key;
            state.wake(key);
        }
        here.step();
    }
}

impl<T> JoinHandle<T> {
    pub(super) fn new(started: Started<T>) -> Self {
        Self {
            thread: Thread::new(started.task, started.real),
            result: started.result,
        }
    }

    /// Returns the thread.
    pub fn thread(&self) -> &Thread {
        &self.thread
    }

    /// Returns whether the thread has ended.
    pub fn is_finished(&self) -> bool {
        let Some(here) = try_here() else { return true };
        here.step();
        let state = here.state();
        matches!(state.tasks[self.thread.task].state, TaskState::Done)
    }

    /// Waits for the thread's end.
    pub fn join(self) -> std::thread::Result<T> {
        let here = here();
        let key = here.state().tasks[self.thread.task].end_key;
        let taken = here.wait(&[key], None, "for a thread to end", || {
            let done = matches!(here.state().tasks[self.thread.task].state, TaskState::Done);
            let mut result = self.result.lock().unwrap_or_else(PoisonError::into_inner);
            done.then(|| result.take()).flatten()
        });
        taken.expect("a wait without a limit ends with a result")
    }
}
