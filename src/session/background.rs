//! The thread in the background, which makes the [`Leases`] prove to every guard of a client that its lock
//! still exists, and the [`Cleaner`] delete what is left.
//!
//! The thread sleeps while nothing is due, and never blocks on an answer: it sends requests, and the
//! answers arrive through channels.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use crate::session::cleaner::Cleaner;
use crate::session::leases::Leases;
use crate::system::channel::{Receiver, Sender, Waitable, bounded, wait_any};
use crate::system::thread;
use crate::time::limit::from_now;
use crate::transport::status::Status;

/// The handle of the thread.
#[derive(Debug)]
pub(crate) struct Background {
    stop: Sender<()>,
    stopped: Receiver<()>,
}

impl Background {
    /// Starts the thread, which looks for work whenever `woken` is filled.
    pub(crate) fn start(
        leases: Arc<Leases>,
        cleaner: Arc<Cleaner>,
        status: &Arc<Status>,
        woken: Receiver<()>,
    ) -> std::io::Result<Self> {
        let (stop, stopping) = bounded::<()>(1);
        let (ended, stopped) = bounded::<()>(0);
        let changes = status.changes();
        let run = move || {
            // Dropped when the thread ends, which `stopped` reports.
            let _ended = ended;
            run(&leases, &cleaner, changes.receiver(), &woken, &stopping);
        };
        thread::spawn("zklock-background", run)?;
        Ok(Self { stop, stopped })
    }

    /// Ends the thread; waits at most `limit` for it.
    pub(crate) fn stop(&self, limit: Duration) {
        let _ = self.stop.try_send(());
        let _ = self.stopped.recv_timeout(limit);
    }

    /// Leaks the handle in a forked child, where the thread does not exist.
    pub(crate) fn forget(&self) {
        mem::forget((self.stop.clone(), self.stopped.clone()));
    }
}

fn run(
    leases: &Leases,
    cleaner: &Arc<Cleaner>,
    changes: &Receiver<()>,
    woken: &Receiver<()>,
    stopping: &Receiver<()>,
) {
    loop {
        let pause = leases.look();
        let retry = cleaner.push();
        cleaner.tell();
        let until = [pause.map(from_now), retry].into_iter().flatten().min();
        let [fired, said] = leases.answers();
        let all: [&dyn Waitable; 5] = [stopping, woken, changes, fired, said];
        wait_any(&all, until);
        let stops = !stopping.try_recv().is_err_and(|error| error.is_empty());
        let _ = woken.try_recv();
        if changes.try_recv().is_ok() {
            leases.look_at_all();
        }
        if stops {
            // The client may have been closed since the last look: the guards must be told.
            leases.look();
            return cleaner.tell();
        }
        leases.drain();
    }
}
