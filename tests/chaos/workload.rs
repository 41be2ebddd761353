//! The workload of a client process, which takes locks of every kind and records everything.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use zklock::{Client, Error, GuardState, LockGuard, LockOptions, Mutex, Result};

use crate::history::{Journal, Kind, Process, What, now};
use crate::ops::TIMEOUT;
use crate::store::Writer;
use crate::support::worker;

/// All locks of a run are below this node.
pub(crate) const ROOT: &str = "/chaos";

/// How many permits the semaphore of a run has.
const PERMITS: usize = 2;

/// How many threads of a process take locks.
pub(crate) const THREADS: usize = 2;

/// While this file exists, the processes of a run begin no new operation.
pub(crate) const STOP: &str = "stop";

/// While this file exists, the threads of a run take no lock, and each reports that once.
pub(crate) const REST: &str = "rest";

/// The line by which a thread reports that it has begun to rest.
pub(crate) const RESTING: &str = "resting";

/// While this file exists, the processes of a run end.
pub(crate) const QUIT: &str = "quit";

/// The task of a client process.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) hosts: String,
    pub(crate) timeout: Duration,
    pub(crate) who: Process,
    pub(crate) folder: PathBuf,
    pub(crate) seed: u64,
}

impl Task {
    pub(crate) fn to_input(&self) -> String {
        let Self {
            hosts,
            timeout,
            who,
            folder,
            seed,
        } = self;
        let (timeout, folder) = (timeout.as_millis(), folder.display());
        let Process { slot, life } = who;
        format!("{hosts} {timeout} {slot} {life} {folder} {seed}")
    }

    /// Returns the task, and the rest of the input.
    pub(crate) fn from_input(input: &str) -> (Self, Vec<String>) {
        let words: Vec<_> = input.split(' ').collect();
        let (task, more) = words.split_at(6);
        let more = more.iter().map(|word| (*word).to_owned()).collect();
        (Self::from_words(&task.join(" ")), more)
    }

