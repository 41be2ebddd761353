//! The threads that the runs of one caller borrow one after the other: most do less than it costs to start a thread.

use std::collections::HashMap;
use std::sync::mpsc;
use std::{io, mem, thread};

const STACK: usize = 512 * 1024;

type Job = Box<dyn FnOnce() + Send>;

/// Threads by their names. Within a run each serves once, so that no two of the run's threads share an id.
#[derive(Default)]
pub(super) struct Pool {
    free: HashMap<String, Vec<Worker>>,
    lent: Vec<(String, Worker)>,
}

/// A thread that ends when this is dropped and its jobs are done.
struct Worker {
    jobs: mpsc::Sender<Job>,
    thread: thread::Thread,
}

impl Pool {
    /// Runs this on a thread of this name.
    pub(super) fn start(&mut self, name: &str, run: Job) -> io::Result<thread::Thread> {
        let worker = match self.free.get_mut(name).and_then(Vec::pop) {
            Some(worker) => worker,
            None => Worker::start(name)?,
        };
        let thread = worker.thread.clone();
        let sent = worker.jobs.send(run);
        sent.map_err(|_| io::Error::other("it has ended"))?;
        self.lent.push((name.to_owned(), worker));
        Ok(thread)
    }

    /// Takes all threads back after a run in which all have ended.
    pub(super) fn take_back(&mut self) {
        for (name, worker) in mem::take(&mut self.lent) {
            self.free.entry(name).or_default().push(worker);
        }
    }
}

impl Worker {
    fn start(name: &str) -> io::Result<Self> {
        let (jobs, to_do) = mpsc::channel::<Job>();
        let builder = thread::Builder::new().name(name.to_owned());
        let thread = builder.stack_size(STACK).spawn(move || {
            for job in to_do {
                job();
            }
        })?;
        let thread = thread.thread().clone();
        Ok(Self { jobs, thread })
    }
}
