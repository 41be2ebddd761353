//! One active process, and others on standby.

use std::fmt;
use std::ops::ControlFlow;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::contender::Contender;
use crate::error::{Error, LostReason, Result};
use crate::guard::guard_views;
use crate::lock::raw_guard::RawGuard;
use crate::lock::{Locks, described};
use crate::mutex::{Mutex, MutexGuard, SendMutexGuard};
use crate::options::{LockOptions, Waiting};
use crate::system::channel::Receiver;
use crate::system::{clock, sync};
use crate::time::limit::Limit;
use crate::token::FencingToken;
use crate::transport::handover::Handover;

/// How long to stay out of the queue after a first term that was shorter than this.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// A place among processes of which one is active and the others take over when it ends.
///
/// A service that must be active exactly once in a cluster runs on several machines, which all call
/// [`run`](Self::run): one is let in, for a [`Term`], and the others wait in the queue. When the
/// process of the active one ends, the next one is let in at once; when its machine dies or its
/// network is cut, after the session timeout
/// ([`ClientBuilder::session_timeout`](crate::ClientBuilder::session_timeout)). Two terms never
/// both pass [`Term::check`].
///
/// A standby is the mutex of the same path, and excludes whatever that mutex excludes: Curator's
/// `LeaderSelector`; with [`Dialect::Kazoo`](crate::Dialect::Kazoo), kazoo's `Election`; and with
/// [`Dialect::LeaderLatch`](crate::Dialect::LeaderLatch), Curator's `LeaderLatch`.
///
/// # Example
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zklock::embedded::Server::start()?;
/// # let client = zklock::Client::connect(server.hosts())?;
/// use std::ops::ControlFlow;
///
/// # let mut batches = 3;
/// client.standby("/services/importer")?.run(|term| {
///     // Only one process in the cluster is here.
///     while term.is_valid() && !term.revoked() {
/// #       batches -= 1;
/// #       if batches == 0 { return ControlFlow::Break(()); }
///         // .. a batch, with term.fencing_token() in each write
///     }
///     ControlFlow::Continue(()) // back in line
/// })?;
/// # Ok(())
/// # }
/// ```
#[doc(alias = "LeaderSelector")]
#[doc(alias = "LeaderLatch")]
#[doc(alias = "Election")]
#[derive(Clone)]
pub struct Standby {
    locks: Arc<Locks>,
    mutex: Mutex,
    note: Option<String>,
    on_wait: Option<Arc<WaitCallback>>,
    first: Arc<sync::Mutex<Option<SendMutexGuard>>>,
}

type WaitCallback = dyn Fn(&Waiting) + Send + Sync;

/// A time during which this process is the active one.
///
/// A term has the methods of every guard, except that it ends when the function returns.
pub struct Term<'a> {
    raw: &'a RawGuard,
    /// Whether another client deleted the node with which this process waited before.
    evicted: bool,
    number: u64,
    resigned: AtomicBool,
    limit: &'a Limit,
}

