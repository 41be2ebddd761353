//! Threads that talk to the database, so that no caller has to wait for it.
//!
//! A connection can be blocked for as long as its timeouts say, or the kernel's. Whoever
//! asks waits for the answer as long as it likes; an answer that nobody waits for any
//! more is dropped, and what was in it cleans up after itself.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use log::warn;
use parking_lot::Mutex;

use crate::mysql::connection::{Link, Source};

type Job = Box<dyn FnOnce(&mut Link) + Send>;

/// Up to a number of threads with a connection each, started when there is work.
///
/// They end when this is dropped and the work is done.
pub(super) struct Workers {
    name: &'static str,
    source: Arc<Source>,
    /// How long one answer of the database may take.
    limit: Duration,
    most: usize,
    to: Sender<Job>,
    jobs: Receiver<Job>,
    crew: Arc<Mutex<Crew>>,
}

#[derive(Debug, Default)]
struct Crew {
    threads: usize,
    busy: usize,
}

impl Workers {
    pub(super) fn new(
        name: &'static str,
        source: Arc<Source>,
        limit: Duration,
        most: usize,
    ) -> Self {
        let (to, jobs) = unbounded();
        Self {
            name,
            source,
            limit,
            most,
            to,
            jobs,
            crew: Arc::default(),
        }
    }

    /// Returns workers of the same kind that have nothing to do yet.
    pub(super) fn replacement(&self) -> Self {
        Self::new(self.name, self.source.clone(), self.limit, self.most)
    }

    /// Hands over work.
    pub(super) fn submit(&self, job: impl FnOnce(&mut Link) + Send + 'static) {
        // We own a receiver, so that it cannot fail.
        let _ = self.to.send(Box::new(job));
        self.hire();
    }

    /// Starts a thread if there is more work than threads that wait for some.
    fn hire(&self) {
        let mut crew = self.crew.lock();
        if crew.threads == self.most || self.jobs.len() <= crew.threads - crew.busy {
            return;
        }
        let link = Link::new(self.source.clone(), self.limit);
        let (jobs, hired) = (self.jobs.clone(), self.crew.clone());
        let thread = thread::Builder::new().name(self.name.to_owned());
        match thread.spawn(move || work(link, &jobs, &hired)) {
            Ok(_) => crew.threads += 1,
            // Those that are there will come to it; without any, the caller's deadline.
            Err(error) => warn!("cannot start the thread {}: {error}", self.name),
        }
    }
}

fn work(mut link: Link, jobs: &Receiver<Job>, crew: &Mutex<Crew>) {
    for job in jobs {
        crew.lock().busy += 1;
        // A panic would be the driver's; the thread has more to do.
        if catch_unwind(AssertUnwindSafe(|| job(&mut link))).is_err() {
            link.distrust();
        }
        crew.lock().busy -= 1;
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Workers").field(&*self.crew.lock()).finish()
    }
}
