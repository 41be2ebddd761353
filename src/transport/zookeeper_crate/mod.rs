//! The transport over a handle of the `zookeeper` crate.
//!
//! ```text
//!   send ──► jobs ──► workers (4 threads) ──► the crate's handle
//!                        │                           │ listeners, watchers
//!                        ▼                           ▼
//!     Status ◄── the supervising thread ◄────────── news
//! ```
//!
//! The crate's calls block, for ever if the network swallows packets. The crate reports neither its
//! session nor the beginning of another one. This transport therefore promises little:
//!
//! - Calls run on a few threads. A call that takes longer than the session timeout counts as lost
//!   and ends the transport, because the session may have expired by then too.
//! - Every connection counts as a new session, so nothing survives a disconnect.
//! - The last worker ends the session, which may block for ever, and drops the handle. Callers wait for that only
//!   within their limit, and a detached thread does not keep a program alive.
//!
//! Listeners and watchers run on the crate's threads and under its locks, so they only forward into
//! a channel.
//!
//! Containers are created as persistent nodes, because the crate sends the wrong request.

mod calls;
mod shared;
// These tests need real servers.
#[cfg(all(test, not(zklock_sim)))]
mod tests;
mod watches;
mod workers;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded, unbounded};
use zookeeper::ZkState;
pub(crate) use zookeeper::ZooKeeper;

use self::shared::{LinkNews, Owned, Shared};
use crate::local::owning_process::Process;
use crate::transport::status::Status;
use crate::transport::{Call, Failure, Transport, WatchId};

/// How many calls can be in the crate at once.
const WORKERS: usize = 4;

/// Creates a transport over a handle, connected or not.
///
/// It reports to `status` once the handle has connected or answered, and ends if that takes longer
/// than `session_timeout`. Guards rely on `believed` as the session timeout. Fails if a thread
/// cannot be started.
pub(crate) fn open(
    handle: ZooKeeper,
    session_timeout: Duration,
    believed: Duration,
    status: Arc<Status>,
) -> io::Result<Arc<dyn Transport>> {
    let (jobs, waiting) = unbounded();
    let (news, heard) = unbounded();
    let (ended, gone) = bounded(1);
    let has_given_up = Arc::new(AtomicBool::new(false));
    let (states, gives_up) = (news.clone(), has_given_up.clone());
    handle.add_listener(move |state| {
        gives_up.fetch_or(state == ZkState::Closed, Ordering::Relaxed);
        // This fails when the transport has ended.
        let _ = states.send(LinkNews::State(state));
    });
    let shared = Shared::new(status, (session_timeout, believed), jobs, news);
    let owned = Arc::new(Owned {
        handle,
        has_given_up,
        ended,
    });
    // Ends those that have begun if one does not.
    let transport = Arc::new(Handle {
        shared: Arc::new(shared),
        process: Process::this(),
        gone,
    });
    for i in 0..WORKERS {
        let shared = &transport.shared;
        let (shared, owned, waiting) = (shared.clone(), owned.clone(), waiting.clone());
        spawn(&format!("zklock-handle-{i}"), move || {
            shared.work(&owned, &waiting);
        })?;
    }
    let watching = transport.shared.clone();
    spawn("zklock-handle", move || watching.supervise(&heard))?;
    Ok(transport)
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = thread::Builder::new().name(name.to_owned());
    thread.spawn(run).map(drop)
}

/// See the module's documentation.
struct Handle {
    shared: Arc<Shared>,
    /// The process that has the threads: a forked child has none of them.
    process: Process,
    /// Receives that a server has ended the session; disconnects when the crate's handle has been dropped.
    gone: Receiver<()>,
}

impl Transport for Handle {
    fn send(&self, calls: Vec<Call>) {
        let accepted = match self.process.is_another() {
            true => Err((Failure::Closed, calls)),
            false => {
                let requests = calls.iter().map(|call| &call.request);
                self.shared.status.requests.count(requests);
                self.shared.accept(calls)
            }
        };
        if let Err((failure, calls)) = accepted {
            for call in calls {
                (call.answer)(Err(failure));
            }
        }
    }

    fn unwatch(&self, path: &str, id: WatchId) {
        // The server keeps its watch until the node changes, which costs it little. The crate's
        // `remove_watches` would remove all *other* watches on the path.
        if !self.process.is_another() {
            self.shared.watches.remove(path, id);
        }
    }

    fn transacts(&self) -> bool {
        false
    }

    fn close(&self, limit: Duration) -> bool {
        self.shared.end(Failure::Closed);
        let told = self.gone.recv_timeout(limit);
        if told == Err(RecvTimeoutError::Timeout) {
            log::warn!("the zookeeper crate did not close its session within {limit:?}");
        }
        told.is_ok()
    }

    fn leave(&self) {
        self.shared.end(Failure::Closed);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.end(Failure::Closed);
    }
}
