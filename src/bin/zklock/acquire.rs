//! How `zklock run` gets its lock.
//!
//! A lock without `-s` is a mutex, so that it excludes with every program's mutex on the
//! same path. Mutexes and read-write locks do not wait for each other, though, and refuse
//! to hold beside each other, so where both are wanted one has to give in: `run` queues as
//! a writer if there are readers or writers already, and `run -s` waits until the mutexes
//! have gone. Whatever happens in between, the library refuses in the end.

use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use zklock::{Client, Contender, Error, FencingToken, LockGuard, LockOptions, Role};

use crate::args::Run;
use crate::failure::Failure;
use crate::waiting::Line;

/// How many attempts are made even by who does not wait: one finds out which kind of lock
/// is there, one is for that kind, and one for what has changed meanwhile.
const SURE: u32 = 3;

/// A lock that is held.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) guard: Box<dyn LockGuard>,
    pub(crate) node: String,
    pub(crate) token: Option<FencingToken>,
}

/// How the wait went.
#[derive(Debug)]
pub(crate) struct Acquired {
    pub(crate) lease: Lease,
    /// Somebody else was there first.
    pub(crate) waited: bool,
}

/// What is asked for, and for how long.
#[derive(Debug)]
pub(crate) struct Wish<'a> {
    pub(crate) client: &'a Client,
    pub(crate) run: &'a Run,
    pub(crate) patience: Patience,
    pub(crate) cancel: &'a Receiver<()>,
    pub(crate) line: &'a Line,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    Tries,
    Until(Instant),
    Waits,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Mutex,
    Read,
    Write,
    Permit(u32),
}

/// By whom attempts were refused.
#[derive(Debug, Default)]
struct Refused {
    count: u32,
    node: String,
}

impl Refused {
    /// Counts an attempt; returns whether the one before was refused by the same node.
    fn again(&mut self, node: &str) -> bool {
        self.count += 1;
        let again = self.node == node;
        node.clone_into(&mut self.node);
        again
    }

    /// The first attempts hardly wait, and no two of many do for the same time.
    fn pause(&self) -> Duration {
        let longest = Duration::from_millis(10) * 2_u32.pow(self.count.min(7));
        longest.mul_f64(0.5 + fastrand::f64() / 2.0)
    }
}

impl Lease {
    fn new(guard: impl LockGuard + 'static, node: String, token: Option<FencingToken>) -> Self {
        Self {
            guard: Box::new(guard),
            node,
            token,
        }
    }
}

impl Patience {
    pub(crate) fn new(run: &Run, started: Instant) -> Self {
        if run.nonblock || run.wait.is_some_and(|wait| wait.is_zero()) {
            return Self::Tries;
        }
        let deadline = run.wait.and_then(|wait| started.checked_add(wait));
        deadline.map_or(Self::Waits, Self::Until)
    }

    /// One try is always made, however long it took to connect.
    fn is_over(self) -> bool {
        match self {
            Self::Tries => true,
            Self::Until(deadline) => deadline <= Instant::now(),
            Self::Waits => false,
        }
    }
}

