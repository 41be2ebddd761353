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
#[cfg(test)]
mod tests;
mod watches;
mod workers;

use std::collections::HashMap;
use std::fmt;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use parking_lot::{Condvar, Mutex};
use zookeeper::{ZkState, ZooKeeper};

use self::watches::Watches;
use self::workers::{Errand, Job};
use crate::time::clock::Moment;
use crate::transport::status::Status;
use crate::transport::{Answer, Call, Capabilities, Failure, Transport, WatchId};

/// How many calls can be with the crate at once.
const WORKERS: usize = 4;

/// How long a handle has to say that it is connected before it is asked.
///
/// One that is new must not be asked too soon: its thread begins to listen for requests in
/// two steps, and what comes between them is never noticed, nor is anything after it
/// (`ReceiverCtl::register` of mio-extras 2.0). Once it is connected it listens.
const GRACE: Duration = Duration::from_millis(100);

/// Stands for a session, as the crate does not tell which one it has. Servers give lower
/// numbers, unless one is called 127.
static NEXT_SESSION: AtomicI64 = AtomicI64::new(0x7fff_0000_0000_0001);

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

/// Owned by the workers alone, so that no other thread ever drops it.
struct Owned {
    // Fields drop in this order: first the handle, which closes the session, ..
    handle: ZooKeeper,
    // .. then what `Handle::gone` waits for.
    _last: Sender<()>,
}

struct Shared {
    status: Arc<Status>,
    session_timeout: Duration,
    /// What is believed of the session timeout, as the crate does not tell what was granted.
    believed: Duration,
    news: Sender<News>,
    watches: Watches,
    life: Mutex<Life>,
    /// Notified whenever a call was answered.
    answered: Condvar,
}

struct Life {
    /// Where the workers get their jobs from; nothing at the end.
    jobs: Option<Sender<Job>>,
    link: Link,
    next_call: u64,
    /// The calls that are not answered yet.
    open: HashMap<u64, Open>,
    /// Since when a worker has to find out whether there is a connection.
    probing: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Link {
    /// In the session of this number.
    Up(i64),
    /// Without a connection since then.
    Down(Instant),
}

struct Open {
    since: Instant,
    answer: Answer,
}

/// What happened to the connection.
#[derive(Debug)]
enum News {
    State(ZkState),
    /// The server answered a probe.
    Alive,
    /// The transport is closed.
    Over,
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

impl Shared {
    /// Queues the calls for the workers, or gives them back.
    fn accept(&self, calls: Vec<Call>) -> Result<(), (Failure, Vec<Call>)> {
        let mut life = self.life.lock();
        let Some(jobs) = life.jobs.clone() else {
            return Err((Failure::Closed, calls));
        };
        let Link::Up(session) = life.link else {
            return Err((Failure::NotSent, calls));
        };
        let errands = calls.into_iter().map(|call| life.admit(call)).collect();
        // The workers may have ended without us, and then nobody will answer in time.
        let _ = jobs.send(Job::Calls(session, errands));
        Ok(())
    }

    /// Follows the connection, and ends the transport when it takes too long.
    fn watch_over(&self, heard: &Receiver<News>) {
        let mut news = heard.recv_timeout(GRACE);
        if news.is_err() {
            // It may have been connected for long.
            self.life.lock().probe();
        }
        loop {
            match news {
                Ok(News::State(state)) => self.state_changed(state),
                Ok(News::Alive) => self.came_up(),
                Err(RecvTimeoutError::Timeout) => {}
                Ok(News::Over) | Err(RecvTimeoutError::Disconnected) => return,
            }
            let patience = self.patience();
            if patience.is_zero() {
                log::warn!("the zookeeper crate is stuck: its session is given up");
                return self.end(Failure::Lost);
            }
            // The crate does not tell of its own pings, and a grant rests on messages that
            // were answered before.
            news = heard.recv_timeout(patience.min(self.believed / 6));
            if matches!(news, Err(RecvTimeoutError::Timeout)) {
                self.life.lock().probe();
            }
        }
    }

    /// Returns how long it takes until something has taken too long.
    fn patience(&self) -> Duration {
        let life = self.life.lock();
        let down = match life.link {
            Link::Up(_) => None,
            Link::Down(since) => Some(since),
        };
        let open = life.open.values().map(|open| open.since);
        let oldest = open.chain(down).chain(life.probing).min();
        let spent = oldest.map_or(Duration::ZERO, |since| since.elapsed());
        self.session_timeout.saturating_sub(spent)
    }

    fn state_changed(&self, state: ZkState) {
        match state {
            ZkState::Connected => {
                self.went_down(None);
                self.came_up();
            }
            ZkState::Closed => self.end(Failure::Lost),
            ZkState::AuthFailed => {
                self.status.auth_failed();
                self.end(Failure::Lost);
            }
            // On a read-only server nothing can be locked.
            _ => self.went_down(None),
        }
    }

    fn came_up(&self) {
        let mut life = self.life.lock();
        if life.jobs.is_none() || matches!(life.link, Link::Up(_)) {
            return;
        }
        let session = NEXT_SESSION.fetch_add(1, Ordering::Relaxed);
        life.link = Link::Up(session);
        // Told under the lock, as in `went_down`: the status must hear it in this order.
        // The crate has shaken hands at a time that nobody knows.
        let unknown = Moment::from_nanos(0);
        self.status.greeted(session, self.believed, unknown);
        self.status.connected(session);
    }

    /// Notes that this session, or any, has lost its connection.
    fn went_down(&self, session: Option<i64>) {
        let mut life = self.life.lock();
        let Link::Up(current) = life.link else {
            return;
        };
        if session.is_some_and(|session| session != current) {
            return;
        }
        life.link = Link::Down(Instant::now());
        self.status.disconnected();
        // The crate may have lost a call without losing its connection.
        life.probe();
    }

    /// Ends the transport; what is open is answered with `failure`.
    fn end(&self, failure: Failure) {
        let (was_up, open) = {
            let mut life = self.life.lock();
            if life.jobs.take().is_none() {
                return;
            }
            (matches!(life.link, Link::Up(_)), mem::take(&mut life.open))
        };
        self.answered.notify_all();
        for open in open.into_values() {
            (open.answer)(Err(failure));
        }
        if was_up && failure == Failure::Lost {
            self.status.disconnected();
        }
        self.status.closed();
        let _ = self.news.send(News::Over);
    }
}

impl Life {
    fn new(jobs: Sender<Job>) -> Self {
        Self {
            jobs: Some(jobs),
            link: Link::Down(Instant::now()),
            next_call: 0,
            open: HashMap::new(),
            probing: None,
        }
    }

    /// Has a worker find out whether there is a connection, unless one is at it.
    fn probe(&mut self) {
        if let (Some(jobs), None) = (&self.jobs, self.probing) {
            self.probing = Some(Instant::now());
            let _ = jobs.send(Job::Probe);
        }
    }

    fn admit(&mut self, call: Call) -> Errand {
        let Call {
            request,
            watch,
            answer,
        } = call;
        let id = self.next_call;
        self.next_call += 1;
        let since = Instant::now();
        self.open.insert(id, Open { since, answer });
        Errand { id, request, watch }
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("link", &self.shared.life.lock().link)
            .finish_non_exhaustive()
    }
}
