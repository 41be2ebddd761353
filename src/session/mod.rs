//! Threads and the connection to ZooKeeper: everything that waits.
//!
//! ```text
//!  drive ──► ask ──► transport ◄── leftovers, heart ◄── keeper (a thread)
//!   │                 │ wire (a thread)
//!   └─► local         │ handle (threads around the `zookeeper` crate)
//!                     └──► hub: the state of the connection, told to all of them
//! ```
//!
//! Threads of the user's wait in `local`, `ask` and `drive`, on channels (a `mailbox` is
//! one), and always for a limit or a change of the hub as well. What is decided without
//! waiting is in `protocol`.

pub(crate) mod ask;
pub(crate) mod drive;
#[cfg(feature = "zookeeper")]
pub(crate) mod handle;
pub(crate) mod heart;
pub(crate) mod hub;
pub(crate) mod keeper;
pub(crate) mod leftovers;
pub(crate) mod limit;
pub(crate) mod local;
pub(crate) mod mailbox;
pub(crate) mod overdue;
pub(crate) mod presence;
pub(crate) mod process;
pub(crate) mod proof;
pub(crate) mod queries;
pub(crate) mod transport;
pub(crate) mod vigil;
pub(crate) mod vigils;
pub(crate) mod wire;

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::bounded;
use uuid::{Builder, Uuid};

use self::ask::Asker;
use self::heart::Heart;
use self::hub::{Hub, Link, SessionState};
use self::keeper::Keeper;
use self::leftovers::Leftovers;
use self::local::Lines;
use self::presence::Presence;
use self::process::Process;
use self::transport::{Transport, WatchId};
use self::vigils::Vigils;
use crate::acl::Acl;
use crate::error::{Error, Result};
use crate::metrics::{Counted, Counters};
use crate::owner::Card;
use crate::proto::{ErrorCode, Request};
use crate::protocol::dialect::Dialect;
use crate::reentrant_mutex::Reentrant;

/// How long the end of a session is waited for.
pub(crate) const CLOSE_LIMIT: Duration = Duration::from_secs(1);

/// One client's session, with all that lives as long as it.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) hub: Arc<Hub>,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) lines: Lines,
    pub(crate) presence: Presence,
    pub(crate) reentrant: Reentrant,
    pub(crate) leftovers: Arc<Leftovers>,
    pub(crate) vigils: Arc<Vigils>,
    pub(crate) settings: Settings,
    pub(crate) counters: Arc<Counters>,
    process: Process,
    keeper: Keeper,
    next_watch: Arc<AtomicU64>,
}

/// What the user has said about this client's nodes.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) dialect: Dialect,
    pub(crate) acl: Acl,
    pub(crate) card: Card,
    /// How many times in a row a lock may go from thread to thread of this client.
    pub(crate) local_handoffs: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            dialect: Dialect::default(),
            acl: Acl::open(),
            card: Card::new(None),
            local_handoffs: 0,
        }
    }
}

impl Session {
    pub(crate) fn new(
        hub: Arc<Hub>,
        transport: Arc<dyn Transport>,
        settings: Settings,
    ) -> Result<Self> {
        let counters = Arc::<Counters>::default();
        let transport = Counted::over(transport, &counters);
        let (wake, woken) = bounded(1);
        let next_watch = Arc::new(AtomicU64::new(0));
        let vigils = Arc::new(Vigils::new(wake.clone()));
        let leftovers = Arc::new(Leftovers::new(
            hub.clone(),
            transport.clone(),
            counters.clone(),
            wake,
        ));
        let heart = Heart::new(
            hub.clone(),
            transport.clone(),
            vigils.clone(),
            counters.clone(),
            next_watch.clone(),
        );
        let keeper = Keeper::start(heart, leftovers.clone(), &hub, woken);
        let keeper = keeper.map_err(|_| Error::Unsupported {
            what: "another thread",
        })?;
        Ok(Self {
            hub,
            transport,
            lines: Lines::default(),
            presence: Presence::default(),
            reentrant: Reentrant::default(),
            leftovers,
            vigils,
            settings,
            counters,
            process: Process::this(),
            keeper,
            next_watch,
        })
    }

    /// Ends the session; bounded in time, and of no effect the second time. Returns whether
    /// the server has confirmed it.
    pub(crate) fn close(&self) -> bool {
        if self.is_inherited() {
            return true;
        }
        let link = self.hub.link();
        self.hold_out(&link);
        // The guards first: the server may give their locks to others at once.
        self.hub.closed();
        let began = Instant::now();
        self.transport.close(CLOSE_LIMIT);
        let in_time = began.elapsed() < CLOSE_LIMIT;
        self.keeper.stop(CLOSE_LIMIT);
        link.is_over() || (in_time && link.state == SessionState::Connected)
    }

    /// Waits until no lock is to be held any more whose guard is gone, but for those that are
    /// to be held as long as there is a client.
    fn hold_out(&self, link: &Link) {
        if let (Some(until), false) = (self.leftovers.held_until(), link.is_over()) {
            thread::sleep(until.saturating_duration_since(Instant::now()));
            self.leftovers.push();
        }
    }

    /// Whether this is the copy of a session in a forked child; see [`process`].
    pub(crate) fn is_inherited(&self) -> bool {
        self.process.is_another()
    }

    /// The error of a client that is at its end, or whose session is the parent's.
    pub(crate) fn over(&self) -> Error {
        if self.is_inherited() {
            return Error::Closed;
        }
        ask::over(&self.hub.link())
    }

    pub(crate) fn asker(&self) -> Asker {
        Asker::new(&self.hub, &self.transport)
    }

    pub(crate) fn next_watch(&self) -> WatchId {
        WatchId(self.next_watch.fetch_add(1, Ordering::Relaxed))
    }
}

impl Drop for Session {
    /// Does not wait for the network: the end of the session is on its way when this returns,
    /// and the threads end by themselves.
    fn drop(&mut self) {
        if self.is_inherited() {
            // Whatever these would do when they are dropped is the parent's to do. Their locks
            // may be held by threads that do not exist here.
            mem::forget(self.transport.clone());
            mem::forget(self.leftovers.clone());
            mem::forget(self.hub.clone());
            return self.keeper.forget();
        }
        let link = self.hub.link();
        self.hold_out(&link);
        self.hub.closed();
        self.transport.leave();
        self.keeper.stop(Duration::ZERO);
    }
}

/// The request after whose answer a listing of `dir` is up to date.
///
/// Where there is no sync, a write does it, even one that comes to nothing.
pub(crate) fn sync(dir: &str, supported: bool) -> Request {
    match supported {
        true => Request::Sync {
            path: dir.to_owned(),
        },
        false => Request::Delete {
            path: format!("{dir}/_sync"),
            version: -1,
        },
    }
}

/// An id for a node's name that was never used.
///
/// It is of version 8, the one for one's own purposes. Other libraries write version 4, and
/// so our nodes can be told from theirs.
pub(crate) fn fresh_id() -> String {
    let random = Uuid::new_v4().into_bytes();
    Builder::from_custom_bytes(random).into_uuid().to_string()
}

pub(crate) fn list(dir: &str) -> Request {
    Request::GetChildren {
        path: dir.to_owned(),
        watch: false,
        stat: false,
    }
}

/// Whether a refusal is about the connection, so that the request may yet succeed.
pub(crate) fn is_passing(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::CONNECTION_LOSS
            | ErrorCode::OPERATION_TIMEOUT
            | ErrorCode::SESSION_EXPIRED
            | ErrorCode::SESSION_MOVED
            | ErrorCode::THROTTLED
    )
}
