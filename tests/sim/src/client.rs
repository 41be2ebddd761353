//! A client process of a run, which takes locks as planned, and records what it sees.

mod handover;
mod holds;
mod numbers;
mod once;
mod several;
mod shards;
mod shared;
mod standby;
mod views;

use std::collections::{HashMap, HashSet};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use zklock::sim::ensemble::Arrival;
use zklock::sim::{self, channel};
use zklock::{
    Acl, Client, ClientBuilder, Error, FencingToken, GuardState, LockGuard, LockOptions, Result,
};

use crate::fenced::{self, Told, Write};
use crate::history::{Entry, Kind, Process, What, nanos};
use crate::jobs::Call;
use crate::lives::{Member, Numbered, Planted};
use crate::marks::{self, Heard};
use crate::ops::TIMEOUT;
use crate::plan::{ClientEnd, ClientPlan, Lock, Plan, Release, Step};
use crate::troubles;

/// The number of the semaphore's permits.
const PERMITS: usize = 2;

/// The message of a planned panic.
pub(crate) const ON_PURPOSE: &str = "on purpose";

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// An operation, and the nodes that it held.
pub(crate) type Held = (Process, usize, Vec<String>);

/// The records of all processes of a run.
#[derive(Clone, Default)]
pub(crate) struct Journal {
    entries: Arc<Mutex<Vec<Entry>>>,
    /// The nodes that each operation held.
    nodes: Arc<Mutex<Vec<Held>>>,
    /// The calls that run a job.
    calls: Arc<Mutex<Vec<Call>>>,
    /// The writes under a lock.
    writes: Arc<Mutex<Vec<Write>>>,
    /// The news of the holders of the lock with marks.
    heard: Arc<Mutex<Vec<Heard>>>,
    /// The holds, as they were made.
    planted: Arc<Mutex<Vec<Planted>>>,
    /// The nodes that somebody has removed, or may have removed.
    released: Arc<Mutex<HashSet<String>>>,
    /// The request times of the pauses whose callers were told that they are not confirmed: these pauses are
    /// removed.
    unconfirmed: Arc<Mutex<HashSet<u64>>>,
    numbers: Arc<Mutex<Vec<Numbered>>>,
    members: Arc<Mutex<Vec<Member>>>,
    /// The nodes that were given up while their guard was suspect, and until when it was valid.
    suspects: Arc<Mutex<HashMap<String, Duration>>>,
    /// How often a thread had gone to sleep by its call, and by the grant of the lock.
    sleeps: Arc<Mutex<HashMap<(Process, usize), Vec<u64>>>>,
    /// The operations that do not wait, and whether they were told that the lock is taken.
    tries: Arc<Mutex<HashMap<(Process, usize), bool>>>,
    /// The operations that began otherwise than with a call: a standby pauses before its later terms, and a
    /// downgrade has the place of the write lock.
    continued: Arc<Mutex<HashSet<(Process, usize)>>>,
}

impl Journal {
    pub(crate) fn note(&self, who: Process, op: usize, what: What) {
        self.note_at(sim::elapsed(), who, op, what);
    }

    fn note_at(&self, at: Duration, who: Process, op: usize, what: What) {
        if sim::records() {
            sim::note(&format!("{who} {op} {what}"));
        }
        let at = nanos(at);
        self.entries().push(Entry { at, who, op, what });
    }

    fn note_continued(&self, who: Process, op: usize) {
        let mut continued = locked(&self.continued);
        continued.insert((who, op));
    }

    /// Returns whether this operation began otherwise than with a call.
    pub(crate) fn is_continued(&self, id: (Process, usize)) -> bool {
        let continued = locked(&self.continued);
        continued.contains(&id)
    }

    fn note_sleeps(&self, who: Process, op: usize) {
        let mut sleeps = locked(&self.sleeps);
        sleeps.entry((who, op)).or_default().push(sim::sleeps());
    }

