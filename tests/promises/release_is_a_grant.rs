//! Where nothing is wrong, nothing waits: a release is the next grant, whatever the kind of lock,
//! the age of the sessions, the length of the wait, and the place in the queue.
//!
//! A machine that stands still for a moment makes one hand-off late. A rule that holds back a grant
//! makes each one of its kind late: so only a cell that is late again and again fails.

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};
use zklock::embedded::Server;
use zklock::{Client, LockGuard, Result, SessionState};

use crate::support::{eventually, fresh_path};
use crate::transport::{Place, SOON, on_every_server};

on_every_server! {
    a_release_is_a_grant_whoever_waits_for_how_long
    a_release_after_a_reconnect_is_a_grant
}

/// The session timeout. The rule for grants can hold a grant back for a third of it and more.
const T: Duration = Duration::from_secs(10);

/// How late a grant may be on a busy machine.
const LATE: Duration = T.checked_div(10).expect("a divisor");

/// How often a cell may be late before it counts.
const TRIES: usize = 3;

/// The number of waiters.
const WAITERS: usize = 2;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Mutex,
    ReadToWrite,
    WriteToRead,
    WriteToWrite,
    Multi,
    Permit,
    Permits,
}

const KINDS: [Kind; 7] = [
    Kind::Mutex,
    Kind::ReadToWrite,
    Kind::WriteToRead,
    Kind::WriteToWrite,
    Kind::Multi,
    Kind::Permit,
    Kind::Permits,
];

impl Kind {
    /// Takes the lock of the first holder, or that of the waiters.
    fn take(self, client: &Client, path: &str, first: bool) -> Result<Box<dyn LockGuard>> {
        let (one, other) = (format!("{path}/a"), format!("{path}/b"));
        Ok(match self {
            Self::Mutex => Box::new(client.mutex(path)?.lock()?),
            Self::ReadToWrite if first => Box::new(client.rwlock(path)?.read()?),
            Self::WriteToRead if !first => Box::new(client.rwlock(path)?.read()?),
            Self::ReadToWrite | Self::WriteToRead | Self::WriteToWrite => {
                Box::new(client.rwlock(path)?.write()?)
            }
            Self::Multi => Box::new(client.multi_lock([one.as_str(), other.as_str()])?.lock()?),
            Self::Permit => Box::new(client.semaphore(path, 1)?.acquire()?),
            Self::Permits => return two_permits(client, path),
        })
    }

    /// Tries to take the lock that the waiters wait for.
    fn try_take(self, client: &Client, path: &str) -> Result<Option<Box<dyn LockGuard>>> {
        fn boxed<G: LockGuard + 'static>(guard: Option<G>) -> Option<Box<dyn LockGuard>> {
            guard.map(|guard| Box::new(guard) as _)
        }
        let both = [format!("{path}/a"), format!("{path}/b")];
        let both = both.each_ref().map(String::as_str);
        Ok(match self {
            Self::Mutex => boxed(client.mutex(path)?.try_lock()?),
            Self::WriteToRead => boxed(client.rwlock(path)?.try_read()?),
            Self::ReadToWrite | Self::WriteToWrite => boxed(client.rwlock(path)?.try_write()?),
            Self::Multi => boxed(client.multi_lock(both)?.try_lock()?),
            Self::Permit => boxed(client.semaphore(path, 1)?.try_acquire()?),
            Self::Permits => boxed(client.semaphore(path, 2)?.try_acquire_many(2)?),
        })
    }

    /// Returns the directory in which the waiters stand.
    fn queue(self, path: &str) -> String {
        match self {
            Self::Multi => format!("{path}/a"),
            _ => path.to_owned(),
        }
    }
}

fn two_permits(client: &Client, path: &str) -> Result<Box<dyn LockGuard>> {
    Ok(Box::new(client.semaphore(path, 2)?.acquire_many(2)?))
}

/// The circumstances of a waiting client.
#[derive(Clone, Copy, Debug)]
struct Cell {
    kind: Kind,
    /// How long the client is connected before it asks.
    age: Duration,
    /// How long the client waits until the first holder releases.
    waits: Duration,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, age, waits } = self;
        write!(f, "{kind:?}, connected for {age:?}, waited for {waits:?}")
    }
}

fn cells() -> Vec<Cell> {
    let waits = [1000, 28, 14, 7, 5, 2].map(|part| T / part);
    let mut cells = Vec::new();
    for kind in KINDS {
        let mut add = |age, waits: &[Duration]| {
            cells.extend(waits.iter().map(|&waits| Cell { kind, age, waits }));
        };
        add(Duration::ZERO, &waits);
        add(T / 4, &[T * 6 / 5]);
        add(2 * T, &[waits[1]]);
    }
    cells
}

fn a_release_is_a_grant_whoever_waits_for_how_long(place: Place) {
    let server = place.shared();
    let late = in_turns(cells(), |cell| hand_on(&server.hosts(), *cell, || {}));
    assert!(
        late.is_empty(),
        "late without a reason:\n{}",
        late.join("\n")
    );
}

