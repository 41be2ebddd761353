//! The types that users have, and the one mutex. The shell decides nothing.

use std::collections::{HashMap, VecDeque};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::time::{ClockId, clock_gettime};
use zklock_core::attempt::Patience;
use zklock_core::dialect::{Dialect, Role};
use zklock_jute::{OpCode, Request};
use zklock_play::{Ask, Core, GuardId, Outcome, Settings, Thread, Ticket, Time};

use crate::reader::Reader;
use crate::sleeper::Sleeper;
use crate::who_reads::LeaderFollowers;

/// How long a client waits for the end of its session.
const LAST_WORD: Duration = Duration::from_secs(2);

/// A session, and the threads that keep it.
pub(crate) struct Client {
    pub(crate) shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

pub(crate) struct Shared {
    pub(crate) hosts: String,
    pub(crate) timeout: Duration,
    /// Whether threads pass a lock on among themselves.
    hands_over: bool,
    /// The wants of threads. The thread that has the core takes them in, so that no thread waits
    /// for the core.
    pub(super) inbox: Mutex<Vec<Input>>,
    pub(crate) state: Mutex<State>,
    pub(crate) lead: LeaderFollowers<Reader>,
    /// Whether the clock must look again.
    pub(super) rung: Mutex<bool>,
    pub(super) clock: Condvar,
    /// When the attempt to end the session is given up.
    closes_by: OnceLock<Instant>,
    /// The number of connections that broke.
    pub(crate) broken: AtomicU64,
}

/// A thread's want that goes into the core.
pub(super) enum Input {
    Ask(Ask, Thread, Arc<Sleeper>),
    Release(GuardId),
}

pub(crate) struct State {
    pub(crate) core: Core,
    pub(super) sleepers: HashMap<Ticket, Arc<Sleeper>>,
    /// The sleepers of guards, which know what their guards may believe.
    pub(super) guards: HashMap<GuardId, Arc<Sleeper>>,
    pub(super) stream: Option<Arc<TcpStream>>,
    /// Counts connections, so that a late writer notices that its own has ended.
    pub(super) connection: u64,
    /// The bytes to write.
    pub(super) out: Vec<u8>,
    /// The writer's buffer; absent while a thread is writing.
    pub(super) writer: Option<Vec<u8>>,
    /// The kinds of the requests without an answer.
    pub(super) open: VecDeque<OpCode>,
    pub(super) xid: i32,
    /// When the clock will tick next.
    pub(super) armed: Time,
    /// Whether the server was asked to end the session.
    pub(super) asked_to_close: bool,
}

/// A lock that is held.
pub(crate) struct Guard<'a> {
    client: &'a Client,
    id: GuardId,
    trust: Arc<Sleeper>,
    pub(crate) token: i64,
}