    /// Returns how often the calling thread of an operation slept until the grant of the lock.
    pub(crate) fn slept(&self, id: (Process, usize)) -> Option<u64> {
        let sleeps = locked(&self.sleeps);
        match sleeps.get(&id)?.as_slice() {
            [before, after] => after.checked_sub(*before),
            _ => None,
        }
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        locked(&self.entries)
    }

    /// Returns when a call began.
    fn requested(&self, who: Process, op: usize) -> Duration {
        let entries = self.entries();
        let asks = |entry: &&Entry| {
            (entry.who, entry.op) == (who, op) && matches!(entry.what, What::Request { .. })
        };
        let at = entries.iter().rev().find(asks).map_or(0, |entry| entry.at);
        Duration::from_nanos(at)
    }

    /// Notes that a guard is given up while it is suspect.
    fn given_up<G: LockGuard>(&self, who: Process, op: usize, guard: &G) {
        let now = sim::elapsed();
        let (state, until) = (guard.state(), now + guard.valid_for());
        // If time passes between these looks, they do not fit together.
        if state != GuardState::Suspect || now != sim::elapsed() {
            return;
        }
        let nodes = self.nodes();
        let held = nodes
            .iter()
            .rev()
            .find(|held| (held.0, held.1) == (who, op));
        let mut suspects = locked(&self.suspects);
        for node in held.into_iter().flat_map(|(.., nodes)| nodes) {
            suspects.insert(node.clone(), until);
        }
    }

    /// Checks that a lock goes from thread to thread only if it is held, or was confirmed anew.
    fn is_not_suspect<G: LockGuard>(&self, who: Process, nodes: &[String], guard: &G) {
        let suspects = locked(&self.suspects);
        for node in nodes {
            if let Some(until) = suspects.get(node) {
                let now = sim::elapsed() + guard.valid_for();
                assert!(*until < now, "{who} was handed {node}, which was suspect");
            }
        }
    }

    pub(crate) fn take(&self) -> Vec<Entry> {
        let mut entries = std::mem::take(&mut *self.entries());
        entries.sort_by_key(|entry| entry.at);
        entries
    }

    pub(crate) fn calls(&self) -> MutexGuard<'_, Vec<Call>> {
        locked(&self.calls)
    }

    pub(crate) fn writes(&self) -> MutexGuard<'_, Vec<Write>> {
        locked(&self.writes)
    }

    pub(crate) fn heard(&self) -> MutexGuard<'_, Vec<Heard>> {
        locked(&self.heard)
    }

    pub(crate) fn planted(&self) -> MutexGuard<'_, Vec<Planted>> {
        locked(&self.planted)
    }

    pub(crate) fn released(&self) -> MutexGuard<'_, HashSet<String>> {
        locked(&self.released)
    }

    pub(crate) fn unconfirmed(&self) -> MutexGuard<'_, HashSet<u64>> {
        locked(&self.unconfirmed)
    }

    pub(crate) fn numbers(&self) -> MutexGuard<'_, Vec<Numbered>> {
        locked(&self.numbers)
    }

    pub(crate) fn members(&self) -> MutexGuard<'_, Vec<Member>> {
        locked(&self.members)
    }

    pub(crate) fn is_told_taken(&self, id: (Process, usize)) -> bool {
        locked(&self.tries).get(&id).is_some_and(|told| *told)
    }

    pub(crate) fn nodes(&self) -> Vec<Held> {
        locked(&self.nodes).clone()
    }
}

/// One thread's view of its client.
#[derive(Clone)]
struct Actor {
    client: Client,
    journal: Journal,
    who: Process,
    ops: Arc<AtomicUsize>,
    /// The senders that cancel the calls that wait.
    cancels: Arc<Mutex<Vec<channel::Sender<()>>>>,
    /// When the client was closed.
    closed: Arc<Mutex<Option<Duration>>>,
    /// Whether no thread of the run is ever paused.
    steady: bool,
    timeout: Duration,
    /// A builder that connects as the client did.
    builder: ClientBuilder,
    /// Whether nothing breaks.
    is_sound: bool,
}