fn a_release_after_a_reconnect_is_a_grant(place: Place) {
    let server = place.start();
    let cells = [Kind::Mutex, Kind::ReadToWrite, Kind::Multi, Kind::Permit];
    let cells = cells.map(|kind| Cell {
        kind,
        age: T / 10,
        waits: T / 10,
    });
    for cell in cells {
        let cut = || {
            server.kill();
            server.restart();
        };
        let late = in_turns(vec![cell], |cell| hand_on(&server.hosts(), *cell, cut));
        assert!(
            late.is_empty(),
            "late without a reason:\n{}",
            late.join("\n")
        );
    }
}

#[test]
fn a_release_that_was_answered_is_seen_by_who_tries_at_a_server_that_lags() {
    let server = Server::start().expect("a server");
    let [holder, other] = [(); 2].map(|()| connect(server.hosts()));
    let same = KINDS.map(|kind| (kind, kind));
    // A path that was a semaphore's is free for a mutex, and the other way round.
    let others = [
        (Kind::Permit, Kind::Mutex),
        (Kind::Permits, Kind::WriteToWrite),
        (Kind::Mutex, Kind::Permit),
    ];
    for (first, then) in same.into_iter().chain(others) {
        let path = fresh_path("lag");
        let held = first.take(&holder, &path, true).expect("the first holder");
        // From this node on, only its owner sees the changes.
        server.hide_next_create();
        let hidden = holder.mutex(&format!("{path}-hidden"));
        let _hidden = hidden.and_then(|mutex| mutex.lock()).expect("another lock");
        held.unlock().expect("an answer");
        let tried = then.try_take(&other, &path).expect("an answer");
        assert!(
            tried.is_some(),
            "{then:?} was refused, free after {first:?}"
        );
    }
}

/// Runs all cells side by side, and those that were late again. Returns those that always were.
fn in_turns(mut cells: Vec<Cell>, run: impl Fn(&Cell) -> Duration + Sync) -> Vec<String> {
    let mut late = Vec::new();
    for _ in 0..TRIES {
        let took: Vec<_> = thread::scope(|scope| {
            let running: Vec<_> = cells.iter().map(|cell| scope.spawn(|| run(cell))).collect();
            running
                .into_iter()
                .map(|cell| cell.join().expect("a cell"))
                .collect()
        });
        let is_late = |(_, took): &(Cell, Duration)| LATE < *took;
        let judged = cells.iter().copied().zip(took).filter(is_late);
        (cells, late) = judged
            .map(|(cell, took)| (cell, format!("{cell}: {took:?}")))
            .unzip();
        if cells.is_empty() {
            break;
        }
    }
    late
}

/// Lets a holder release after a while, and the waiters hand the lock on. Returns the longest time
/// from a release to the grant that it makes possible.
fn hand_on(hosts: &str, cell: Cell, before: impl Fn()) -> Duration {
    let Cell { kind, age, waits } = cell;
    let path = fresh_path("grant");
    let client = connect(hosts);
    let held = kind.take(&client, &path, true).expect("the first holder");
    let (to, granted) = unbounded();
    let clients: Vec<_> = (0..WAITERS).map(|_| connect(hosts)).collect();
    let wait = |client: &Client| {
        let (client, path, to) = (client.clone(), path.clone(), to.clone());
        thread::spawn(move || wait_in_line(&client, kind, &path, age, &to))
    };
    let waiting: Vec<_> = clients.iter().map(wait).collect();
    thread::sleep(age);
    let queue = kind.queue(&path);
    eventually("all of them are in the queue", || {
        WAITERS < client.contenders(&queue).map_or(0, |all| all.len())
    });
    thread::sleep(waits);
    let cut = Instant::now();
    before();
    let all = clients.iter().chain([&client]);
    eventually("all are connected", || {
        all.clone()
            .all(|client| client.state() == SessionState::Connected)
    });
    // A client that was away for long has a reason to pause.
    let pause = if cut.elapsed() < T / 5 {
        Duration::ZERO
    } else {
        T / 4
    };
    let released = Instant::now();
    drop(held);
    let latest = judge(kind, released, &granted).saturating_sub(pause);
    waiting
        .into_iter()
        .for_each(|thread| thread.join().expect("a waiter"));
    latest
}

/// A grant and the release that follows it.
type Hold = (Instant, Instant);

fn wait_in_line(client: &Client, kind: Kind, path: &str, age: Duration, to: &Sender<Hold>) {
    thread::sleep(age);
    let guard = kind.take(client, path, false).expect("the lock");
    let granted = Instant::now();
    let released = Instant::now();
    drop(guard);
    to.send((granted, released)).expect("the test goes on");
}

fn judge(kind: Kind, first: Instant, granted: &Receiver<Hold>) -> Duration {
    let all = (0..WAITERS).map(|_| granted.recv_timeout(3 * SOON).expect("a grant"));
    let mut all: Vec<_> = all.collect();
    all.sort_unstable();
    let (mut latest, mut since) = (Duration::ZERO, first);
    for (granted, released) in all {
        latest = latest.max(granted.saturating_duration_since(since));
        // Readers are granted together.
        if kind != Kind::WriteToRead {
            since = released;
        }
    }
    latest
}

fn connect(hosts: &str) -> Client {
    let builder = Client::builder(hosts).session_timeout(T);
    builder.connect().expect("a client")
}
