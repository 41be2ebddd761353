//! The transport over a handle of the `zookeeper` crate.
//!
//! The crate's calls block, for ever if the network swallows packets, and it tells
//! neither its session nor when it got another one. So this transport is modest:
//!
//! - Calls run on a few threads of our own. One that takes longer than the session
//!   timeout is taken for lost, and the whole transport with it: the session can be no
//!   better.
//! - Every connection counts as a new session, so nothing survives a disconnect.
//! - The last of the threads drops the handle, which may block it for ever: nobody waits
//!   for that longer than he wants to, and a detached thread does not keep a program alive.
//!
//! What the crate runs on its own threads, listeners and watchers, only forwards into a
//! channel: its listeners are called while their lock is held.
//!
//! Containers are made as persistent nodes, because the crate sends the wrong request.

mod calls;
mod shared;
#[cfg(test)]
mod tests;
mod watches;
mod workers;

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded, unbounded};
use parking_lot::{Condvar, Mutex};
use zookeeper::ZooKeeper;

use self::shared::{Life, News, Owned, Shared};
use self::watches::Watches;
use crate::transport::status::Status;
use crate::transport::{Call, Capabilities, Failure, Transport, WatchId};

/// How many calls can be with the crate at once.
const WORKERS: usize = 4;

/// Makes a transport of a handle, which may be connected or not yet.
///
/// It reports to `status` once the handle has connected or answered, and gives up when that
/// takes longer than `session_timeout`.
pub(crate) fn open(
    handle: ZooKeeper,
    session_timeout: Duration,
    believed: Duration,
    status: Arc<Status>,
) -> Arc<dyn Transport> {
    let (jobs, waiting) = unbounded();
    let (news, heard) = unbounded();
    let (last, gone) = bounded(0);
    let states = news.clone();
    handle.add_listener(move |state| {
        // Fails when this transport is at its end.
        let _ = states.send(News::State(state));
    });
    let shared = Arc::new(Shared {
        status,
        session_timeout,
        believed,
        news,
        watches: Watches::default(),
        life: Mutex::new(Life::new(jobs)),
        answered: Condvar::new(),
    });
    let owned = Arc::new(Owned {
        handle,
        _last: last,
    });
    for i in 0..WORKERS {
        let (shared, owned, waiting) = (shared.clone(), owned.clone(), waiting.clone());
        spawn(&format!("zklock-handle-{i}"), move || {
            shared.work(&owned, &waiting);
        });
    }
    let watching = shared.clone();
    spawn("zklock-handle", move || watching.watch_over(&heard));
    Arc::new(Handle { shared, gone })
}

/// Without its threads the transport is a dead one, which the calls find out in time.
fn spawn(name: &str, run: impl FnOnce() + Send + 'static) {
    if let Err(error) = thread::Builder::new().name(name.to_owned()).spawn(run) {
        log::error!("cannot start the thread {name}: {error}");
    }
}

/// See the module's documentation.
struct Handle {
    shared: Arc<Shared>,
    /// Ends when the `zookeeper` crate's handle has been dropped.
    gone: Receiver<()>,
}

impl Transport for Handle {
    fn send(&self, calls: Vec<Call>) {
        if let Err((failure, calls)) = self.shared.accept(calls) {
            for call in calls {
                (call.answer)(Err(failure));
            }
        }
    }

    fn unwatch(&self, _path: &str, id: WatchId) {
        // The server keeps its watch until the node changes, which costs it little. The
        // crate's `remove_watches` would forget all *other* watches on the path.
        self.shared.watches.remove(id);
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            multi: false,
            sync: true,
            resumes: false,
        }
    }

    fn close(&self, limit: Duration) {
        self.shared.end(Failure::Closed);
        // Nothing is ever sent: the channel ends with the handle.
        if self.gone.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            log::warn!("the zookeeper crate did not close its session within {limit:?}");
        }
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

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("link", &self.shared.life.lock().link)
            .finish_non_exhaustive()
    }
}
