//! One client's session with ZooKeeper: its calls, its leases, and the thread that serves
//! them.
//!
//! ```text
//!   a calling thread                        the background thread
//!          │                                          │
//!       Caller, queries          Leases of the guards ─┴─ Cleaner
//!          │                              │                  │
//!          ▼                              ▼                  ▼
//!   transport::Transport ◄────────────────┴──────────────────┘
//!          │
//!          └──► transport::Status, which tells all of them how the connection stands
//! ```
//!
//! A [`Caller`] waits for answers on behalf of a calling thread, always within a limit. The
//! background thread sends without waiting. Decisions that need neither a clock nor I/O are in
//! the crate `zklock-core`.

pub(crate) mod call_error;
pub(crate) mod caller;
pub(crate) mod cleaner;
pub(crate) mod confirm_grant;
pub(crate) mod early_create;
pub(crate) mod lease;
pub(crate) mod leases;
pub(crate) mod queries;
pub(crate) mod silence;
#[cfg(test)]
mod tests;

use std::io;
use std::mem;
use std::panic::RefUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use self::caller::Caller;
use self::cleaner::Cleaner;
use self::leases::Leases;
use crate::acl::Acl;
use crate::error::{Error, Result};
use crate::hold::Hold;
use crate::local::owning_process::Process;
use crate::metrics::Counters;
use crate::owner::Card;
use crate::system::channel::{Receiver, Sender, Waitable, bounded, wait_any};
use crate::system::sync::Mutex;
use crate::system::{contained, thread};
use crate::time::limit::{Limit, from_now};
use crate::transport::Transport;
use crate::transport::status::Status;
use zklock_core::dialect::Dialect;

/// How long to wait for the end of a session.
pub(crate) const CLOSE_LIMIT: Duration = Duration::from_secs(1);

/// One client's session, with everything that lives as long as it.
pub(crate) struct Session {
    pub(crate) status: Arc<Status>,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) cleaner: Arc<Cleaner>,
    pub(crate) leases: Arc<Leases>,
    pub(crate) settings: Settings,
    pub(crate) counters: Arc<Counters>,
    /// The lock that the last wait or the last try found taken, and the hold that has it. Absent if
    /// only one lock was asked for and no hold has it.
    pub(crate) taken: Mutex<Option<(String, Option<Hold>)>>,
    /// When a lock that nobody is ahead for can be granted, because the leader must first have
    /// heard of the session; zero if nothing is held back, or not for long.
    held_back: AtomicU64,
    process: Process,
    background: Background,
}

// What users' code that panics interrupts is never half changed: it runs with no mutex locked.
impl RefUnwindSafe for Session {}

/// The user's settings for this client's nodes.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) dialect: Dialect,
    pub(crate) acl: Acl,
    pub(crate) card: Card,
    /// How many times in a row a lock may pass from thread to thread of this client.
    pub(crate) local_handoffs: u32,
    /// How many locks have counters of their own.
    pub(crate) locks_counted: usize,
    /// How long one `try_` call waits for a missing connection.
    pub(crate) try_offline: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            dialect: Dialect::default(),
            acl: Acl::open(),
            card: Card::new(None),
            local_handoffs: 0,
            locks_counted: 0,
            // Long enough for another server to take over.
            try_offline: Duration::from_secs(1),
        }
    }
}

impl Session {
    pub(crate) fn new(
        status: Arc<Status>,
        transport: Arc<dyn Transport>,
        settings: Settings,
    ) -> Result<Self> {
        let (wake, woken) = bounded(1);
        let counters = Arc::new(Counters::by_lock(settings.locks_counted));
        let leases = Arc::new(Leases::new(
            status.clone(),
            transport.clone(),
            counters.clone(),
            wake.clone(),
        ));
        let cleaner = Arc::new(Cleaner::new(
            status.clone(),
            transport.clone(),
            counters.clone(),
            wake,
        ));
        let background = Background::start(leases.clone(), cleaner.clone(), &status, woken);
        let background = background.map_err(Error::no_thread)?;
        Ok(Self {
            status,
            transport,
            cleaner,
            leases,
            settings,
            counters,
            taken: Mutex::default(),
            held_back: AtomicU64::default(),
            process: Process::this(),
            background,
        })
    }

