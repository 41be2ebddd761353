//! The kinds of locks that may share a path: each beside every other, and after it.
//!
//! The table of `docs/interop.md` says what happens.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crossbeam_channel::unbounded;
use zklock::{Client, Dialect, Error, JobOptions, LockGuard, LockOptions, Once, Result, Waiting};

use zklock_core::release_note::is_note;

use crate::support::raw::{EPHEMERAL, Raw};
use crate::support::{eventually, fresh_path, within};
use crate::transport::{Place, on_every_server};

on_every_server! {
    the_table_of_what_may_share_a_path_is_what_happens
}

const PAGE: &str = include_str!("../../docs/interop.md");

const KINDS: [Kind; 9] = [
    Kind::Mutex,
    Kind::Standby,
    Kind::MultiLock,
    Kind::Latch,
    Kind::Read,
    Kind::Write,
    Kind::Semaphore,
    Kind::Tracking,
    Kind::Job,
];

/// The kind of lock that comes to a path.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Mutex,
    Standby,
    MultiLock,
    Latch,
    Read,
    Write,
    Semaphore,
    Tracking,
    Job,
}

/// The user of a path that comes first.
#[derive(Clone, Copy, Debug)]
enum First {
    Ours(Kind),
    /// A node of a lock of kazoo's.
    Kazoo,
    /// The node of somebody who keeps text in it.
    Text,
}

/// A machine: its client, and one that speaks the latch's dialect.
struct Machine {
    client: Client,
    latch: Client,
    /// Whether the machine's releases leave a note, as those of the program do.
    notes: bool,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::Standby => "standby",
            Self::MultiLock => "multi-lock",
            Self::Latch => "latch",
            Self::Read => "read",
            Self::Write => "write",
            Self::Semaphore => "semaphore",
            Self::Tracking => "tracking mutex",
            Self::Job => "job",
        }
    }
}

impl Machine {
    fn start(place: Place, hosts: &str, notes: bool) -> Self {
        let latch = Client::builder(hosts).dialect(Dialect::LeaderLatch);
        Self {
            client: place.connect(hosts),
            latch: latch.connect().unwrap(),
            notes,
        }
    }

    /// Returns how many nodes the machine has asked for.
    fn creates(&self) -> u64 {
        let both = [&self.client, &self.latch];
        both.map(|client| client.metrics().requests.creates)
            .iter()
            .sum()
    }

    /// Does this inside the lock of this kind, if the machine need not wait for the lock; returns
    /// whether it did.
    fn enter(&self, kind: Kind, path: &str, inside: &mut dyn FnMut()) -> Result<bool> {
        let client = match kind {
            Kind::Latch => &self.latch,
            _ => &self.client,
        };
        let (cancel, cancelled) = unbounded();
        let options = LockOptions::new().cancel(cancelled.clone());
        let options = options.on_wait(|_| cancel.send(()).unwrap());
        let guard: Option<Box<dyn LockGuard>> = match kind {
            Kind::Mutex | Kind::Latch => boxed(client.mutex(path)?.lock_with(options)?),
            Kind::Tracking => boxed(client.mutex(path)?.lock_with(options.track_abandonment())?),
            Kind::MultiLock => {
                let lock = client.multi_lock([path, &format!("{path}-other")])?;
                boxed(lock.lock_with(options)?)
            }
            Kind::Read => boxed(client.rwlock(path)?.read_with(options)?),
            Kind::Write => boxed(client.rwlock(path)?.write_with(options)?),
            Kind::Semaphore => boxed(client.semaphore(path, 1)?.acquire_with(options)?),
            Kind::Standby => return stand_by(client, path, self.notes, inside),
            Kind::Job => return run(client, path, inside),
        };
        let Some(guard) = guard else {
            return Ok(false);
        };
        if self.notes {
            guard.leave_note();
        }
        inside();
        if self.notes {
            guard.unlock_noting();
        }
        guard.unlock().map(|()| true)
    }
}

fn boxed<G: LockGuard + 'static>(guard: Option<G>) -> Option<Box<dyn LockGuard>> {
    guard.map(|guard| Box::new(guard) as Box<dyn LockGuard>)
}

fn stand_by(client: &Client, path: &str, notes: bool, inside: &mut dyn FnMut()) -> Result<bool> {
    let (cancel, cancelled) = unbounded();
    let waits = move |_: &Waiting| cancel.send(()).unwrap();
    let mut held = false;
    let standby = client.standby(path)?.on_wait(waits);
    standby.run_until(cancelled, |term| {
        held = true;
        if notes {
            term.leave_note();
        }
        inside();
        if notes {
            term.unlock_noting();
        }
        ControlFlow::Break(())
    })?;
    Ok(held)
}

