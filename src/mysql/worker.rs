//! Threads that talk to the database, so that no caller has to.
//!
//! A connection can block until its own timeouts end it, or the kernel's. The caller waits
//! for the answer only as long as it likes; an answer that comes later is dropped, and
//! what is in it cleans up after itself.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use log::warn;
use parking_lot::Mutex;

use crate::mysql::connection::{ConnectionCount, DatabaseConnection, Source};

type DatabaseJob = Box<dyn FnOnce(&mut DatabaseConnection) + Send>;

/// Up to `max` threads with a connection each, started when there is work.
///
/// They end when this is dropped and the work is done.
pub(super) struct WorkerPool {
    name: &'static str,
    source: Arc<Source>,
    /// How long one answer of the database may take.
    limit: Duration,
    max: usize,
    to: Sender<DatabaseJob>,
    jobs: Receiver<DatabaseJob>,
    threads: Arc<Mutex<ThreadCount>>,
    connections: Arc<ConnectionCount>,
}

#[derive(Debug, Default)]
struct ThreadCount {
    started: usize,
    busy: usize,
}

impl WorkerPool {
    pub(super) fn new(
        name: &'static str,
        source: Arc<Source>,
        limit: Duration,
        max: usize,
    ) -> Self {
        let (to, jobs) = unbounded();
        Self {
            name,
            source,
            limit,
            max,
            to,
            jobs,
            threads: Arc::default(),
            connections: Arc::new(ConnectionCount::of_workers(max)),
        }
    }

    /// Returns a pool with the same settings and no thread yet.
    pub(super) fn replacement(&self) -> Self {
        Self {
            connections: self.connections.clone(),
            ..Self::new(self.name, self.source.clone(), self.limit, self.max)
        }
    }

    /// Has a worker do the job, as soon as one is free.
    pub(super) fn submit(&self, job: impl FnOnce(&mut DatabaseConnection) + Send + 'static) {
        // The pool owns a receiver, so sending cannot fail.
        let _ = self.to.send(Box::new(job));
        self.start_thread();
    }

    /// Starts a thread if there are more jobs than idle threads.
    fn start_thread(&self) {
        let mut count = self.threads.lock();
        if count.started == self.max || self.jobs.len() <= count.started - count.busy {
            return;
        }
        let connection =
            DatabaseConnection::new(self.source.clone(), self.limit, self.connections.clone());
        let (jobs, threads) = (self.jobs.clone(), self.threads.clone());
        let thread = thread::Builder::new().name(self.name.to_owned());
        match thread.spawn(move || work(connection, &jobs, &threads)) {
            Ok(_) => count.started += 1,
            // The other threads come to the job; without any, the caller's deadline does.
            Err(error) => warn!("cannot start the thread {}: {error}", self.name),
        }
    }
}

fn work(
    mut connection: DatabaseConnection,
    jobs: &Receiver<DatabaseJob>,
    threads: &Mutex<ThreadCount>,
) {
    for job in jobs {
        threads.lock().busy += 1;
        // A panic would be the driver's; the thread has more to do.
        if catch_unwind(AssertUnwindSafe(|| job(&mut connection))).is_err() {
            connection.discard();
        }
        threads.lock().busy -= 1;
    }
}

impl fmt::Debug for WorkerPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.threads.lock();
        f.debug_tuple("WorkerPool").field(&*count).finish()
    }
}
