//! How `zklock run` acquires its lock.
//!
//! A lock without `-s` is a mutex, so it excludes every program's mutex on the same path. If
//! another library has readers or writers there, which do not wait for a mutex, the lock queues as
//! a writer; with `--write`, it is one from the start. A semaphore and another kind of lock do not
//! share a queue, and the library refuses to hold one next to the other: `run` waits until the other
//! kind has gone, and tries again.

use std::collections::BTreeSet;
use std::env;
use std::mem;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use zklock::{Client, Contender, Error, Job, LockOptions, Permit, Role, Semaphore};

use crate::args::Run;
use crate::child::NODES;
use crate::failure::Failure;
use crate::held_lock::HeldLock;
use crate::other_kinds::{LockKind, Next, Refusal, hold_ends, used_by};
use crate::refused_attempts::RefusedAttempts;
use crate::run_setup::Stage;
use crate::sanitize::plain;
use crate::status_line::StatusLine;
use crate::stderr::say;
use crate::wait_limit::{WaitLimit, allowed};
use crate::wanted::Wanted;

/// Longer than a command waits.
const FOREVER: Duration = Duration::from_secs(100 * 366 * 24 * 3600);

/// How many attempts are made even without a wait: one to find out which kind of lock is
/// there, one for that kind, and one for changes in the meantime.
const MIN_ATTEMPTS: u32 = 3;

/// A lock that was acquired.
#[derive(Debug)]
pub(crate) struct Acquired {
    pub(crate) lock: HeldLock,
    /// Whether all holders that used the path for another kind of lock before are known to have released it.
    pub(crate) in_order: bool,
}

/// What lock to acquire, and how long to wait for it. The wait is shown until this is dropped.
#[derive(Debug)]
pub(crate) struct AcquireRequest<'a> {
    client: &'a Client,
    cancel: &'a Receiver<()>,
    run: &'a Run,
    wanted: &'a Wanted,
    limit: WaitLimit,
    pub(crate) for_a_hold: bool,
    status_line: StatusLine,
}

impl<'a> AcquireRequest<'a> {
    /// Begins a wait that signals end from now on.
    pub(crate) fn new(
        stage: &'a Stage,
        run: &'a Run,
        wanted: &'a Wanted,
        limit: WaitLimit,
    ) -> Self {
        stage.signals.waiting();
        Self {
            client: &stage.client,
            cancel: &stage.signals.cancel,
            run,
            wanted,
            limit,
            for_a_hold: false,
            status_line: stage.status_line(&wanted.name()),
        }
    }

    /// Acquires the lock; returns `None` if it is taken.
    pub(crate) fn acquire(&self) -> Result<Option<Acquired>, Failure> {
        let (mut in_order, mut waited, mut tidied) = (true, false, 0);
        let mut kind = self.kind();
        let mut refused = RefusedAttempts::default();
        loop {
            let error = match self.attempt(kind, &mut waited) {
                Ok(lock) => return Ok(lock.map(|lock| Acquired { lock, in_order })),
                Err(error) => error,
            };
            let node = match &error {
                Error::ForeignContender { node, .. } => node,
                Error::Unmarked { path, .. } if self.tidies(path, &mut tidied)? => continue,
                _ => return Err(self.failure(error)),
            };
            let path = self.wanted.path_of(node);
            let refusal = Refusal { kind, path, node };
            let present = self.client.contenders(path)?;
            let stays = refused.count(&present);
            // It is unknown who was ahead of an earlier attempt, or has come and gone since.
            in_order &= !waited && refused.count == 1 && !present.is_empty();
            match refusal.next(&present) {
                Some(Next::Try(next)) if !stays && self.may_be(next) => kind = next,
                Some(Next::Wait) if self.for_a_hold => {
                    return Err(Failure::of_a_semaphore(&plain(path), "hold"));
                }
                Some(Next::Wait) => match self.give_way(refusal, present, &mut refused)? {
                    Some(released) => in_order &= released,
                    None => return Ok(None),
                },
                _ => return Err(error.into()),
            }
            if !self.pause(&refused) {
                return Ok(None);
            }
        }
    }

