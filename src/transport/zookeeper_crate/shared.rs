//! The state that the transport, its workers and the supervising thread share.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use parking_lot::{Condvar, Mutex};
use zookeeper::{ZkState, ZooKeeper};

use super::watches::Watches;
use crate::error::Error;
use crate::transport::status::Status;
use crate::transport::{Answer, Call, Failure, Watch};
use zklock_jute::Request;

/// How long a handle may take to report that it is connected before it is probed.
///
/// A request to a new handle may be lost for ever, with all later ones: the handle's thread
/// registers for requests in two steps, and misses a request between them (`ReceiverCtl::register`
/// of mio-extras 2.0). A connected handle is registered.
const GRACE: Duration = Duration::from_millis(100);

/// The next number of a session, because the crate does not report session ids. Servers grant lower
/// ids, unless one of them has the number 127.
static NEXT_SESSION: AtomicI64 = AtomicI64::new(0x7fff_0000_0000_0001);

/// The first pause before a handle is asked again to end its session, in which it connects again, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// How long a handle is asked that does not report that it has given up, as when it had before it was given to us.
/// Servers with default limits grant at most 40 s.
const LONGEST: Duration = Duration::from_secs(60);

/// The handle, owned by the workers alone, so that no other thread drops it.
pub(super) struct Owned {
    // Fields drop in this order: first the handle ...
    pub(super) handle: ZooKeeper,
    /// Whether the crate has reported that the handle is of no use any more.
    pub(super) has_given_up: Arc<AtomicBool>,
    // ... then the end that `Handle::gone` waits for.
    pub(super) ended: Sender<()>,
}

impl Drop for Owned {
    /// Ends the session, and reports that a server has confirmed the end.
    ///
    /// The crate asks for the end once. If the connection is lost before the answer, its thread resumes the session,
    /// or begins another, and keeps it alive for as long as the process lives.
    fn drop(&mut self) {
        let (begun, (mut pause, longest)) = (Instant::now(), PAUSES);
        while self.handle.close().is_err() {
            if self.has_given_up.load(Ordering::Relaxed) || LONGEST < begun.elapsed() {
                return;
            }
            thread::sleep(pause);
            pause = longest.min(2 * pause);
        }
        let _ = self.ended.send(());
    }
}

pub(super) struct Shared {
    pub(super) status: Arc<Status>,
    pub(super) session_timeout: Duration,
    /// The session timeout to rely on, because the crate does not report what was granted.
    pub(super) believed: Duration,
    pub(super) news: Sender<LinkNews>,
    pub(super) watches: Watches,
    pub(super) life: Mutex<Life>,
    /// Notified whenever a call was answered.
    pub(super) answered: Condvar,
}

pub(super) struct Life {
    /// The workers' jobs; `None` when the transport has ended.
    pub(super) jobs: Option<Sender<Job>>,
    pub(super) link: Link,
    pub(super) next_call: u64,
    /// The calls without an answer.
    pub(super) open: HashMap<u64, Open>,
    /// When the current probe began, if there is one.
    pub(super) probing: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Link {
    /// Connected, in the session with this number.
    Up(i64),
    /// Disconnected since this time.
    Down(Instant),
}

pub(super) struct Open {
    pub(super) since: Instant,
    pub(super) answer: Answer,
}

/// What happened to the connection.
#[derive(Debug)]
pub(super) enum LinkNews {
    State(ZkState),
    /// The server answered a probe.
    Alive,
    /// The transport is closed.
    Over,
}

/// A worker's job.
pub(super) enum Job {
    /// Carry out these requests in this order, in this session.
    Calls(i64, Vec<Task>),
    /// Find out whether there is a connection.
    Probe,
}

/// A request of a call that is open.
pub(super) struct Task {
    pub(super) id: u64,
    pub(super) request: Request,
    pub(super) watch: Option<Watch>,
}

impl Shared {
    /// Creates the state of a transport that is not connected. The times are the session timeout and the one to rely on.
    pub(super) fn new(
        status: Arc<Status>,
        (session_timeout, believed): (Duration, Duration),
        jobs: Sender<Job>,
        news: Sender<LinkNews>,
    ) -> Self {
        Self {
            status,
            session_timeout,
            believed,
            news,
            watches: Watches::default(),
            life: Mutex::new(Life {
                jobs: Some(jobs),
                link: Link::Down(Instant::now()),
                next_call: 0,
                open: HashMap::new(),
                probing: None,
            }),
            answered: Condvar::new(),
        }
    }