/// One in this many calls of a client is cancelled when another gives its lock up.
const CANCELLED: usize = 5;

/// One in this many looks at a lock is followed by a write under it.
const WRITES: u8 = 16;

/// How long calls may take to return once their client is closed.
const AFTER_CLOSE: Duration = Duration::from_millis(100);

/// Connects, does everything in the plan, and ends as planned.
pub(crate) fn run(plan: &Plan, number: usize, mine: &ClientPlan, journal: Journal) {
    sim::sleep(ms(mine.starts));
    let client = connect(&builder(plan, mine));
    // Other clients create these nodes, too; without them nothing can be written.
    let nodes = client.nodes();
    for node in ["/sim", fenced::NODE] {
        let _ = nodes.create(node, b"");
    }
    let events = client.events();
    let who = Process {
        slot: number,
        life: 0,
    };
    let actor = Actor {
        client,
        journal,
        who,
        ops: Arc::new(AtomicUsize::new(1)),
        cancels: Arc::default(),
        closed: Arc::default(),
        steady: plan.is_steady(),
        timeout: ms(plan.timeout),
        builder: builder(plan, mine),
        is_sound: plan.is_sound(),
    };
    let threads: Vec<_> = mine
        .threads
        .iter()
        .enumerate()
        .map(|(number, steps)| {
            let (mut actor, steps) = (actor.clone(), steps.clone());
            let name = format!("{who}-{number}");
            let act = move || {
                for step in &steps {
                    actor.act(step);
                    actor.after(step);
                }
            };
            sim::spawn(&name, act).expect("a thread")
        })
        .collect();
    let closer = match mine.end {
        ClientEnd::CloseAt(at) => {
            let (client, closed) = (actor.client.clone(), actor.closed.clone());
            Some(
                sim::spawn("closes", move || {
                    sim::sleep(ms(at).saturating_sub(sim::elapsed()));
                    sim::note("closes the client");
                    drop(client.close());
                    *locked(&closed) = Some(sim::elapsed());
                })
                .expect("a thread"),
            )
        }
        _ => None,
    };
    for thread in threads.into_iter().chain(closer) {
        if let Err(panic) = thread.join() {
            resume_unwind(panic);
        }
    }
    // The nodes that are left on the servers must go while the session is alive.
    sim::sleep(ms(plan.timeout) + Duration::from_secs(2));
    if plan.is_calm() {
        let event = events.try_recv().ok();
        assert_eq!(event, None, "nothing was broken, but {who} has heard this");
    }
    if let ClientEnd::Close = mine.end {
        drop(actor.client.close());
    }
}

fn builder(plan: &Plan, mine: &ClientPlan) -> ClientBuilder {
    let hosts: Vec<_> = (1..=plan.servers)
        .map(|server| format!("zk{server}:2181"))
        .collect();
    let builder = Client::builder(&hosts.join(","))
        .session_timeout(ms(plan.timeout))
        .wall_clock_expiry(plan.keeper)
        .dialect(mine.dialect)
        .local_handoffs(mine.handoffs);
    match plan.private {
        true => builder.auth("digest", "sim:secret").acl(Acl::creator_all()),
        false => builder,
    }
}

fn connect(builder: &ClientBuilder) -> Client {
    loop {
        match builder.clone().connect() {
            Ok(client) => return client,
            Err(Error::ConnectTimeout { .. }) => {}
            Err(error) => panic!("connect: {error}"),
        }
    }
}

impl Actor {
    fn act(&self, step: &Step) {
        sim::sleep(ms(step.rest));
        match step.lock {
            Lock::Mutex(number) => self.mutex(&format!("/sim/m{number}"), false, step),
            Lock::Tracked => self.mutex(marks::LOCK, true, step),
            Lock::Reentrant => self.reentrant("/sim/reentrant", step),
            Lock::Read => self.read("/sim/rw", step),
            Lock::Write => self.write("/sim/rw", step),
            Lock::Permit => self.permit(step),
            Lock::Several(one, other) => self.several([one, other], step),
            Lock::Together(together) => self.together(together, step),
            Lock::Seats(count) => self.seats(count, step),
            Lock::Once(once) => self.once(once, step),
            Lock::Standby(terms) => self.standby(terms, step),
            Lock::Hold(hold) => self.keep(hold, step),
            Lock::Numbered => self.numbered(step),
            Lock::Shards(count) => self.shards(count, step),
            Lock::Shared(shared) => self.shared(shared, step),
        }
    }

