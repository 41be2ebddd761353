//! Numbers about a command, in a file for the textfile collector of node_exporter.
//!
//! A thread writes them, so that no disk can hold the command up or keep it from being stopped.
//! Failures are reported, and change nothing else. Processes that share a file add to each other's
//! numbers.

mod page;
mod place;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use self::page::Page;
use self::writer::Writer;
use crate::args::Guarded;
use crate::exit::Ending;
use crate::failure::Failure;
use crate::point_in_time::since_1970;
use crate::supervisor::Ended;

/// See the module's documentation. Does nothing if the user asked for no file.
#[derive(Debug)]
pub(crate) struct Metrics(Option<Recorder>);

#[derive(Debug)]
struct Recorder {
    page: Arc<Mutex<Page>>,
    writer: Writer,
    /// When the wait, or the present term, began.
    since: Mutex<Instant>,
    /// Whether a loss of the lock has been counted.
    has_lost: Mutex<bool>,
}

impl Metrics {
    /// Runs the program's task for this lock, and notes how it ends.
    pub(crate) fn of(
        what: &Guarded,
        lock: &str,
        task: impl FnOnce(&Self) -> Result<Ending, Failure>,
    ) -> Result<Ending, Failure> {
        let metrics = Self(file_of(what, lock).map(|file| {
            let page = Arc::new(Mutex::new(Page::new(lock)));
            Recorder {
                writer: Writer::new(file, page.clone()),
                page,
                since: Mutex::new(Instant::now()),
                has_lost: Mutex::default(),
            }
        }));
        let ended = task(&metrics);
        metrics.ends(&ended);
        ended
    }

    /// Notes that the program is in the queue.
    pub(crate) fn waits(&self) {
        self.note(|page, _| page.waiting = true);
    }

    /// Runs the command, while the lock is held.
    pub(crate) fn term(
        &self,
        command: impl FnOnce() -> Result<Ended, Failure>,
    ) -> Result<Ended, Failure> {
        self.note(|page, waited| {
            page.waiting = false;
            page.active = true;
            page.last_start = Some(since_1970());
            page.last_wait = Some(waited);
            page.starts += 1;
        });
        let ended = command();
        let is_lost = match &ended {
            Ok(ended) => ended.lost,
            Err(failure) => failure.is_loss(),
        };
        if let Some(recorder) = &self.0 {
            *recorder.has_lost.lock() |= is_lost;
        }
        self.note(|page, held| {
            page.active = false;
            page.last_hold = Some(held);
            page.losses += u64::from(is_lost);
        });
        ended
    }

    /// Notes that the command has succeeded, under its lock.
    pub(crate) fn has_succeeded(&self) {
        self.note(|page, _| page.last_success = Some(since_1970()));
    }

    fn ends(self, ended: &Result<Ending, Failure>) {
        let (status, is_loss) = match ended {
            Ok(ending) => (ending.status(), false),
            Err(failure) => (failure.code(), failure.is_loss()),
        };
        self.note(|page, _| {
            page.waiting = false;
            page.active = false;
            page.last_exit = Some((since_1970(), status));
        });
        let Some(recorder) = self.0 else { return };
        recorder.page.lock().losses += u64::from(is_loss && !*recorder.has_lost.lock());
        recorder.writer.finish();
    }

    /// Changes the page, given how long the wait or the term has lasted, and has it written.
    fn note(&self, change: impl FnOnce(&mut Page, Duration)) {
        if let Some(recorder) = &self.0 {
            let mut since = recorder.since.lock();
            change(&mut recorder.page.lock(), since.elapsed());
            *since = Instant::now();
            recorder.writer.write();
        }
    }
}

/// Notes that the command of a `zklock` that was killed has ended, from another process.
pub(crate) fn note_kill(what: &Guarded, lock: &str) {
    if let Some(file) = file_of(what, lock) {
        let (_turn, mut page) = (place::turn(&file), Page::new(lock));
        let earlier = place::read(&file);
        if page.continues(&earlier, since_1970()) {
            // Whoever had the lock did not wait for it.
            page.waiting = page.waits_in(&earlier);
            drop(place::replace(&file, &page.to_string()));
        }
    }
}

/// Returns the file that the user asked for, if any.
fn file_of(what: &Guarded, lock: &str) -> Option<PathBuf> {
    place::file(Path::new(what.metrics.as_deref()?), lock)
}
