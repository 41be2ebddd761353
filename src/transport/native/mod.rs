//! Our own client of the ZooKeeper protocol, with blocking sockets.
//!
//! ```text
//!  a calling thread                               the I/O thread
//!   send ─► Link ─┐                        io: connects, greets, connects again
//!                 ▼                                      │
//!              Channel ◄── LeaderFollowers ──────────────┘ serves
//!             the socket       one thread at a time reads:
//!                              ConnectionReader ─► Inbox (frames) ─► Link ─► answers, watches
//! ```
//!
//! The thread that makes a request writes it. One thread at a time reads: a calling thread that
//! waits for an answer, or else the I/O thread. The reader also keeps the connection alive. The
//! state of all threads is in `Shared`, under one mutex. All that is decided about a connection is in
//! `zklock_core::connection`: the `Link` says what a call or a frame leads to, and what becomes of the open requests.

mod channel;
#[cfg(feature = "tls")]
mod cipher;
#[cfg(not(feature = "tls"))]
#[path = "no_tls.rs"]
mod cipher;
mod config;
mod following;
mod frame_reader;
mod hosts;
mod io;
#[cfg(feature = "sasl")]
mod log_in;
mod members;
mod receive;
mod resolver;
#[cfg(feature = "sasl")]
mod sasl;
mod server_list;
mod shared;
// These tests need real servers.
#[cfg(all(test, not(zklock_sim)))]
mod tests;
pub(crate) mod who_reads;

use std::io::Result;
use std::sync::Arc;
use std::thread::ThreadId;
use std::time::{Duration, Instant};

#[cfg(feature = "tls")]
pub(crate) use self::cipher::Security;
pub(crate) use self::config::{Config, Credentials, FRAME_LIMITS};
pub(crate) use self::hosts::Hosts;
#[cfg(feature = "sasl")]
pub(crate) use self::sasl::{Digest, Login};
#[cfg(feature = "sasl-gssapi")]
pub(crate) use self::sasl::{Kerberos, Waiters};
use self::shared::Shared;
use self::who_reads::LeaderFollowers;
use crate::local::owning_process::Process;
use crate::system::channel::{Receiver, Sender, bounded};
use crate::system::sync::Mutex;
use crate::system::thread::{self, JoinHandle};
use crate::transport::handover::SessionKey;
use crate::transport::status::Status;
use crate::transport::{Call, Failure, Transport, WatchId};
pub(crate) use zklock_core::connection::link::PINGS;

/// Starts to connect and returns at once; the status shows the progress. Fails if no thread can be started.
pub(crate) fn open(config: Config, status: Arc<Status>) -> Result<Arc<dyn Transport>> {
    let shared = Arc::new(Shared::new(config, status));
    // The other end disconnects when the thread ends.
    let (alive, ended) = bounded(0);
    let inner = Arc::clone(&shared);
    let thread = thread::spawn("zklock-io", move || {
        io::run(inner);
        drop::<Sender<()>>(alive);
    })?;
    Ok(Arc::new(Native {
        shared,
        process: Process::this(),
        io: thread.thread().id(),
        thread: Mutex::new(Some(thread)),
        ended,
    }))
}

/// How long the client asks at least for the end of a session. Most elections take less, and a
/// server that shuts down reads nothing for a while before it closes the connection.
const LEAST_LIMIT: Duration = Duration::from_secs(2);

/// How long a thread whose socket was shut down takes to end, unless it is connecting.
const END_LIMIT: Duration = Duration::from_millis(20);

struct Native {
    shared: Arc<Shared>,
    /// The process that made the connection.
    process: Process,
    /// The I/O thread; it stops when the transport is closed or dropped.
    io: ThreadId,
    /// For the first thread that closes the transport.
    thread: Mutex<Option<JoinHandle<()>>>,
    ended: Receiver<()>,
}

impl Transport for Native {
    fn send(&self, calls: Vec<Call>) {
        let Some(shared) = self.here() else {
            let answers = calls.into_iter().map(|call| call.answer);
            return answers.for_each(|answer| answer(Err(Failure::Closed)));
        };
        let requests = calls.iter().map(|call| &call.request);
        shared.status.requests.count(requests);
        shared.send(calls);
    }

    fn unwatch(&self, path: &str, id: WatchId) {
        self.here().inspect(|shared| shared.unwatch(path, id));
    }

    #[cfg(all(test, not(zklock_sim)))]
    fn watches(&self) -> usize {
        self.shared.state.lock().link.watches.len()
    }

    fn transacts(&self) -> bool {
        self.shared.state.lock().link.features.transacts()
    }

    fn rest(&self, awake: &dyn Fn() -> bool, until: Option<Instant>) {
        match self.here() {
            Some(shared) => shared.reading.rest(awake, shared.write_on(until)),
            // The connection is the parent's: its answers are not for this process.
            None => thread::sleep(END_LIMIT),
        }
    }

    fn reading(&self) -> Option<&LeaderFollowers> {
        self.here().map(|shared| &shared.reading)
    }

    fn key(&self) -> Option<SessionKey> {
        self.shared.state.lock().link.key().cloned()
    }

    fn chroot(&self) -> &str {
        self.shared.config.hosts.chroot()
    }

    fn keep_session(&self, kept: bool) {
        self.here()
            .inspect(|shared| shared.state.lock().link.keep_session(kept));
    }

    fn move_on(&self, node: &str) {
        self.here().inspect(|shared| shared.move_on(node));
    }

    fn leave(&self) {
        if let Some(shared) = self.here() {
            // After that time the session has ended by itself.
            shared.begin_close(shared.status.snapshot().timeout);
        }
    }

    fn close(&self, limit: Duration) -> bool {
        if self.process.is_another() {
            return false;
        }
        let limit = self.key().map_or(limit, |_| limit.max(LEAST_LIMIT));
        self.shared.begin_close(limit);
        // An answer that drops the last handle runs on the I/O thread itself.
        if self.io != thread::current().id() {
            self.await_end(limit);
        }
        self.key().is_none()
    }
}

impl Native {
    /// Returns what the threads share; `None` in a forked child, where a thread that does not exist
    /// there may have a mutex locked.
    fn here(&self) -> Option<&Shared> {
        (!self.process.is_another()).then_some(&*self.shared)
    }

    /// Waits for the end of the session. If another thread ends it already, that one decides when to give it up.
    fn await_end(&self, limit: Duration) {
        let thread = self.thread.lock().take();
        if thread.is_none() && self.shared.has_given_up() {
            return;
        }
        if !self.ends_within(limit) && thread.is_some() {
            self.shared.give_up_close();
        }
        let has_ended = self.ends_within(END_LIMIT);
        if has_ended && thread.is_some_and(|thread| thread.join().is_err()) {
            log::error!("the I/O thread panicked");
        }
    }

    fn ends_within(&self, limit: Duration) -> bool {
        // Nothing is ever sent: the wait ends with the thread or at the limit.
        let ended = self.ended.recv_timeout(limit);
        ended.is_err_and(|error| error.is_disconnected())
    }
}

impl Drop for Native {
    /// Does not wait: the thread sends what is left and ends by itself.
    fn drop(&mut self) {
        self.leave();
    }
}