    fn mutex(&self, path: &str, tracked: bool, step: &Step) {
        let mutex = self.client.mutex(path).expect("a mutex");
        let (op, mut options) = self.request(Kind::Exclusive, &[path], step);
        if tracked {
            options = options.track_abandonment();
        }
        let taken = self.call(op, || match step.tries() {
            true => mutex.try_lock(),
            false => mutex.lock_with(options),
        });
        let Some(guard) = self.granted(op, taken, token_and_node) else {
            return;
        };
        if tracked {
            let heard = guard.abandoned().map(FencingToken::get);
            self.journal
                .heard()
                .push((guard.fencing_token().get(), heard));
        }
        match step.end {
            Release::Sent => {
                let guard = guard.into_send();
                let (actor, hold) = (self.clone(), step.hold);
                let thread = sim::spawn("has the guard", move || {
                    actor.hold(op, hold, &guard);
                    actor.give_up(op, guard, Release::Unlock);
                });
                let ended = thread.expect("a thread").join();
                ended.unwrap_or_else(|panic| resume_unwind(panic));
            }
            Release::HandOver => self.hand_over(op, step, guard),
            _ => self.hold_and_give_up(op, step, guard),
        }
    }

    fn reentrant(&self, path: &str, step: &Step) {
        let mutex = self.client.reentrant_mutex(path).expect("a mutex");
        let (op, options) = self.request(Kind::Exclusive, &[path], step);
        let taken = self.call(op, || mutex.lock_with(options));
        let Some(guard) = self.granted(op, taken, token_and_node) else {
            return;
        };
        // The lock is held already, unless it was lost: neither call waits.
        let again = mutex.lock_with(LockOptions::new().deadline(sim::now()));
        self.hold(op, step.hold, &guard);
        let lost = guard.check().is_err();
        let late = mutex.lock_with(LockOptions::new().deadline(sim::now()));
        assert!(
            !lost || !matches!(late, Ok(Some(_))),
            "{} entered a lock again that it had lost",
            self.who
        );
        self.give_up(op, guard, step.end);
        drop((again, late));
    }

    fn read(&self, path: &str, step: &Step) {
        let lock = self.client.rwlock(path).expect("a lock");
        let (op, options) = self.request(Kind::Read, &[path], step);
        let taken = self.call(op, || match step.tries() {
            true => lock.try_read(),
            false => lock.read_with(options),
        });
        if let Some(guard) = self.granted(op, taken, token_and_node) {
            self.hold_and_give_up(op, step, guard);
        }
    }

    fn write(&self, path: &str, step: &Step) {
        let lock = self.client.rwlock(path).expect("a lock");
        let asked = sim::elapsed();
        let (op, options) = self.request(Kind::Exclusive, &[path], step);
        let taken = self.call(op, || match step.tries() {
            true => lock.try_write(),
            false => lock.write_with(options),
        });
        let Some(guard) = self.granted(op, taken, token_and_node) else {
            return;
        };
        if !matches!(step.end, Release::Sent) {
            return self.hold_and_give_up(op, step, guard);
        }
        // In a downgrade, the write lock ends where the read lock begins.
        self.hold(op, step.hold / 2, &guard);
        let read = self.ops.fetch_add(1, Ordering::Relaxed);
        let (kind, paths, limit) = (Kind::Read, vec![path.to_owned()], None);
        // The read lock has the place of the write lock in the queue.
        let request = What::Request { kind, paths, limit };
        self.journal.note_at(asked, self.who, read, request);
        self.journal.note_continued(self.who, read);
        let valid = guard.check().is_ok();
        let lower = guard.downgrade();
        self.journal.note(self.who, op, What::Release);
        self.journal
            .note(self.who, op, What::Released { well: valid });
        // The token is the write lock's.
        let seen = |guard: &zklock::RwLockReadGuard| (Vec::new(), vec![guard.node().to_owned()]);
        if let Some(guard) = self.granted(read, Some(lower.map(Some)), seen) {
            self.hold_and_give_up(
                read,
                &Step {
                    end: Release::Drop,
                    ..step.clone()
                },
                guard,
            );
        }
    }