/// Returns the time since a moment long before the machine started, including its sleep.
pub(crate) fn now() -> Time {
    let now = clock_gettime(ClockId::Boottime);
    Duration::from_millis(1 << 32) + Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

impl Client {
    pub(crate) fn connect(hosts: &str, timeout: Duration, local_handoffs: u32) -> Self {
        let mut settings = Settings::new(Dialect::Curator, fastrand::u128(..));
        settings.local_handoffs = local_handoffs;
        // As long as the card of the client that ships.
        settings.card = vec![b' '; 100];
        let shared = Arc::new(Shared {
            hosts: hosts.to_owned(),
            timeout,
            hands_over: local_handoffs != 0,
            inbox: Mutex::default(),
            state: Mutex::new(State::new(Core::new(settings))),
            lead: LeaderFollowers::default(),
            rung: Mutex::default(),
            clock: Condvar::new(),
            closes_by: OnceLock::new(),
            broken: AtomicU64::new(0),
        });
        let [io, clock] = [(); 2].map(|()| shared.clone());
        let threads = vec![
            thread::spawn(move || io.serve()),
            thread::spawn(move || clock.ticks()),
        ];
        Self { shared, threads }
    }

    /// Waits for a lock, at most until then.
    pub(crate) fn lock(&self, path: &Arc<str>, until: Option<Time>) -> Result<Guard<'_>, Outcome> {
        let ask = Ask::Lock {
            path: path.clone(),
            role: Role::Exclusive,
            patience: Patience::Waits,
            until,
        };
        // Without hand-overs among threads, every grant comes from the server.
        let sleeper = Sleeper::new(!self.shared.hands_over);
        match self.shared.ask(ask, until, &sleeper) {
            Outcome::Held(grant) => Ok(Guard {
                client: self,
                id: grant.guard,
                trust: sleeper,
                token: grant.token,
            }),
            other => Err(other),
        }
    }

    /// Cuts the connection.
    pub(crate) fn cut(&self) {
        if let Some(stream) = &self.shared.state.lock().stream {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    /// Returns until when to try to end the session, if that is wanted.
    pub(super) fn closes_by(&self) -> Option<Instant> {
        self.closes_by.get().copied()
    }

    /// Asks the core, and sleeps until the answer is there. A thread that reads for all cannot be
    /// woken, so it watches its own limit.
    fn ask(&self, ask: Ask, until: Option<Time>, sleeper: &Arc<Sleeper>) -> Outcome {
        self.put(Input::Ask(ask, me(), sleeper.clone()));
        let until = until.map(|until| Instant::now() + until.saturating_sub(now()));
        loop {
            if let Some(outcome) = sleeper.take() {
                return outcome;
            }
            if until.is_some_and(|until| until <= Instant::now()) {
                self.turn(Core::tick);
            }
            match sleeper.reads() {
                true => self.lead.rest(&|| sleeper.is_set(), until),
                false => self.lead.attend(&|| sleeper.is_set(), until),
            }
        }
    }
}

fn me() -> Thread {
    static LAST: AtomicU64 = AtomicU64::new(0);
    thread_local!(static ME: u64 = LAST.fetch_add(1, Ordering::Relaxed));
    Thread(ME.with(|me| *me))
}

impl State {
    fn new(core: Core) -> Self {
        Self {
            core,
            sleepers: HashMap::new(),
            guards: HashMap::new(),
            stream: None,
            connection: 0,
            out: Vec::new(),
            writer: None,
            open: VecDeque::new(),
            xid: 0,
            armed: Time::ZERO,
            asked_to_close: false,
        }
    }

    /// Asks the server to end the session.
    pub(super) fn close(&mut self) {
        Request::Close.encode(i32::MAX, &mut self.out);
        self.asked_to_close = true;
    }
}

impl Guard<'_> {
    pub(crate) fn check(&self) -> bool {
        now() < self.trust.until()
    }

    /// Lets the quorum confirm the lock.
    pub(crate) fn verify(&self) -> Outcome {
        let guard = self.id;
        let until = Some(now() + Duration::from_secs(60));
        let verify = Ask::Verify { guard, until };
        self.client.shared.ask(verify, until, &Sleeper::new(true))
    }

    /// Releases the lock, and waits for the outcome.
    pub(crate) fn unlock(self) -> Outcome {
        let unlock = Ask::Unlock {
            guard: self.id,
            ops: Vec::new(),
        };
        self.client.shared.ask(unlock, None, &Sleeper::new(true))
    }
}

impl Drop for Guard<'_> {
    /// Releases the lock without waiting. The core does not know a guard that is given up already.
    fn drop(&mut self) {
        self.client.shared.put(Input::Release(self.id));
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let shared = &self.shared;
        let mut state = shared.state.lock();
        let _ = shared.closes_by.set(Instant::now() + LAST_WORD);
        if state.stream.is_some() {
            state.close();
        }
        shared.carry_out(state);
        shared.ring();
        for thread in self.threads.drain(..) {
            thread.join().expect("no panic");
        }
    }
}
