//! The threads of this client that hold a read-write lock or wait for it, by path.
//!
//! They do not wait for each other here, because readers share. But a thread that entered twice
//! would wait for itself, so it gets an error instead.

use std::collections::HashMap;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::thread::{self, ThreadId};

use crate::local::owning_process::Process;
use crate::system::sync::Mutex;

#[derive(Clone, Default)]
pub(crate) struct ThreadSet {
    threads: Arc<Mutex<HashMap<String, Vec<ThreadId>>>>,
    /// In a forked child, a thread that does not exist there may have the mutex locked.
    process: Process,
}

impl UnwindSafe for ThreadSet {}
impl RefUnwindSafe for ThreadSet {}

/// A thread's entry in the set; dropping it removes the thread.
pub(crate) struct Entered {
    threads: ThreadSet,
    path: String,
    thread: ThreadId,
}

impl ThreadSet {
    /// Enters the calling thread; returns `None` if it is in the set already.
    pub(crate) fn enter(&self, path: &str) -> Option<Entered> {
        let thread = thread::current().id();
        let mut present = self.threads.lock();
        let threads = present.entry(path.to_owned()).or_default();
        if threads.contains(&thread) {
            return None;
        }
        threads.push(thread);
        Some(Entered {
            threads: self.clone(),
            path: path.to_owned(),
            thread,
        })
    }

    /// Returns whether the calling thread is in the set.
    pub(crate) fn has_me(&self, path: &str) -> bool {
        let present = self.threads.lock();
        let threads = present.get(path);
        let has_me = threads.is_some_and(|threads| threads.contains(&thread::current().id()));
        // Last, because it is a system call.
        has_me && !self.process.is_another()
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if self.threads.process.is_another() {
            return;
        }
        let mut present = self.threads.threads.lock();
        let Some(threads) = present.get_mut(&self.path) else {
            return;
        };
        threads.retain(|thread| *thread != self.thread);
        if threads.is_empty() {
            present.remove(&self.path);
        }
    }
}