    /// Deletes the directory that a past hold may have left, which looks like a new job's. Returns
    /// whether another attempt may help. Fails if the path is a job's.
    fn tidies(&self, path: &str, count: &mut u32) -> Result<bool, Failure> {
        self.is_no_jobs(path)?;
        *count += 1;
        let tidied = self.client.tidy_after_hold(path);
        Ok(tidied.is_ok() && *count < MIN_ATTEMPTS)
    }

    /// Waits until no contender of another kind is left; returns the result of
    /// [`others_go`](Self::others_go).
    fn give_way(
        &self,
        refusal: Refusal<'_>,
        present: Vec<Contender>,
        refused: &mut RefusedAttempts,
    ) -> Result<Option<bool>, Failure> {
        let path = refusal.path;
        if refusal.is_on_hold(&present) {
            refused.has_told = true;
            let is_over = hold_ends(self.client, (path, &present), self.limit, self.cancel);
            let is_over = is_over.map_err(|error| self.failure(error))?;
            return Ok(is_over.then_some(false));
        }
        if !mem::replace(&mut refused.has_told, true) {
            if matches!(refusal.kind, LockKind::Permit(_)) {
                self.is_no_jobs(path)?;
            }
            // A queue does not help against another kind of lock.
            if let Some(other) = refusal.others(&present).first() {
                say(&format!(
                    "{}, and free for this command when nobody uses it so: give each kind of lock a path of its own",
                    used_by(path, other)
                ));
            }
        }
        let since = Instant::now();
        let gone = self.others_go(refusal, present)?;
        refused.stayed(since.elapsed());
        Ok(gone)
    }

    fn kind(&self) -> LockKind {
        match (self.run.permits, self.wanted.single()) {
            (Some(permits), _) => LockKind::Permit(permits),
            (None, None) => LockKind::Together,
            (None, Some(part)) if part.shared => LockKind::Read,
            (None, Some(_)) if self.run.write => LockKind::Write,
            (None, Some(_)) => LockKind::Mutex,
        }
    }

    /// Returns whether that kind is as exclusive as the user asked for: other libraries' readers and writers do not
    /// wait for a mutex.
    fn may_be(&self, kind: LockKind) -> bool {
        !(self.run.write && matches!(kind, LockKind::Mutex))
    }

    /// Pauses before another attempt; returns `false` if there is none.
    fn pause(&self, refused: &RefusedAttempts) -> bool {
        let until = match self.limit.is_over() {
            // A lock that nobody has is not taken: the next attempts show whether what refused this one stays.
            true if refused.met_nobody() => Instant::now() + refused.pause(),
            // The queue of another kind may be gone by now.
            true if MIN_ATTEMPTS <= refused.count => return false,
            _ => self.limit.soon(refused.pause()),
        };
        self.cancel.recv_deadline(until).is_err()
    }

    fn attempt(&self, kind: LockKind, waited: &mut bool) -> zklock::Result<Option<HeldLock>> {
        let (client, path) = (self.client, &self.wanted.parts[0].path);
        /// Calls one of these methods of a lock.
        macro_rules! enter {
            ($lock:expr, $tries:ident, $waits:ident) => {
                match self.limit {
                    WaitLimit::OneTry => $lock.$tries()?,
                    _ => $lock.$waits(self.options(waited))?,
                }
            };
        }
        Ok(match kind {
            LockKind::Mutex => enter!(client.mutex(path)?, try_lock, lock_with).map(HeldLock::of),
            LockKind::Read => enter!(client.rwlock(path)?, try_read, read_with).map(HeldLock::of),
            LockKind::Write => {
                enter!(client.rwlock(path)?, try_write, write_with).map(HeldLock::of)
            }
            LockKind::Permit(permits) => {
                let permit = self.permit(&client.semaphore(path, permits)?, waited)?;
                permit.map(HeldLock::of_permit)
            }
            LockKind::Together => {
                let shared = self.wanted.parts.iter().filter(|part| part.shared);
                let shared = shared.map(|part| part.path.as_str());
                let lock = client.multi_lock(self.wanted.paths())?.reading(shared)?;
                enter!(lock, try_lock, lock_with).map(HeldLock::of_several)
            }
        })
    }