    fn permit(&self, step: &Step) {
        let path = "/sim/permits";
        let semaphore = self
            .client
            .semaphore(path, PERMITS as u32)
            .expect("a semaphore");
        let (op, options) = self.request(Kind::Permit(PERMITS), &[path], step);
        let taken = self.call(op, || match step.tries() {
            true => semaphore.try_acquire(),
            false => semaphore.acquire_with(options),
        });
        if let Some(guard) = self.granted(op, taken, token_and_node) {
            self.hold_and_give_up(op, step, guard);
        }
    }

    fn several(&self, numbers: [u8; 2], step: &Step) {
        let paths = numbers.map(|number| format!("/sim/m{number}"));
        let paths: Vec<_> = paths.iter().map(String::as_str).collect();
        let lock = self
            .client
            .multi_lock(paths.iter().copied())
            .expect("a lock");
        let (op, options) = self.request(Kind::Exclusive, &paths, step);
        let taken = self.call(op, || match step.tries() {
            true => lock.try_lock(),
            false => lock.lock_with(options),
        });
        if let Some(guard) = self.granted(op, taken, |guard| {
            let token = |path: &&str| guard.tokens().find(|(of, _)| of == path);
            let tokens = paths.iter().filter_map(token).map(|(_, token)| token.get());
            (tokens.collect(), guard.nodes().to_vec())
        }) {
            self.hold_and_give_up(op, step, guard);
        }
    }