fn run(client: &Client, path: &str, inside: &mut dyn FnMut()) -> Result<bool> {
    static SLOT: AtomicUsize = AtomicUsize::new(0);
    let slot = format!("{:08}", SLOT.fetch_add(1, Ordering::Relaxed));
    let options = JobOptions::new().wait(false);
    let ended = client.job(path)?.once_with(&slot, options, |_run| {
        inside();
        Ok::<_, Infallible>(())
    })?;
    match ended {
        Once::Done(()) => Ok(true),
        Once::Running(_) => Ok(false),
        ended => panic!("{ended:?}"),
    }
}

/// Returns what happens to the second lock while the first one is there.
fn beside(second: &Machine, kind: Kind, path: &str, raw: &mut Raw) -> &'static str {
    let mut picture = || (raw.data(path), raw.children(path));
    let (before, creates) = (picture(), second.creates());
    let entered = second.enter(kind, path, &mut || ());
    if entered.is_err() {
        let mut now = before.clone();
        let restored = within(Duration::from_secs(60), || {
            now = picture();
            now == before
        });
        assert!(restored, "{kind:?} on {path}: {before:?} became {now:?}");
    }
    if matches!(entered, Err(Error::Unmarked { .. })) {
        assert_eq!(second.creates(), creates, "{kind:?}");
    }
    word(entered, ["shares", "waits"])
}

/// Returns what happens to the second lock when the first one is gone.
fn after(second: &Machine, kind: Kind, path: &str) -> &'static str {
    let gone = || second.client.contenders(path).unwrap().is_empty();
    eventually("the first one has gone", gone);
    word(second.enter(kind, path, &mut || ()), ["free", "waits"])
}

fn word(entered: Result<bool>, [held, taken]: [&'static str; 2]) -> &'static str {
    match entered {
        Ok(true) => held,
        Ok(false) => taken,
        Err(Error::Unmarked { .. } | Error::ForeignContender { .. }) => "refuses",
        Err(error) => panic!("{error}"),
    }
}

/// Returns one cell: the second lock beside the first, and after it.
fn meet(first: First, machines: &[Machine; 2], kind: Kind, raw: &mut Raw) -> String {
    let (path, [one, two]) = (fresh_path("shared"), machines);
    let mut said = None;
    let mut keeps = false;
    match first {
        First::Ours(first) => {
            let mut meet = || said = Some(beside(two, kind, &path, raw));
            assert!(one.enter(first, &path, &mut meet).unwrap(), "{first:?}");
            keeps = [Kind::Tracking, Kind::Job].contains(&first) && first != kind;
        }
        First::Kazoo => {
            let node = format!("{path}/6f9c1c9e5a0b4b579a3e0123456789ab__lock__0000000000");
            raw.create_all(&path);
            raw.create(&node, b"", EPHEMERAL).unwrap();
            said = Some(beside(two, kind, &path, raw));
            raw.delete(&node).unwrap();
        }
        First::Text => {
            raw.create_all(&path);
            raw.set_data(&path, b"somebody's").unwrap();
            keeps = true;
        }
    }
    let data = raw.data(&path);
    if let (First::Ours(first), true) = (first, one.notes) {
        let in_the_path = [
            Kind::Mutex,
            Kind::Standby,
            Kind::Latch,
            Kind::Read,
            Kind::Write,
        ];
        let noted = data.as_ref().is_some_and(|data| is_note(data));
        assert_eq!(noted, in_the_path.contains(&first), "{first:?}: {data:?}");
    }
    let then = after(two, kind, &path);
    assert!(
        !keeps || raw.data(&path) == data,
        "{kind:?} after {first:?}"
    );
    said.map_or_else(|| then.to_owned(), |said| format!("{said}, {then}"))
}

fn the_table_of_what_may_share_a_path_is_what_happens(place: Place) {
    for notes in [false, true] {
        let table = table(place, notes);
        assert!(
            PAGE.contains(&table),
            "notes: {notes}, what happens:\n{table}"
        );
    }
}

fn table(place: Place, notes: bool) -> String {
    let hosts = place.shared().hosts();
    let machines = [(); 2].map(|()| Machine::start(place, &hosts, notes));
    let mut raw = Raw::connect(&hosts);
    let mut table = String::from("| first |");
    for kind in KINDS {
        write!(table, " {} |", kind.name()).unwrap();
    }
    write!(table, "\n|---|{}", "---|".repeat(KINDS.len())).unwrap();
    let ours = KINDS.map(|kind| (kind.name(), First::Ours(kind)));
    let theirs = [
        ("kazoo's lock", First::Kazoo),
        ("somebody's text", First::Text),
    ];
    for (name, first) in ours.into_iter().chain(theirs) {
        write!(table, "\n| {name} |").unwrap();
        for kind in KINDS {
            write!(table, " {} |", meet(first, &machines, kind, &mut raw)).unwrap();
        }
    }
    table
}
