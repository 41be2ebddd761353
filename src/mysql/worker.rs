//! Threads that talk to the database, so that callers do not have to.
//!
//! A connection can block until its own timeouts or the kernel's end it. The caller waits for the
//! answer only until its own deadline. A later answer is dropped, and its content cleans up after
//! itself.

use std::fmt;
use std::panic::{AssertUnwindSafe, RefUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, select, unbounded};
use log::warn;
use parking_lot::Mutex;

use crate::mysql::connection::{ConnectionCount, DatabaseConnection};
use crate::mysql::source::{Purpose, Source};
use crate::system::contained;

/// A job, and the token that counts it.
type Queued = (Arc<()>, DatabaseJob);

type DatabaseJob = Box<dyn FnOnce(&mut DatabaseConnection) + Send>;

/// At most `max` threads with a connection each, started when there is work.
///
/// They end when the pool is dropped and the work is done.
pub(super) struct WorkerPool {
    name: &'static str,
    source: Arc<Source>,
    purpose: Purpose,
    /// How long one answer of the database may take.
    limit: Duration,
    max: usize,
    to: Sender<Queued>,
    jobs: Receiver<Queued>,
    /// The channel of the jobs to run when no other job is left.
    to_later: Sender<Queued>,
    later: Receiver<Queued>,
    /// Each job that waits or runs has a clone.
    open: Arc<()>,
    /// How many threads have started.
    threads: Arc<Mutex<usize>>,
    connections: Arc<ConnectionCount>,
}

impl RefUnwindSafe for WorkerPool {}

impl WorkerPool {
    pub(super) fn new(
        name: &'static str,
        source: Arc<Source>,
        purpose: Purpose,
        limit: Duration,
        max: usize,
    ) -> Self {
        let ((to, jobs), (to_later, later)) = (unbounded(), unbounded());
        Self {
            name,
            source,
            purpose,
            limit,
            max,
            to,
            jobs,
            to_later,
            later,
            open: Arc::default(),
            threads: Arc::default(),
            connections: Arc::new(ConnectionCount::of_workers(max)),
        }
    }

    /// Returns a pool with the same settings and no threads yet.
    pub(super) fn replacement(&self) -> Self {
        Self {
            connections: self.connections.clone(),
            ..Self::new(
                self.name,
                self.source.clone(),
                self.purpose,
                self.limit,
                self.max,
            )
        }
    }

    /// Makes a worker run the job as soon as one is free.
    pub(super) fn submit(&self, job: impl FnOnce(&mut DatabaseConnection) + Send + 'static) {
        self.queue(&self.to, Box::new(job));
    }

    /// Like [`submit`](Self::submit), after all jobs that wait and that come meanwhile.
    pub(super) fn submit_later(&self, job: impl FnOnce(&mut DatabaseConnection) + Send + 'static) {
        self.queue(&self.to_later, Box::new(job));
    }

    fn queue(&self, to: &Sender<Queued>, job: DatabaseJob) {
        // The pool owns a receiver, so sending cannot fail.
        let _ = to.send((self.open.clone(), job));
        self.start_thread();
    }

    /// Returns whether the connections may also serve renewals. Those of a pool are given back instead.
    pub(super) fn can_help(&self) -> bool {
        matches!(*self.source, Source::Server(_))
    }

    /// Makes idle workers give their connections back if the renewals are waiting for one.
    pub(super) fn give_way(&self) {
        if self.source.renewal_waits() {
            let started = *self.threads.lock();
            (0..started).for_each(|_| self.submit(|_| {}));
        }
    }

    /// Starts a thread if there are more jobs than threads.
    fn start_thread(&self) {
        let mut count = self.threads.lock();
        // One clone is the pool's own.
        if *count == self.max || Arc::strong_count(&self.open) - 1 <= *count {
            return;
        }
        let (source, connections) = (self.source.clone(), self.connections.clone());
        let connection = DatabaseConnection::new(source, self.purpose, self.limit, connections);
        let (jobs, later) = (self.jobs.clone(), self.later.clone());
        let threads = self.threads.clone();
        let thread = thread::Builder::new().name(self.name.to_owned());
        match thread.spawn(move || work(connection, (&jobs, &later), &threads)) {
            Ok(_) => *count += 1,
            // The other threads run the job. If there are none, the caller's deadline ends its wait.
            Err(error) => {
                drop(count);
                contained(|| warn!("cannot start the thread {}: {error}", self.name));
            }
        }
    }
}

fn work(
    mut connection: DatabaseConnection,
    (jobs, later): (&Receiver<Queued>, &Receiver<Queued>),
    threads: &Mutex<usize>,
) {
    // A thread without a connection leaves the jobs to a thread that has one.
    while is_alone(threads)
        || survive(&mut connection, DatabaseConnection::is_to_be_had) == Some(true)
        || !leave(threads)
    {
        let next = jobs.try_recv().or_else(|_| {
            select! {
                recv(jobs) -> job => job.or_else(|_| later.recv()),
                recv(later) -> job => job.or_else(|_| jobs.recv()),
            }
        });
        let Ok((open, job)) = next else { return };
        connection.job = Some(open);
        survive(&mut connection, job);
        survive(&mut connection, DatabaseConnection::give_way);
        connection.job = None;
    }
}

/// Catches a panic, which would come from the driver, because this thread has more to do.
fn survive<R>(
    connection: &mut DatabaseConnection,
    what: impl FnOnce(&mut DatabaseConnection) -> R,
) -> Option<R> {
    let done = catch_unwind(AssertUnwindSafe(|| what(connection)));
    if done.is_err() {
        connection.discard();
    }
    done.ok()
}

fn is_alone(threads: &Mutex<usize>) -> bool {
    *threads.lock() == 1
}

/// Counts a thread that ends, unless it is the last one; returns whether it ends.
fn leave(threads: &Mutex<usize>) -> bool {
    let mut count = threads.lock();
    let others = *count > 1;
    *count -= usize::from(others);
    others
}

impl fmt::Debug for WorkerPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.threads.lock();
        f.debug_tuple("WorkerPool").field(&*count).finish()
    }
}