    fn request<'a>(&'a self, kind: Kind, paths: &[&str], step: &Step) -> (usize, LockOptions<'a>) {
        let paths = paths.iter().map(|path| (*path).to_owned()).collect();
        self.request_all(vec![(kind, paths)], step)
    }

    /// Asks for locks of several kinds at once.
    fn request_all<'a>(
        &'a self,
        locks: Vec<(Kind, Vec<String>)>,
        step: &Step,
    ) -> (usize, LockOptions<'a>) {
        let op = self.ops.fetch_add(1, Ordering::Relaxed);
        // A cancel ends a call as its limit does. A try waits for a server's word.
        let limit = step.limit.into_iter().chain(step.cancel).min().map(ms);
        let limit = match step.tries() {
            true => Some(self.timeout),
            false => limit,
        };
        if step.tries() {
            locked(&self.journal.tries).insert((self.who, op), false);
        }
        for (kind, paths) in locks {
            self.journal
                .note(self.who, op, What::Request { kind, paths, limit });
        }
        self.journal.note_sleeps(self.who, op);
        let session = self.client.session_id();
        let panics = step.panics_in_on_wait;
        let mut options = LockOptions::new().on_wait(move |waiting| {
            // Behind threads of its own client, it has no place yet.
            if waiting.ahead().is_some() && self.client.session_id() == session {
                self.journal.note(self.who, op, What::Queued { session });
            }
            assert!(!panics, "{ON_PURPOSE}");
        });
        if let Some(limit) = step.limit {
            options = options.deadline(sim::now() + ms(limit));
        }
        let (cancel, cancelled) = channel::bounded(1);
        if op.is_multiple_of(CANCELLED) {
            let kept = cancel.clone();
            self.cancels().push(kept);
            options = options.cancel(cancelled.clone());
        }
        if let Some(after) = step.cancel {
            options = options.cancel(cancelled);
            let thread = sim::spawn("cancels", move || {
                sim::sleep(ms(after));
                let _ = cancel.try_send(());
            });
            drop(thread);
        }
        (op, options)
    }

    /// Makes a call; returns `None` after a panic on purpose.
    fn call<G>(
        &self,
        op: usize,
        lock: impl FnOnce() -> Result<Option<G>>,
    ) -> Option<Result<Option<G>>> {
        let called = catch_unwind(AssertUnwindSafe(lock));
        self.is_not_kept_by_a_close(op, self.journal.requested(self.who, op));
        match called {
            Ok(taken) => Some(taken),
            Err(panic) => {
                on_purpose(panic);
                self.journal.note(
                    self.who,
                    op,
                    What::Refused {
                        why: ON_PURPOSE.to_owned(),
                    },
                );
                None
            }
        }
    }

    fn cancels(&self) -> MutexGuard<'_, Vec<channel::Sender<()>>> {
        locked(&self.cancels)
    }

    /// Checks that a call does not outlast the close of its client.
    fn is_not_kept_by_a_close(&self, op: usize, asked: Duration) {
        let closed = *locked(&self.closed);
        if let Some(closed) = closed.filter(|_| self.steady) {
            let since = sim::elapsed().saturating_sub(closed);
            // A later call began after the close.
            let asked = asked.saturating_sub(closed);
            assert!(
                since.saturating_sub(asked) < AFTER_CLOSE,
                "{} (operation {op}) returned {since:?} after the client was closed",
                self.who
            );
        }
    }

    fn granted<G: LockGuard>(
        &self,
        op: usize,
        taken: Option<Result<Option<G>>>,
        seen: impl FnOnce(&G) -> (Vec<i64>, Vec<String>),
    ) -> Option<G> {
        let refused = |why: String| self.journal.note(self.who, op, What::Refused { why });
        match taken? {
            Ok(Some(guard)) => {
                self.journal.note_sleeps(self.who, op);
                let (tokens, nodes) = seen(&guard);
                self.journal.is_not_suspect(self.who, &nodes, &guard);
                let held = (self.who, op, nodes);
                locked(&self.journal.nodes).push(held);
                let session = self.client.session_id();
                self.journal
                    .note(self.who, op, What::Granted { session, tokens });
                Some(guard)
            }
            Ok(None) => {
                if let Some(told) = locked(&self.journal.tries).get_mut(&(self.who, op)) {
                    *told = true;
                }
                refused(TIMEOUT.to_owned());
                None
            }
            Err(Error::ConnectTimeout { .. }) => {
                refused(TIMEOUT.to_owned());
                None
            }
            Err(error) => {
                refused(error.to_string());
                None
            }
        }
    }

    fn hold_and_give_up<G: LockGuard>(&self, op: usize, step: &Step, guard: G) {
        self.hold(op, step.hold, &guard);
        self.give_up(op, guard, step.end);
    }

    fn hold<G: LockGuard>(&self, op: usize, hold: u64, guard: &G) {
        let until = sim::elapsed() + ms(hold);
        // Long holds are checked less often, except in doubtful moments.
        let pause = Duration::from_micros(200 + 10 * hold);
        while self.is_valid(op, guard) && sim::elapsed() < until {
            let events: Vec<_> = guard.events().try_iter().collect();
            for event in events {
                let event = format!("{event:?}");
                self.journal.note(self.who, op, What::Told { event });
            }
            if guard.paths() == [fenced::LOCK] && fastrand::u8(..WRITES) == 0 {
                self.write_under(op, guard);
            }
            let short = guard.state() == GuardState::Suspect || guard.valid_for() < 4 * pause;
            sim::sleep(if short {
                Duration::from_micros(300)
            } else {
                pause
            });
        }
        if guard.check().is_err() {
            // A late answer does not bring the lock back.
            sim::sleep(ms(20) + ms(hold) / 8);
            assert!(
                guard.check().is_err(),
                "{} (operation {op}) held a lock again that it had lost",
                self.who
            );
        }
    }

    /// Writes the node that only a holder may write.
    fn write_under<G: LockGuard>(&self, op: usize, guard: &G) {
        let token = guard.fencing_token().map_or(0, FencingToken::get);
        let place = {
            let mut writes = self.journal.writes();
            let text = format!("{token} {} {op} {}", self.who, writes.len());
            let told = Told::Nothing;
            writes.push(Write { text, told });
            writes.len() - 1
        };
        let text = self.journal.writes()[place].text.clone();
        let done = guard.transaction().set(fenced::NODE, text).commit();
        if sim::records() {
            sim::note(&format!("{} {op} wrote: {done:?}", self.who));
        }
        self.journal.writes()[place].told = match done {
            Ok(()) => Told::Done,
            Err(Error::Unconfirmed { .. }) => Told::Unconfirmed,
            Err(_) => Told::NotDone,
        };
    }

    /// Checks how long a guard trusts its lock. A proof counts from when it is sent, which is before it comes to a
    /// server; so does a message that the leader has heard of.
    fn is_not_trusted_for_too_long<G: LockGuard>(&self, op: usize, guard: &G) {
        let session = self.client.session_id();
        let (now, valid_for) = (sim::elapsed(), guard.valid_for());
        let most = most_trust(session, self.timeout);
        assert!(
            valid_for.is_zero() || now + valid_for <= most || self.client.session_id() != session,
            "{} (operation {op}) trusts its lock until {:?}, and what it has sent supports {most:?}",
            self.who,
            now + valid_for,
        );
    }

    fn is_valid<G: LockGuard>(&self, op: usize, guard: &G) -> bool {
        self.is_not_trusted_for_too_long(op, guard);
        let asked = sim::elapsed();
        let valid = guard.check().is_ok();
        match valid {
            true => self.journal.note_at(asked, self.who, op, What::Valid),
            false => self.journal.note(self.who, op, What::Lost),
        }
        valid
    }

    fn give_up<G: LockGuard>(&self, op: usize, guard: G, how: Release) {
        self.journal.given_up(self.who, op, &guard);
        // The next waiter leaves just when its turn comes.
        let cancels = mem::take(&mut *self.cancels());
        for cancel in cancels {
            let _ = cancel.try_send(());
        }
        self.journal.note(self.who, op, What::Release);
        let well = match how {
            Release::Unlock | Release::Sent | Release::HandOver => guard.unlock().is_ok(),
            Release::Drop => {
                drop(guard);
                true
            }
            Release::Panic => {
                let panics = || {
                    let _guard = guard;
                    panic!("{ON_PURPOSE}");
                };
                on_purpose(catch_unwind(AssertUnwindSafe(panics)).expect_err("a panic"));
                true
            }
        };
        self.journal.note(self.who, op, What::Released { well });
    }
}