    fn from_words(input: &str) -> Self {
        let [hosts, timeout, slot, life, folder, seed] = worker::words(input);
        Self {
            hosts,
            timeout: Duration::from_millis(timeout.parse().expect("a timeout")),
            who: Process {
                slot: slot.parse().expect("a slot"),
                life: life.parse().expect("a life"),
            },
            folder: folder.into(),
            seed: seed.parse().expect("a seed"),
        }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(crate) fn journal(&self) -> Journal {
        let name = format!("{}.history", self.who);
        Journal::open(&self.file(&name), self.who)
    }

    /// Connects, however long that takes.
    pub(crate) fn connect(&self) -> Client {
        self.connect_to(&self.hosts)
    }

    /// Connects to these servers, however long that takes.
    pub(crate) fn connect_to(&self, hosts: &str) -> Client {
        loop {
            let client = Client::builder(hosts)
                .session_timeout(self.timeout)
                .connect();
            match client {
                Ok(client) => return client,
                Err(Error::ConnectTimeout { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// Takes locks until it is told to stop, and ends when it is told to quit.
#[test]
#[ignore = "a worker process"]
pub(crate) fn worker_that_takes_locks_of_every_kind() {
    let Some(input) = worker::input() else { return };
    let (task, _) = Task::from_input(&input);
    let client = task.connect();
    worker::say("ready");
    let (journal, op) = (task.journal(), AtomicUsize::new(1));
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (task, client, journal, op) = (&task, &client, &journal, &op);
            scope.spawn(move || {
                let seed = task.seed ^ ((thread as u64 + 1) << 56);
                let actor = Actor::new(task, client, journal, op, seed);
                actor.act();
            });
        }
    });
    worker::say("idle");
    wait_for(&task.file(QUIT));
    // This fails while the client is disconnected, which this run does not judge.
    drop(client.close());
    worker::say("bye");
}

pub(crate) fn wait_for(file: &Path) {
    while !file.exists() {
        thread::sleep(Duration::from_millis(5));
    }
}

fn wait_for_the_end_of(file: &Path) {
    while file.exists() {
        thread::sleep(Duration::from_millis(20));
    }
}

/// One thread of a client process.
pub(crate) struct Actor<'a> {
    task: &'a Task,
    client: &'a Client,
    journal: &'a Journal,
    ops: &'a AtomicUsize,
    rng: Rng,
    store: Writer,
    /// The mutexes are kept, since a mutex remembers when it was held last.
    mutexes: HashMap<String, Mutex>,
}

impl<'a> Actor<'a> {
    pub(crate) fn new(
        task: &'a Task,
        client: &'a Client,
        journal: &'a Journal,
        ops: &'a AtomicUsize,
        seed: u64,
    ) -> Self {
        Self {
            task,
            client,
            journal,
            ops,
            rng: Rng::with_seed(seed),
            store: Writer::open(&task.file("store"), task.who),
            mutexes: HashMap::new(),
        }
    }

    fn act(mut self) {
        let (stop, rest) = (self.task.file(STOP), self.task.file(REST));
        while !stop.exists() {
            if rest.exists() {
                worker::say(RESTING);
                wait_for_the_end_of(&rest);
            }
            self.act_once();
            let pause = self.rng.u64(5..80);
            thread::sleep(Duration::from_millis(pause));
        }
    }

    fn act_once(&mut self) {
        let limit = match self.rng.u32(0..10) {
            0..4 => None,
            4..6 => Some(Duration::from_millis(self.rng.u64(0..500))),
            _ => Some(Duration::from_millis(self.rng.u64(1000..20_000))),
        };
        let (two, three) = (self.rng.u32(0..2), self.rng.u32(0..3));
        match self.rng.u32(0..12) {
            0..4 => self.take_mutex(&format!("{ROOT}/m{two}"), limit),
            4..6 => self.take_read(limit),
            6..8 => self.take_write(limit),
            8..10 => self.take_permit(limit),
            10 => self.take_mutex(&format!("{ROOT}/x{three}"), limit),
            _ => self.take_several(limit),
        }
    }

    pub(crate) fn take_mutex(&mut self, path: &str, limit: Option<Duration>) {
        let mutex = || self.client.mutex(path).expect("a mutex");
        let mutex = self.mutexes.entry(path.to_owned()).or_insert_with(mutex);
        let mutex = mutex.clone();
        let op = self.request(Kind::Exclusive, &[path], limit);
        let taken = mutex.lock_with(self.options(op, limit));
        self.go_on(op, &[path], taken, |guard| {
            vec![guard.fencing_token().get()]
        });
    }

    fn take_read(&mut self, limit: Option<Duration>) {
        let path = &format!("{ROOT}/rw");
        let lock = self.client.rwlock(path).expect("a read-write lock");
        let op = self.request(Kind::Read, &[path], limit);
        let taken = lock.read_with(self.options(op, limit));
        // Readers have nothing to write.
        self.go_on(op, &[], taken, |guard| vec![guard.fencing_token().get()]);
    }

    fn take_write(&mut self, limit: Option<Duration>) {
        let path = &format!("{ROOT}/rw");
        let lock = self.client.rwlock(path).expect("a read-write lock");
        let op = self.request(Kind::Exclusive, &[path], limit);
        let taken = lock.write_with(self.options(op, limit));
        self.go_on(op, &[path], taken, |guard| {
            vec![guard.fencing_token().get()]
        });
    }

    fn take_permit(&mut self, limit: Option<Duration>) {
        let path = &format!("{ROOT}/permits");
        let semaphore = self.client.semaphore(path, PERMITS as u32);
        let semaphore = semaphore.expect("a semaphore");
        let op = self.request(Kind::Permit(PERMITS), &[path], limit);
        let taken = semaphore.acquire_with(self.options(op, limit));
        self.go_on(op, &[], taken, |_| Vec::new());
    }

    fn take_several(&mut self, limit: Option<Duration>) {
        let mut paths: Vec<_> = (0..3).map(|i| format!("{ROOT}/x{i}")).collect();
        self.rng.shuffle(&mut paths);
        paths.truncate(2);
        let paths: Vec<_> = paths.iter().map(String::as_str).collect();
        let lock = self.client.multi_lock(paths.iter().copied());
        let lock = lock.expect("a lock of several");
        let op = self.request(Kind::Exclusive, &paths, limit);
        let taken = lock.lock_with(self.options(op, limit));
        self.go_on(op, &paths, taken, |guard| {
            let token = |path: &&str| guard.tokens().find(|(of, _)| of == path);
            let tokens = paths.iter().filter_map(token);
            tokens.map(|(_, token)| token.get()).collect()
        });
    }

    fn request(&self, kind: Kind, paths: &[&str], limit: Option<Duration>) -> usize {
        let op = self.ops.fetch_add(1, Ordering::Relaxed);
        let paths = paths.iter().map(|path| (*path).to_owned()).collect();
        self.journal.note(op, What::Request { kind, paths, limit });
        op
    }

    /// Records that the call waits, if the session is still the one in which the call began: in
    /// another session, a place in the queue may have been lost unnoticed.
    fn options(&self, op: usize, limit: Option<Duration>) -> LockOptions<'a> {
        let (client, journal) = (self.client, self.journal);
        let session = client.session_id();
        let options = LockOptions::new().on_wait(move |waiting| {
            // Behind threads of its own client, it has no place yet.
            if waiting.ahead().is_some() && client.session_id() == session {
                journal.note(op, What::Queued { session });
            }
        });
        match limit {
            Some(limit) => options.deadline(Instant::now() + limit),
            None => options,
        }
    }

    fn go_on<G: LockGuard>(
        &mut self,
        op: usize,
        written: &[&str],
        taken: Result<Option<G>>,
        tokens: impl FnOnce(&G) -> Vec<i64>,
    ) {
        match taken {
            Ok(Some(guard)) => {
                let tokens = tokens(&guard);
                let session = self.client.session_id();
                self.journal.note(
                    op,
                    What::Granted {
                        session,
                        tokens: tokens.clone(),
                    },
                );
                self.hold(op, written, &tokens, &guard);
                self.give_up(op, guard);
            }
            Ok(None) | Err(Error::ConnectTimeout { .. }) => self.refused(op, TIMEOUT.to_owned()),
            Err(error) => self.refused(op, error.to_string()),
        }
    }

    fn refused(&self, op: usize, why: String) {
        self.journal.note(op, What::Refused { why });
    }

    /// Holds for a while, and works as long as the lock is valid.
    fn hold<G: LockGuard>(&mut self, op: usize, written: &[&str], tokens: &[i64], guard: &G) {
        // A few holds last long, to see what happens to them.
        let stay = match self.rng.u32(0..40) {
            0 => self.rng.u64(1000..8000),
            1..4 => self.rng.u64(100..500),
            _ => self.rng.u64(0..40),
        };
        let until = Instant::now() + Duration::from_millis(stay);
        while is_valid(self.journal, op, guard) {
            for event in guard.events().try_iter() {
                let event = format!("{event:?}");
                self.journal.note(op, What::Told { event });
            }
            if self.rng.u32(0..3) == 0 {
                for (path, token) in written.iter().zip(tokens) {
                    self.store.write(op, path, *token);
                }
            }
            if until <= Instant::now() {
                break;
            }
            let suspect = guard.state() == GuardState::Suspect;
            thread::sleep(Duration::from_millis(if suspect { 1 } else { 7 }));
        }
    }

    fn give_up<G: LockGuard>(&mut self, op: usize, guard: G) {
        self.journal.note(op, What::Release);
        let well = match self.rng.bool() {
            true => guard.unlock().is_ok(),
            false => {
                drop(guard);
                true
            }
        };
        self.journal.note(op, What::Released { well });
    }
}

/// Checks a guard, and records its answer.
pub(crate) fn is_valid<G: LockGuard>(journal: &Journal, op: usize, guard: &G) -> bool {
    let asked = now();
    let valid = guard.check().is_ok();
    match valid {
        true => journal.note_at(asked, op, What::Valid),
        false => journal.note(op, What::Lost),
    }
    valid
}