impl Wish<'_> {
    /// Returns `None` if the lock was not got.
    pub(crate) fn acquire(&self) -> Result<Option<Acquired>, Failure> {
        let mut waited = false;
        let mut kind = match (self.run.permits, self.run.shared) {
            (Some(permits), _) => Kind::Permit(permits),
            (None, true) => Kind::Read,
            (None, false) => Kind::Mutex,
        };
        let mut refused = Refused::default();
        loop {
            let error = match self.attempt(kind, &mut waited) {
                Ok(lease) => return Ok(lease.map(|lease| Acquired { lease, waited })),
                Err(error) => error,
            };
            let Error::ForeignContender { node, .. } = &error else {
                return self.evicted(error);
            };
            let present = self.client.contenders(&self.run.path)?;
            let again = refused.again(node);
            match kind {
                // What refuses us twice and is in no queue is no contender that has gone,
                // but another kind of lock.
                _ if present.is_empty() && again => return Err(error.into()),
                // Somebody has one of several permits: that is another kind of lock.
                _ if present.iter().any(|other| other.role() == Role::Permit) => {
                    return Err(error.into());
                }
                Kind::Mutex | Kind::Write if present.is_empty() => {}
                Kind::Mutex if all(&present, &[Role::Read, Role::Write]) => kind = Kind::Write,
                Kind::Write if all(&present, &[Role::Exclusive]) => kind = Kind::Mutex,
                Kind::Read if present.iter().all(is_our_mutex_or_shared) => {
                    if self.mutexes_stay(present)? {
                        return Ok(None);
                    }
                    waited = true;
                }
                _ => return Err(error.into()),
            }
            if !self.goes_on(&refused) {
                return Ok(None);
            }
        }
    }

    /// Pauses before another attempt; returns whether there is to be one.
    fn goes_on(&self, refused: &Refused) -> bool {
        // A queue of another kind may be there, and have gone, before we know of it.
        if self.patience.is_over() && SURE <= refused.count {
            return false;
        }
        let pause = match self.patience {
            Patience::Until(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                refused.pause().min(left)
            }
            Patience::Tries | Patience::Waits => refused.pause(),
        };
        self.cancel.recv_timeout(pause).is_err()
    }

    fn attempt(&self, kind: Kind, waited: &mut bool) -> zklock::Result<Option<Lease>> {
        let (client, path) = (self.client, &self.run.path);
        // The try goes on where a wait of no length would give up before it has begun.
        let tries = self.patience.is_over();
        Ok(match kind {
            Kind::Mutex => {
                let lock = client.mutex(path)?;
                let guard = match tries {
                    true => lock.try_lock()?,
                    false => lock.lock_with(self.options(waited))?,
                };
                guard.map(|guard| {
                    let (node, token) = (guard.node().to_owned(), guard.fencing_token());
                    Lease::new(guard, node, Some(token))
                })
            }
            Kind::Read => {
                let lock = client.rwlock(path)?;
                let guard = match tries {
                    true => lock.try_read()?,
                    false => lock.read_with(self.options(waited))?,
                };
                guard.map(|guard| {
                    let (node, token) = (guard.node().to_owned(), guard.fencing_token());
                    Lease::new(guard, node, Some(token))
                })
            }
            Kind::Write => {
                let lock = client.rwlock(path)?;
                let guard = match tries {
                    true => lock.try_write()?,
                    false => lock.write_with(self.options(waited))?,
                };
                guard.map(|guard| {
                    let (node, token) = (guard.node().to_owned(), guard.fencing_token());
                    Lease::new(guard, node, Some(token))
                })
            }
            Kind::Permit(permits) => {
                let semaphore = client.semaphore(path, permits)?;
                let permit = match tries {
                    true => semaphore.try_acquire()?,
                    false => semaphore.acquire_with(self.options(waited))?,
                };
                permit.map(|permit| {
                    let node = permit.node().to_owned();
                    Lease::new(permit, node, None)
                })
            }
        })
    }

    fn options<'b>(&'b self, waited: &'b mut bool) -> LockOptions<'b> {
        let options = LockOptions::new()
            .cancel(self.cancel.clone())
            .on_wait(|waiting| {
                *waited = true;
                self.line.tell(waiting);
            });
        match self.patience {
            Patience::Until(deadline) => options.deadline(deadline),
            Patience::Tries | Patience::Waits => options,
        }
    }

    /// Waits for mutexes to go; returns whether one is left when it is time to give up.
    fn mutexes_stay(&self, mut present: Vec<Contender>) -> Result<bool, Failure> {
        /// How soon we notice that we are to give up.
        const LOOK: Duration = Duration::from_millis(200);

        while present.iter().any(|other| other.role() == Role::Exclusive) {
            if self.patience.is_over() || !self.cancel.is_empty() {
                return Ok(true);
            }
            present = self
                .client
                .contenders_changed(&self.run.path, &present, LOOK)?;
        }
        Ok(false)
    }

    /// Somebody who throws us out of the queue does not want us to have the lock.
    fn evicted(&self, error: Error) -> Result<Option<Acquired>, Failure> {
        match error {
            Error::Evicted { .. } => {
                Err(Failure::new(self.run.conflict_exit_code, error.to_string()))
            }
            error => Err(error.into()),
        }
    }
}

fn all(present: &[Contender], roles: &[Role]) -> bool {
    present.iter().all(|other| roles.contains(&other.role()))
}

/// Mutexes of others would not look whether we share the lock.
fn is_our_mutex_or_shared(other: &Contender) -> bool {
    other.role() != Role::Exclusive || other.owner().program.is_some()
}