    /// Queues the calls for the workers, or returns them.
    pub(super) fn accept(&self, calls: Vec<Call>) -> Result<(), (Failure, Vec<Call>)> {
        let mut life = self.life.lock();
        let Some(jobs) = life.jobs.clone() else {
            return Err((Failure::Closed, calls));
        };
        let Link::Up(session) = life.link else {
            return Err((Failure::NotSent, calls));
        };
        let tasks = calls.into_iter().map(|call| life.admit(call)).collect();
        // This fails if there are no workers; the calls then run into their limits.
        let _ = jobs.send(Job::Calls(session, tasks));
        Ok(())
    }

    /// Follows the connection, and ends the transport when something takes too long.
    pub(super) fn supervise(&self, heard: &Receiver<LinkNews>) {
        let mut news = heard.recv_timeout(GRACE);
        if news.is_err() {
            // The handle may have connected long ago.
            self.life.lock().probe();
        }
        loop {
            match news {
                Ok(LinkNews::State(state)) => self.state_changed(state),
                Ok(LinkNews::Alive) => self.came_up(),
                Err(RecvTimeoutError::Timeout) => {}
                Ok(LinkNews::Over) | Err(RecvTimeoutError::Disconnected) => return,
            }
            let patience = self.patience();
            if patience.is_zero() {
                self.end(Failure::Lost);
                return log::warn!(
                    "a call of the zookeeper crate did not return: the client has ended"
                );
            }
            // The crate does not report its own pings, and a grant relies on earlier messages that
            // were answered.
            news = heard.recv_timeout(patience.min(self.believed / 6));
            if matches!(news, Err(RecvTimeoutError::Timeout)) {
                self.life.lock().probe();
            }
        }
    }

    /// Returns the time after which something has taken too long.
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
                self.status.refused(Error::AuthFailed);
                self.end(Failure::Lost);
            }
            // A read-only server grants no lock.
            _ => self.went_down(None),
        }
    }

    fn came_up(&self) {
        let mut life = self.life.lock();
        if life.jobs.is_none() || matches!(life.link, Link::Up(_)) {
            return;
        }
        let session = NEXT_SESSION.fetch_add(1, Ordering::Relaxed);
        self.watches.begin();
        life.link = Link::Up(session);
        // Reported with the mutex locked, as in `went_down`, so that the status follows in order.
        // The crate does not report when its handshake was sent.
        let unknown = Duration::from_nanos(0);
        self.status.greeted(session, self.believed, unknown);
        self.status.connected(session);
        // A grant relies on an answer in this session, some time after it: the sooner, the better.
        life.probe();
    }

    /// Notes that the connection of this session, or of any, is lost.
    pub(super) fn went_down(&self, session: Option<i64>) {
        let mut life = self.life.lock();
        let Link::Up(current) = life.link else {
            return;
        };
        if session.is_some_and(|session| session != current) {
            return;
        }
        life.link = Link::Down(Instant::now());
        self.status.disconnected();
        // The crate may have lost a call but not the connection.
        life.probe();
    }

    /// Ends the transport; every open call is answered with `failure`.
    pub(super) fn end(&self, failure: Failure) {
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
        let _ = self.news.send(LinkNews::Over);
    }
}

impl Life {
    /// Makes a worker probe the connection, unless a probe is in progress.
    fn probe(&mut self) {
        if let (Some(jobs), None) = (&self.jobs, self.probing) {
            self.probing = Some(Instant::now());
            let _ = jobs.send(Job::Probe);
        }
    }

    fn admit(&mut self, call: Call) -> Task {
        let Call {
            request,
            watch,
            answer,
        } = call;
        let id = self.next_call;
        self.next_call += 1;
        let since = Instant::now();
        self.open.insert(id, Open { since, answer });
        Task { id, request, watch }
    }
}
