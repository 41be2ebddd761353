//! How `zklock run` acquires its lock.
//!
//! A lock without `-s` is a mutex, so it excludes every program's mutex on the same path.
//! Mutexes and read-write locks do not wait for each other, and the library refuses to hold
//! one next to the other. So `run` queues as a writer if there are readers or writers
//! already, and `run -s` waits until the mutexes have gone.

use std::env;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use zklock::{
    Client, Contender, Error, FencingToken, LockGuard, LockOptions, MutexGuard, Permit, Role,
    RwLockReadGuard, RwLockWriteGuard,
};

use crate::args::Run;
use crate::failure::Failure;
use crate::helper::NODES;
use crate::sanitize::plain;
use crate::status_line::StatusLine;
use crate::stderr::say;

/// How many attempts are made even without a wait: one to find out which kind of lock is
/// there, one for that kind, and one for changes in the meantime.
const MIN_ATTEMPTS: u32 = 3;

/// A lock that is held.
#[derive(Debug)]
pub(crate) struct HeldLock {
    pub(crate) guard: Box<dyn LockGuard>,
    pub(crate) node: String,
    pub(crate) token: Option<FencingToken>,
}

/// A lock that was acquired.
#[derive(Debug)]
pub(crate) struct Acquired {
    pub(crate) lock: HeldLock,
    /// Another client was there first.
    pub(crate) waited: bool,
}

/// What lock to acquire, and how long to wait for it.
#[derive(Debug)]
pub(crate) struct AcquireRequest<'a> {
    pub(crate) client: &'a Client,
    pub(crate) run: &'a Run,
    pub(crate) limit: WaitLimit,
    pub(crate) cancel: &'a Receiver<()>,
    pub(crate) status_line: &'a StatusLine,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum WaitLimit {
    OneTry,
    Until(Instant),
    Forever,
}

#[derive(Clone, Copy, Debug)]
enum LockKind {
    Mutex,
    Read,
    Write,
    Permit(u32),
}

/// Counts the attempts that were refused.
#[derive(Debug, Default)]
struct RefusedAttempts {
    count: u32,
    /// The node for which the last one was refused.
    node: String,
}

impl RefusedAttempts {
    /// Counts an attempt; returns whether the same node refused the one before.
    fn again(&mut self, node: &str) -> bool {
        self.count += 1;
        let again = self.node == node;
        node.clone_into(&mut self.node);
        again
    }

    /// Returns a pause that is short at first, and random.
    fn pause(&self) -> Duration {
        let longest = Duration::from_millis(10) * 2_u32.pow(self.count.min(7));
        longest.mul_f64(0.5 + fastrand::f64() / 2.0)
    }
}

macro_rules! held_lock_from {
    ($guard:ty, $token:expr) => {
        impl From<$guard> for HeldLock {
            fn from(guard: $guard) -> Self {
                let token: fn(&$guard) -> Option<FencingToken> = $token;
                Self {
                    node: guard.node().to_owned(),
                    token: token(&guard),
                    guard: Box::new(guard),
                }
            }
        }
    };
}

held_lock_from!(MutexGuard, |guard| Some(guard.fencing_token()));
held_lock_from!(RwLockReadGuard, |guard| Some(guard.fencing_token()));
held_lock_from!(RwLockWriteGuard, |guard| Some(guard.fencing_token()));
held_lock_from!(Permit, |_| None);

impl WaitLimit {
    pub(crate) fn new(run: &Run, started: Instant) -> Self {
        if run.nonblock || run.wait.is_some_and(|wait| wait.is_zero()) {
            return Self::OneTry;
        }
        let deadline = run.wait.and_then(|wait| started.checked_add(wait));
        deadline.map_or(Self::Forever, Self::Until)
    }

    /// Returns whether the time is up; one attempt is made even then.
    fn is_over(self) -> bool {
        match self {
            Self::OneTry => true,
            Self::Until(deadline) => deadline <= Instant::now(),
            Self::Forever => false,
        }
    }
}