    /// Acquires a permit. While other clients have permits of another number, a call without a
    /// limit fails, and a call with a limit waits for its turn.
    fn permit(&self, semaphore: &Semaphore, waited: &mut bool) -> zklock::Result<Option<Permit>> {
        let acquired = match self.limit {
            WaitLimit::OneTry => semaphore.try_acquire(),
            _ => semaphore.acquire_with(self.options(waited)),
        };
        match (acquired, self.limit) {
            (Err(error @ Error::PermitsDisagree { .. }), WaitLimit::Forever) => {
                say(&format!("waiting: {error}"));
                let far = Instant::now() + FOREVER;
                semaphore.acquire_with(self.options(waited).deadline(far))
            }
            (acquired, _) => acquired,
        }
    }

    fn options<'b>(&'b self, waited: &'b mut bool) -> LockOptions<'b> {
        let options = self.limit.options(self.cancel).on_wait(|waiting| {
            if !*waited {
                self.wanted.paths().for_each(look_around);
            }
            *waited = true;
            self.status_line.tell(waiting);
        });
        match self.for_a_hold {
            true => options.for_a_hold(),
            false => options,
        }
    }

    /// Waits until no contender of another kind is left; returns whether all of them are known to
    /// have released, and `None` if one is left when the time is up.
    fn others_go(
        &self,
        refusal: Refusal<'_>,
        mut present: Vec<Contender>,
    ) -> Result<Option<bool>, Failure> {
        let deadline = self.limit.deadline();
        let mut seen = BTreeSet::new();
        loop {
            let others = refusal.others(&present);
            if others.is_empty() {
                let seen: Vec<_> = seen.into_iter().collect();
                return Ok(Some(self.client.have_released(&seen)));
            }
            if self.limit.is_over() {
                return Ok(None);
            }
            if refusal.is_on_hold(&present) {
                return Ok(Some(false));
            }
            // A waiter for a permit holds none, and gets another node together with the permit.
            let may_hold = |one: &&Contender| one.holds() || one.role() != Role::Permit;
            let holders = others.into_iter().filter(may_hold);
            seen.extend(holders.map(|one| one.node().to_owned()));
            let changed =
                self.client
                    .wait_for_change_until(refusal.path, &present, deadline, self.cancel)?;
            let Some(changed) = changed else {
                return Ok(None);
            };
            present = changed;
        }
    }

    /// Fails if the path has the record of a job that was begun.
    fn is_no_jobs(&self, path: &str) -> Result<(), Failure> {
        let is_begun = |job: Job| {
            let ended = job.history().is_ok_and(|runs| !runs.is_empty());
            ended || job.running().is_ok_and(|run| run.is_some())
        };
        match self.client.job(path).is_ok_and(is_begun) {
            true => Err(Failure::of_a_job(&plain(path))),
            false => Ok(()),
        }
    }

    /// Returns the failure, which has the exit code for a lock that is taken after an eviction, and
    /// if there are permits of another number.
    fn failure(&self, error: Error) -> Failure {
        match allowed(error, self.run.wait) {
            error @ (Error::Evicted { .. } | Error::PermitsDisagree { .. }) => {
                Failure::new(self.run.conflict_exit_code, error.to_string())
            }
            error => error.into(),
        }
    }
}

/// Warns if a `zklock` around this one has the lock, which it keeps until this one ends.
pub(crate) fn look_around(path: &str) {
    let nodes = env::var(NODES).unwrap_or_default();
    let has_it = |node: &str| {
        node.strip_prefix(path)
            .is_some_and(|rest| rest.starts_with('/'))
    };
    if nodes.lines().any(has_it) {
        let path = plain(path);
        say(&format!(
            "waiting for {path}, which the zklock around this one has: it lets go when this one has ended"
        ));
    }
}