/// Locks a mutex; a panic on purpose may have poisoned it.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Resumes any panic that is not on purpose.
fn on_purpose(panic: Box<dyn std::any::Any + Send>) {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    if text.as_deref() != Some(ON_PURPOSE) {
        resume_unwind(panic);
    }
}

/// Returns the token and the node of a guard of one lock.
fn token_and_node<G: LockGuard>(guard: &G) -> (Vec<i64>, Vec<String>) {
    let token = guard.fencing_token().map(FencingToken::get);
    (token.into_iter().collect(), vec![guard.node().to_owned()])
}

/// Returns until when a lock may be trusted, by the messages that have come to the servers.
fn most_trust(session: i64, timeout: Duration) -> Duration {
    troubles::ensemble(|ensemble, _| {
        let arrivals = ensemble.arrivals(session).iter().rev();
        let write = arrivals.clone().find(|(_, what)| *what == Arrival::Write);
        let write = write.map_or(Duration::ZERO, |(at, _)| *at);
        let heard_of = arrivals.clone().find(|(at, what)| match what {
            Arrival::Handshake => *at <= write,
            _ => *at + timeout * 7 / 20 <= write,
        });
        let touched = heard_of.map_or(Duration::ZERO, |(at, _)| *at);
        (write + timeout / 2).min(touched + timeout - timeout / 100)
    })
}
