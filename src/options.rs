//! How to wait for a lock, when `lock` and the `try_` methods do not say enough.

use std::fmt;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;

use crate::contender::Contender;
use crate::session::limit::Limit;

/// How to wait for a lock.
///
/// # Example
///
/// ```
/// use std::time::{Duration, Instant};
/// use zklock::LockOptions;
///
/// let options = LockOptions::new()
///     .deadline(Instant::now() + Duration::from_secs(60))
///     .note("monthly report, ask Jo")
///     .on_wait(|waiting| println!("{} ahead of us", waiting.position()));
/// ```
#[derive(Default)]
#[must_use = "options do nothing until they are passed to a lock"]
pub struct LockOptions<'a> {
    pub(crate) deadline: Option<Instant>,
    pub(crate) cancel: Option<Receiver<()>>,
    pub(crate) note: Option<String>,
    pub(crate) on_wait: Option<Box<dyn FnMut(&Waiting) + 'a>>,
}

/// What a waiting thread is told about its place; see [`LockOptions::on_wait`].
#[derive(Clone, Debug)]
pub struct Waiting {
    pub(crate) position: usize,
    pub(crate) ahead: Option<Contender>,
    pub(crate) since: Duration,
}

impl<'a> LockOptions<'a> {
    /// Waits for as long as it takes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives up at this time; the lock then returns `Ok(None)`. Defaults to never.
    pub fn deadline(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Gives up when something comes through this channel, or when its senders are gone;
    /// the lock then returns `Ok(None)`. Defaults to never.
    pub fn cancel(mut self, cancel: Receiver<()>) -> Self {
        self.cancel = Some(cancel);
        self
    }

    /// Shows this text to those who wait for us, instead of the client's; the first 512
    /// characters of it. Defaults to [`ClientBuilder::note`](crate::ClientBuilder::note).
    pub fn note(mut self, text: &str) -> Self {
        self.note = Some(text.to_owned());
        self
    }

    /// Calls this when the wait begins, and again when someone else is next ahead of us.
    ///
    /// It runs on the waiting thread, and the wait goes on when it returns. Defaults to
    /// nothing.
    pub fn on_wait(mut self, told: impl FnMut(&Waiting) + 'a) -> Self {
        self.on_wait = Some(Box::new(told));
        self
    }

    /// Gives up after this long; so long that it cannot be counted means never.
    pub(crate) fn within(limit: Duration) -> Self {
        Self {
            deadline: Instant::now().checked_add(limit),
            ..Self::default()
        }
    }

    pub(crate) fn limit(&self) -> Limit {
        Limit::new(self.deadline, self.cancel.clone())
    }
}

impl Waiting {
    /// Returns how many are ahead that the lock cannot be shared with, as of the last look.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Returns the one whose departure is waited for: the nearest ahead.
    pub fn ahead(&self) -> Option<&Contender> {
        self.ahead.as_ref()
    }

    /// Returns how long the wait has lasted.
    pub fn since(&self) -> Duration {
        self.since
    }
}

impl fmt::Debug for LockOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockOptions")
            .field("deadline", &self.deadline)
            .field("cancel", &self.cancel)
            .field("note", &self.note)
            .finish_non_exhaustive()
    }
}
