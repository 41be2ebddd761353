//! The thread that writes the file.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use nix::sys::signal::{SigSet, SigmaskHow};
use parking_lot::Mutex;

use super::page::Page;
use super::place::{read, replace, turn};
use crate::point_in_time::since_1970;
use crate::stderr::say;

/// How long the end of the program waits for the last numbers to be written.
const FLUSH_LIMIT: Duration = Duration::from_millis(500);

/// Writes the page in its current state, whenever it is told to.
#[derive(Debug)]
pub(super) struct Writer {
    /// A channel for one message: a caller that comes while it waits has its numbers written too.
    to: Sender<()>,
    ended: Receiver<()>,
}

impl Writer {
    pub(super) fn new(file: PathBuf, page: Arc<Mutex<Page>>) -> Self {
        let (to, told) = bounded(1);
        let (alive, ended) = bounded(0);
        let name = file.display().to_string();
        let write = move || {
            let _alive: Sender<()> = alive;
            write_all(&file, &page, &told);
        };
        if let Err(error) = spawn(write) {
            tell(&name, &error);
        }
        Self { to, ended }
    }

    pub(super) fn write(&self) {
        let _ = self.to.try_send(());
    }

    /// Waits until all is written, or for as long as the end of the program may take.
    pub(super) fn finish(self) {
        self.write();
        drop(self.to);
        let _ = self.ended.recv_timeout(FLUSH_LIMIT);
    }
}

/// Starts the thread. It blocks all signals and leaves them to the others, whenever these block them.
fn spawn(write: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    let thread = thread::Builder::new().name("zklock-metrics".into());
    let started = thread.spawn(write);
    before.thread_set_mask()?;
    started.map(drop)
}

fn write_all(file: &Path, page: &Mutex<Page>, told: &Receiver<()>) {
    let mut has_told = false;
    for () in told {
        let news = page.lock().news();
        // Another zklock may have had the lock meanwhile.
        let turn = turn(file);
        let mut all = news.clone();
        all.continues(&read(file), since_1970());
        let written = replace(file, &all.to_string());
        drop(turn);
        if let Err(error) = &written {
            page.lock().follows(&news, since_1970());
            if !has_told {
                tell(&file.display().to_string(), error);
            }
        }
        has_told = written.is_err();
    }
}

fn tell(file: &str, error: &io::Error) {
    say(&format!("cannot write metrics to {file}: {error}"));
}