guard_views!(Term<'_>, raw);

described!(Standby, it: path = it.path());

impl UnwindSafe for Standby {}
impl RefUnwindSafe for Standby {}

impl Standby {
    pub(crate) fn new(locks: &Arc<Locks>, path: &str) -> Result<Self> {
        Ok(Self {
            locks: locks.clone(),
            mutex: Mutex::new(locks, path)?,
            note: None,
            on_wait: None,
            first: Arc::default(),
        })
    }

    /// Shows this text to the others, in place of the client's note.
    #[must_use]
    pub fn note(mut self, text: &str) -> Self {
        self.note = Some(text.to_owned());
        self
    }

    /// Calls this closure when the contender ahead in the queue is known, and again when it
    /// changes; see [`LockOptions::on_wait`].
    #[must_use]
    pub fn on_wait(mut self, callback: impl Fn(&Waiting) + Send + Sync + 'static) -> Self {
        self.on_wait = Some(Arc::new(callback));
        self
    }

    /// Begins the next run with a term under this guard, which another process has handed over
    /// ([`Term::hand_over`], [`ClientBuilder::take_over`](crate::ClientBuilder::take_over)).
    ///
    /// # Errors
    ///
    /// Fails with [`Error::BadArgument`] if the guard is not of this path.
    pub fn first_term(self, guard: impl Into<SendMutexGuard>) -> Result<Self> {
        let guard = guard.into();
        if guard.path() != self.path() {
            return Err(Error::BadArgument {
                name: "guard",
                rule: "it must be of the path of the standby".into(),
            });
        }
        *self.first.lock() = Some(guard);
        Ok(self)
    }

    /// Waits in the queue and calls `term` whenever it is this process's turn, until `term` returns
    /// [`ControlFlow::Break`].
    ///
    /// Blocks for all that time. When `term` returns, the lock is released, which lets the next
    /// process be active, and the call waits for the confirmation. After [`ControlFlow::Continue`],
    /// and after a loss, the process queues again, at the end. After a term of less than 100 ms it
    /// first pauses outside the queue, and for twice as long, up to 10 s, each time that the next
    /// term is shorter than its pause: a process that fails at once must not burden the others. A
    /// lost connection does not end the wait. A panic of `term` releases the lock and propagates.
    ///
    /// # Errors
    ///
    /// Fails if this thread has the lock already, if a contender in the queue would not wait for
    /// this client, if the server refuses a request, and if the client is closed, as
    /// [`Mutex::lock`]. A waiter whose node is deleted by another client queues again.
    pub fn run(&self, term: impl FnMut(&Term<'_>) -> ControlFlow<()>) -> Result<()> {
        self.terms(None, term)
    }

    /// As [`run`](Self::run), and ends when `cancel` has a message or has lost all its senders.
    ///
    /// A wait ends at once. A term is not interrupted: its function can see [`Term::is_cancelled`]
    /// and return.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub fn run_until(
        &self,
        cancel: Receiver<()>,
        term: impl FnMut(&Term<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        self.terms(Some(cancel), term)
    }

    /// Returns the active contender, if there is one.
    ///
    /// Blocks for a few round trips, at most 15 s each. To wait for a change, use
    /// [`Client::wait_for_change`](crate::Client::wait_for_change).
    ///
    /// # Errors
    ///
    /// As [`Client::contenders`](crate::Client::contenders).
    pub fn leader(&self) -> Result<Option<Contender>> {
        let contenders = self.locks.session.contenders(self.path())?;
        Ok(contenders.into_iter().find(Contender::holds))
    }

    /// Returns the path.
    pub fn path(&self) -> &str {
        self.mutex.path()
    }

    fn terms(
        &self,
        cancel: Option<Receiver<()>>,
        mut term: impl FnMut(&Term<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let limit = Limit::new(None, cancel.clone());
        let (mut number, mut pause) = (0, FIRST_PAUSE);
        while let Some((guard, evicted)) = self.elected(cancel.as_ref())? {
            if limit.is_over() {
                return Ok(());
            }
            number += 1;
            let began = clock::now();
            let done = term(&Term {
                raw: guard.raw(),
                evicted,
                number,
                resigned: AtomicBool::new(false),
                limit: &limit,
            });
            // A loss is not an error here: another process has taken over.
            if let Err(error) = guard.unlock() {
                tell_loss(number, self.path(), &error);
            }
            if done.is_break() || limit.is_over() {
                return Ok(());
            }
            // Terms of this length follow each other seldom enough.
            if pause <= clock::now().saturating_duration_since(began) {
                pause = FIRST_PAUSE;
                continue;
            }
            let mut caller = self.locks.session.caller();
            if caller.rest(pause, &limit).is_err() {
                return Ok(());
            }
            pause = LONGEST_PAUSE.min(pause * 2);
        }
        Ok(())
    }

    /// Waits in the queue; returns `None` if the wait is cancelled. Also returns whether another
    /// client deleted this process's node meanwhile, and perhaps those ahead with it.
    fn elected(&self, cancel: Option<&Receiver<()>>) -> Result<Option<(MutexGuard, bool)>> {
        if let Some(first) = self.first.lock().take() {
            return Ok(Some((first.into_local(), false)));
        }
        let mut evicted = false;
        loop {
            let mut options = LockOptions::new().sees_ahead();
            if let Some(note) = &self.note {
                options = options.note(note);
            }
            if let Some(on_wait) = &self.on_wait {
                options = options.on_wait(|waiting| on_wait(waiting));
            }
            if let Some(cancel) = cancel {
                options = options.cancel(cancel.clone());
            }
            match self.mutex.lock_with(options) {
                Err(Error::Evicted { node }) => {
                    log::warn!("{node} was deleted: standing in line again");
                    evicted = true;
                }
                // Without a limit there is no reason to give up.
                Ok(None) if cancel.is_none() => {}
                elected => return Ok(elected?.map(|guard| (guard, evicted))),
            }
        }
    }
}

impl Term<'_> {
    /// Returns the number of this term within the call, from 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns a number that grows with every term of any process.
    pub fn fencing_token(&self) -> FencingToken {
        self.raw.token()
    }

    /// Marks this term as over. The lock is released when the function returns, not before: until
    /// then the function may still be at work.
    pub fn resign(&self) {
        self.resigned.store(true, Ordering::Relaxed);
    }

    /// Returns `true` when this term should end: the lock is lost, another client asked for it,
    /// [`resign`](Self::resign) was called, or the call was cancelled.
    pub fn is_over(&self) -> bool {
        self.resigned.load(Ordering::Relaxed)
            || !self.is_valid()
            || self.revoked()
            || self.is_cancelled()
    }

    /// Returns `true` if another client has asked for the lock, with
    /// [`Contender::revoke`](crate::Contender::revoke).
    pub fn revoked(&self) -> bool {
        self.raw.lease().is_revoked()
    }

    /// As [`LockGuard::follows_release`](crate::LockGuard::follows_release).
    #[doc(hidden)]
    pub fn follows_release(&self) -> Option<bool> {
        match self.evicted {
            true => Some(false),
            false => self.raw.follows_release(),
        }
    }

    /// As [`LockGuard::leave_note`](crate::LockGuard::leave_note).
    #[doc(hidden)]
    pub fn leave_note(&self) {
        self.raw.leave_note();
    }

    /// As [`LockGuard::unlock_noting`](crate::LockGuard::unlock_noting); the term must end next.
    #[doc(hidden)]
    pub fn unlock_noting(&self) {
        self.raw.unlock_noting();
    }

    /// As [`MutexGuard::hand_over`]. The term is over then; [`Standby::first_term`] continues it in
    /// the new process.
    ///
    /// # Errors
    ///
    /// As [`MutexGuard::hand_over`].
    pub fn hand_over(&self) -> Result<Handover> {
        self.raw.to_process()
    }

    /// Returns `true` if the call was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.limit.is_over()
    }
}

/// Logs a loss. A lock that was handed over was lost as planned.
fn tell_loss(number: u64, path: &str, error: &Error) {
    let planned = matches!(
        error,
        Error::Lost {
            why: LostReason::HandedOver,
            ..
        }
    );
    if !planned {
        log::warn!("term {number} of {path} ended: {error}");
    }
}

impl fmt::Debug for Term<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.raw.describe("Term", Some(self.raw.token()), f)
    }
}