impl AcquireRequest<'_> {
    /// Acquires the lock; returns `None` if it is taken.
    pub(crate) fn acquire(&self) -> Result<Option<Acquired>, Failure> {
        let mut waited = false;
        let mut kind = match (self.run.permits, self.run.shared) {
            (Some(permits), _) => LockKind::Permit(permits),
            (None, true) => LockKind::Read,
            (None, false) => LockKind::Mutex,
        };
        let mut refused = RefusedAttempts::default();
        loop {
            let error = match self.attempt(kind, &mut waited) {
                Ok(lock) => return Ok(lock.map(|lock| Acquired { lock, waited })),
                Err(error) => error,
            };
            let Error::ForeignContender { node, .. } = &error else {
                return self.evicted(error);
            };
            let present = self.client.contenders(&self.run.what.path)?;
            let again = refused.again(node);
            match next_kind(kind, &present) {
                // If a node that is in no queue refuses twice, it is not a contender that has
                // gone, but another kind of lock.
                _ if present.is_empty() && again => return Err(error.into()),
                None => return Err(error.into()),
                Some(LockKind::Read) => {
                    if self.mutexes_stay(present)? {
                        return Ok(None);
                    }
                    waited = true;
                }
                Some(next) => kind = next,
            }
            if !self.pause(&refused) {
                return Ok(None);
            }
        }
    }

    /// Pauses before another attempt; returns `false` if there is none.
    fn pause(&self, refused: &RefusedAttempts) -> bool {
        // A queue of another kind may be gone by now.
        if self.limit.is_over() && MIN_ATTEMPTS <= refused.count {
            return false;
        }
        let pause = match self.limit {
            WaitLimit::Until(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                refused.pause().min(left)
            }
            WaitLimit::OneTry | WaitLimit::Forever => refused.pause(),
        };
        self.cancel.recv_timeout(pause).is_err()
    }

    fn attempt(&self, kind: LockKind, waited: &mut bool) -> zklock::Result<Option<HeldLock>> {
        let (client, path) = (self.client, &self.run.what.path);
        // A wait of zero length would give up before it has begun.
        let try_once = self.limit.is_over();
        Ok(match kind {
            LockKind::Mutex => {
                let lock = client.mutex(path)?;
                let guard = match try_once {
                    true => lock.try_lock()?,
                    false => lock.lock_with(self.options(waited))?,
                };
                guard.map(HeldLock::from)
            }
            LockKind::Read => {
                let lock = client.rwlock(path)?;
                let guard = match try_once {
                    true => lock.try_read()?,
                    false => lock.read_with(self.options(waited))?,
                };
                guard.map(HeldLock::from)
            }
            LockKind::Write => {
                let lock = client.rwlock(path)?;
                let guard = match try_once {
                    true => lock.try_write()?,
                    false => lock.write_with(self.options(waited))?,
                };
                guard.map(HeldLock::from)
            }
            LockKind::Permit(permits) => {
                let semaphore = client.semaphore(path, permits)?;
                let permit = match try_once {
                    true => semaphore.try_acquire()?,
                    false => semaphore.acquire_with(self.options(waited))?,
                };
                permit.map(HeldLock::from)
            }
        })
    }

    fn options<'b>(&'b self, waited: &'b mut bool) -> LockOptions<'b> {
        let options = LockOptions::new()
            .cancel(self.cancel.clone())
            .on_wait(|waiting| {
                if !*waited {
                    look_around(&self.run.what.path);
                }
                *waited = true;
                self.status_line.tell(waiting);
            });
        match self.limit {
            WaitLimit::Until(deadline) => options.deadline(deadline),
            WaitLimit::OneTry | WaitLimit::Forever => options,
        }
    }

    /// Waits until no mutex is left; returns `true` if one is left when the time is up.
    fn mutexes_stay(&self, mut present: Vec<Contender>) -> Result<bool, Failure> {
        /// How often to check whether the time is up.
        const LOOK: Duration = Duration::from_millis(200);

        while present.iter().any(|other| other.role() == Role::Exclusive) {
            if self.limit.is_over() || !self.cancel.is_empty() {
                return Ok(true);
            }
            present = self
                .client
                .contenders_changed(&self.run.what.path, &present, LOOK)?;
        }
        Ok(false)
    }

    /// An eviction is reported with the exit code for a lock that is taken.
    fn evicted(&self, error: Error) -> Result<Option<Acquired>, Failure> {
        match error {
            Error::Evicted { .. } => {
                Err(Failure::new(self.run.conflict_exit_code, error.to_string()))
            }
            error => Err(error.into()),
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

/// Returns the kind of lock to try beside these contenders, if any can be held with them.
fn next_kind(kind: LockKind, present: &[Contender]) -> Option<LockKind> {
    match kind {
        // A contender for one of several permits: that is another kind of lock.
        _ if present.iter().any(|other| other.role() == Role::Permit) => None,
        LockKind::Mutex | LockKind::Write if present.is_empty() => Some(kind),
        LockKind::Mutex if all(present, &[Role::Read, Role::Write]) => Some(LockKind::Write),
        LockKind::Write if all(present, &[Role::Exclusive]) => Some(LockKind::Mutex),
        LockKind::Read if present.iter().all(is_our_mutex_or_shared) => Some(kind),
        _ => None,
    }
}

fn all(present: &[Contender], roles: &[Role]) -> bool {
    present.iter().all(|other| roles.contains(&other.role()))
}

/// Other programs' mutexes do not wait for readers.
fn is_our_mutex_or_shared(other: &Contender) -> bool {
    other.role() != Role::Exclusive || other.owner().program.is_some()
}
