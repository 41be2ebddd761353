//! Our own client of the ZooKeeper protocol, with blocking sockets.
//!
//! Requests are written by the threads that make them. Replies and events are read by a
//! thread that waits for one, or else by the transport's own, which also makes the
//! connection anew; whoever reads keeps it alive. The session
//! survives the connection: watches are set again, and what was open when it broke is
//! reported as such. Requests are never repeated here, for only who made them knows
//! whether that is safe.

mod backoff;
mod channel;
#[cfg(feature = "tls")]
mod cipher;
#[cfg(not(feature = "tls"))]
#[path = "plain.rs"]
mod cipher;
mod config;
mod end;
mod features;
mod hosts;
mod identity;
mod inbox;
mod io;
mod queue;
mod reading;
mod receive;
mod root;
mod shared;
#[cfg(test)]
mod tests;
mod watches;

use std::fmt;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, bounded};
use parking_lot::Mutex;

pub(crate) use self::cipher::Security;
pub(crate) use self::config::{Config, Credentials, FRAME_LIMIT, FRAME_LIMITS};
pub(crate) use self::hosts::Hosts;
use self::reading::LeaderFollowers;
use self::receive::Reader;
use self::shared::Shared;
use crate::local::process::Process;
use crate::transport::status::Status;
use crate::transport::{Call, Capabilities, Failure, Transport, WatchId};

/// How long the thread waits for the end of the session when nobody waits for it.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Starts to connect, and returns at once; the status hears how it goes.
pub(crate) fn open(config: Config, status: Arc<Status>) -> Arc<dyn Transport> {
    let shared = Arc::new(Shared::new(config, status));
    // Whoever holds the other end sees it disconnected when the thread ends.
    let (alive, ended) = bounded(0);
    let reading = Arc::<LeaderFollowers<Reader>>::default();
    let inner = (Arc::clone(&shared), Arc::clone(&reading));
    let thread = thread::Builder::new().name("zklock-io".to_owned());
    let thread = thread.spawn(move || {
        io::run(inner.0, inner.1);
        drop::<crossbeam_channel::Sender<()>>(alive);
    });
    let thread = thread.map_err(|error| {
        log::error!("cannot start a thread: {error}");
        shared.status.turned_away(
            "this process",
            format!("no thread could be started: {error}"),
        );
        shared.end();
        shared.status.closed();
    });
    Arc::new(Native {
        shared,
        reading,
        process: Process::this(),
        thread: Mutex::new(thread.ok()),
        ended,
    })
}

/// A thread whose socket was shut down needs no longer to end, unless it is connecting.
const GOODBYE: Duration = Duration::from_millis(20);

struct Native {
    shared: Arc<Shared>,
    reading: Arc<LeaderFollowers<Reader>>,
    /// Whose connection it is.
    process: Process,
    /// Its owner: it is told to stop, and waited for, when this is closed or dropped.
    thread: Mutex<Option<JoinHandle<()>>>,
    ended: Receiver<()>,
}

impl Transport for Native {
    fn send(&self, calls: Vec<Call>) {
        if self.process.is_another() {
            let answers = calls.into_iter().map(|call| call.answer);
            return answers.for_each(|answer| answer(Err(Failure::Closed)));
        }
        self.shared.send(calls);
    }

    fn unwatch(&self, path: &str, id: WatchId) {
        if !self.process.is_another() {
            self.shared.unwatch(path, id);
        }
    }

    fn capabilities(&self) -> Capabilities {
        self.shared.state.lock().features.capabilities()
    }

    fn rest(&self, awake: &dyn Fn() -> bool, until: Option<Instant>) {
        match self.process.is_another() {
            // What comes through this connection is not for us.
            true => thread::sleep(GOODBYE),
            false => self.reading.rest(awake, until),
        }
    }

    fn attend(&self) {
        self.reading.reclaim();
    }

    fn leave(&self) {
        if !self.process.is_another() {
            self.begin_close(LAST_WORDS);
        }
    }

    fn close(&self, limit: Duration) {
        if self.process.is_another() {
            return;
        }
        self.begin_close(limit.max(LAST_WORDS));
        let Some(thread) = self.thread.lock().take() else {
            return;
        };
        // An answer that drops the last handle runs on that very thread.
        if thread.thread().id() == thread::current().id() {
            return;
        }
        if !self.ends_within(limit) {
            self.shared.shut_down();
        }
        if self.ends_within(GOODBYE) && thread.join().is_err() {
            log::error!("the I/O thread panicked");
        }
    }
}

impl Native {
    fn begin_close(&self, limit: Duration) {
        if self.shared.begin_close(limit) {
            // For the server's answer, which is waited for elsewhere.
            self.reading.reclaim();
        }
    }

    fn ends_within(&self, limit: Duration) -> bool {
        // Nothing is ever sent: what comes is the end of the thread, or of our patience.
        let ended = self.ended.recv_timeout(limit);
        ended.is_err_and(|error| error.is_disconnected())
    }
}

impl Drop for Native {
    /// Does not wait: the thread sends what is left to send and ends by itself.
    fn drop(&mut self) {
        self.leave();
    }
}

impl fmt::Debug for Native {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts = &self.shared.config.hosts;
        f.debug_struct("Native")
            .field("hosts", hosts)
            .finish_non_exhaustive()
    }
}