    /// Ends the session, in bounded time; does nothing the second time. Returns whether the server
    /// confirmed the end.
    pub(crate) fn close(&self, limit: Duration) -> bool {
        if self.is_inherited() {
            return true;
        }
        let snapshot = self.status.snapshot();
        self.wait_for_delayed_releases();
        // The guards must be told first: the server may grant their locks to other clients at once.
        let held = self.leases.len();
        self.status.closed();
        if 0 < held && !snapshot.is_over() {
            contained(|| log::warn!("the client was closed with {held} guards, which are Lost"));
        }
        let confirmed = self.transport.close(limit);
        self.background.stop(limit);
        confirmed || snapshot.is_over()
    }

    /// Waits until every delayed release is due, or the session has ended. Does not wait for
    /// releases that are delayed until the client ends.
    fn wait_for_delayed_releases(&self) {
        let Some(longest) = self.cleaner.delayed_for() else {
            return;
        };
        let (mut caller, limit) = (self.caller(), Limit::after(longest));
        // Subscribing before looking misses no change.
        caller.changes();
        // What is left of a session that was given up goes with it, even if there is no other yet.
        let is_over = || {
            let snapshot = self.status.snapshot();
            snapshot.is_over() || snapshot.known_session() == Some(0)
        };
        let mut paused = Ok(());
        loop {
            // This sends what is due, and forgets what went with its session, perhaps a moment ago.
            self.cleaner.push();
            if paused.is_err() || is_over() || self.cleaner.delayed_for().is_none() {
                return;
            }
            paused = caller.pause(longest, &limit);
        }
    }

    /// Returns whether this is the copy of a session in a forked child; see
    /// [`owning_process`](crate::local::owning_process).
    pub(crate) fn is_inherited(&self) -> bool {
        self.process.is_another()
    }

    /// Returns the error of a client that has ended, or whose session is the parent's.
    pub(crate) fn over(&self) -> Error {
        if self.is_inherited() {
            return Error::Closed;
        }
        self.status.ending()
    }

    pub(crate) fn caller(&self) -> Caller {
        Caller::new(&self.status, &self.transport)
    }
}

impl Drop for Session {
    /// Does not wait for the network: the request that ends the session is on its way when this
    /// returns, and the threads end by themselves.
    fn drop(&mut self) {
        if self.is_inherited() {
            // Dropping these is the parent's task. Here, their mutexes may be locked for ever by
            // threads that do not exist.
            mem::forget(self.transport.clone());
            mem::forget(self.cleaner.clone());
            mem::forget(self.status.clone());
            return self.background.forget();
        }
        self.wait_for_delayed_releases();
        self.status.closed();
        self.transport.leave();
        self.background.stop(Duration::ZERO);
    }
}

/// The handle of the background thread, which makes the [`Leases`] prove to every guard that its lock still exists, and
/// the [`Cleaner`] delete what is left.
///
/// The thread sleeps while nothing is due, and never blocks on an answer: it sends requests, and the answers arrive
/// through channels.
#[derive(Debug)]
struct Background {
    stop: Sender<()>,
    stopped: Receiver<()>,
}

impl Background {
    /// Starts the thread, which looks for work whenever `woken` is filled.
    fn start(
        leases: Arc<Leases>,
        cleaner: Arc<Cleaner>,
        status: &Arc<Status>,
        woken: Receiver<()>,
    ) -> io::Result<Self> {
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
    fn stop(&self, limit: Duration) {
        let _ = self.stop.try_send(());
        let _ = self.stopped.recv_timeout(limit);
    }

    /// Leaks the handle in a forked child, where the thread does not exist.
    fn forget(&self) {
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
