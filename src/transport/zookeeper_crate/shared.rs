//! What the transport, its workers and the thread that watches over them share.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use parking_lot::{Condvar, Mutex};
use zookeeper::{ZkState, ZooKeeper};

use super::watches::Watches;
use crate::jute::Request;
use crate::time::clock::Moment;
use crate::transport::status::Status;
use crate::transport::{Answer, Call, Failure, Watch};

/// How long a handle has to say that it is connected before it is asked.
///
/// One that is new must not be asked too soon: its thread begins to listen for requests in
/// two steps, and what comes between them is never noticed, nor is anything after it
/// (`ReceiverCtl::register` of mio-extras 2.0). Once it is connected it listens.
const GRACE: Duration = Duration::from_millis(100);

/// Stands for a session, as the crate does not tell which one it has. Servers give lower
/// numbers, unless one is called 127.
static NEXT_SESSION: AtomicI64 = AtomicI64::new(0x7fff_0000_0000_0001);

/// Owned by the workers alone, so that no other thread ever drops it.
pub(super) struct Owned {
    // Fields drop in this order: first the handle, which closes the session, ..
    pub(super) handle: ZooKeeper,
    // .. then what `Handle::gone` waits for.
    pub(super) _last: Sender<()>,
}

pub(super) struct Shared {
    pub(super) status: Arc<Status>,
    pub(super) session_timeout: Duration,
    /// What is believed of the session timeout, as the crate does not tell what was granted.
    pub(super) believed: Duration,
    pub(super) news: Sender<News>,
    pub(super) watches: Watches,
    pub(super) life: Mutex<Life>,
    /// Notified whenever a call was answered.
    pub(super) answered: Condvar,
}

pub(super) struct Life {
    /// Where the workers get their jobs from; nothing at the end.
    pub(super) jobs: Option<Sender<Job>>,
    pub(super) link: Link,
    pub(super) next_call: u64,
    /// The calls that are not answered yet.
    pub(super) open: HashMap<u64, Open>,
    /// Since when a worker has to find out whether there is a connection.
    pub(super) probing: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Link {
    /// In the session of this number.
    Up(i64),
    /// Without a connection since then.
    Down(Instant),
}

pub(super) struct Open {
    pub(super) since: Instant,
    pub(super) answer: Answer,
}

/// What happened to the connection.
#[derive(Debug)]
pub(super) enum News {
    State(ZkState),
    /// The server answered a probe.
    Alive,
    /// The transport is closed.
    Over,
}

/// What a worker has to do.
pub(super) enum Job {
    /// To carry these out in this order, in this session.
    Calls(i64, Vec<Errand>),
    /// To find out whether there is a connection.
    Probe,
}

/// A call whose answer is kept among the open ones.
pub(super) struct Errand {
    pub(super) id: u64,
    pub(super) request: Request,
    pub(super) watch: Option<Watch>,
}

impl Shared {
    /// Queues the calls for the workers, or gives them back.
    pub(super) fn accept(&self, calls: Vec<Call>) -> Result<(), (Failure, Vec<Call>)> {
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
    pub(super) fn watch_over(&self, heard: &Receiver<News>) {
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
        // The crate may have lost a call without losing its connection.
        life.probe();
    }

    /// Ends the transport; what is open is answered with `failure`.
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
        let _ = self.news.send(News::Over);
    }
}

impl Life {
    pub(super) fn new(jobs: Sender<Job>) -> Self {
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
