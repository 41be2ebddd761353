//! A counting semaphore for a whole cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::guard::guard_methods;
use crate::hold::{Hold, Queue};
use crate::options::LockOptions;
use crate::proto::{ErrorCode, Reply, Request};
use crate::protocol::attempt::Patience;
use crate::protocol::dialect::{Dialect, Role};
use crate::protocol::queue::beside_semaphore;
use crate::session::ask::{over, refused};
use crate::session::limit::Limit;
use crate::session::local::Entry;
use crate::session::transport::Failure;
use crate::session::{Session, list};

/// A semaphore that works across processes and machines: at most so many permits are out.
///
/// The layout is that of Curator's `InterProcessSemaphoreV2`, and excludes with it: a
/// mutex under `locks` that lets one in after the other, and a node under `leases` for
/// each permit. With [`Dialect::Kazoo`] it is that of kazoo's `Semaphore`: the mutex is
/// beside the path, and the permits are right below it. Only the first in line watches the
/// permits, so hundreds may wait without a herd. How many there are is written into the
/// semaphore's own node by the first client of this library or of kazoo, and the others are
/// told if they disagree.
///
/// # Example
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zklock::embedded::Server::start()?;
/// # let client = zklock::Client::connect(server.hosts())?;
/// // Three imports at a time, in the whole cluster.
/// let imports = client.semaphore("/limits/imports", 3)?;
/// let permit = imports.acquire()?;
/// drop(permit);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Semaphore {
    session: Arc<Session>,
    path: Arc<str>,
    permits: u32,
    agreed: Arc<AtomicBool>,
}

/// One of a semaphore's permits, while it lives, unless it says that it is lost.
///
/// It may change threads. There is no fencing token: several are out at a time.
///
/// # Example
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zklock::embedded::Server::start()?;
/// # let client = zklock::Client::connect(server.hosts())?;
/// # let other = zklock::Client::connect(server.hosts())?;
/// let permit = client.semaphore("/limits/imports", 1)?.acquire()?;
/// let worker = std::thread::spawn(move || permit.unlock());
/// worker.join().expect("it does not panic")?;
/// assert!(other.semaphore("/limits/imports", 1)?.try_acquire()?.is_some());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "the permit is given back when it is dropped"]
pub struct Permit {
    hold: Hold,
}

impl Semaphore {
    pub(crate) fn new(session: &Arc<Session>, path: &str, permits: u32) -> Result<Self> {
        crate::path::check(path)?;
        if permits == 0 {
            return Err(Error::Unsupported {
                what: "a semaphore without permits",
            });
        }
        Ok(Self {
            session: session.clone(),
            path: path.into(),
            permits,
            agreed: Arc::default(),
        })
    }

    /// Acquires a permit.
    ///
    /// Blocks until those who came before have theirs and one is free. A lost connection
    /// does not end the wait; it costs the place in the line if the session expires, and
    /// the first place if it lasts for half a session timeout: we queue again then, at the
    /// end.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::PermitsDisagree`] if another client counts differently, with
    /// [`Error::ForeignContender`] if the path is a lock's or a semaphore of another dialect,
    /// if somebody in the line would not wait for us or deleted our node, if the server turns
    /// a request down, and if the client is closed. Nothing is left in the line then.
    pub fn acquire(&self) -> Result<Permit> {
        loop {
            // Without a limit there is nothing to give up for.
            if let Some(permit) = self.acquire_with(LockOptions::new())? {
                return Ok(permit);
            }
        }
    }

    /// Acquires a permit if one is free.
    ///
    /// Blocks for one round trip if none is, which costs the server no write, and for some
    /// more if one is; at most for the session timeout.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire). That no permit is free is not an error.
    pub fn try_acquire(&self) -> Result<Option<Permit>> {
        let options = LockOptions::within(self.session.hub.link().timeout);
        let limit = options.limit();
        if let Some(Reply::Children { names, .. }) = self.ask(&list(&self.leases()), &limit)? {
            let contest = self.session.contest(Role::Permit, self.permits as usize);
            match contest.is_taken(&names) {
                Ok(true) => return Ok(None),
                Ok(false) => {}
                Err(foreign) => return Err(self.session.foreign(&self.leases(), foreign)),
            }
        }
        self.enter(Patience::Tries, options, &limit)
    }

    /// Acquires a permit, or returns `None` when `limit` has passed.
    ///
    /// Blocks for `limit` at most, whatever happens to the connection.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    pub fn try_acquire_for(&self, limit: Duration) -> Result<Option<Permit>> {
        self.acquire_with(LockOptions::within(limit))
    }

    /// Acquires a permit, or returns `None` at the `deadline`.
    ///
    /// Blocks until then at most, whatever happens to the connection.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    pub fn try_acquire_until(&self, deadline: Instant) -> Result<Option<Permit>> {
        self.acquire_with(LockOptions::new().deadline(deadline))
    }

    /// Acquires a permit as the `options` say.
    ///
    /// Blocks until one is ours, or until a limit of the options is reached, which gives
    /// `None`.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    pub fn acquire_with(&self, options: LockOptions<'_>) -> Result<Option<Permit>> {
        let limit = options.limit();
        self.enter(Patience::Waits, options, &limit)
    }

    /// Returns the path of the semaphore.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns how many permits there are.
    pub fn permits(&self) -> u32 {
        self.permits
    }

    fn enter(
        &self,
        patience: Patience,
        mut options: LockOptions<'_>,
        limit: &Limit,
    ) -> Result<Option<Permit>> {
        let locks = self.locks();
        let (lines, line) = (&self.session.lines, Arc::from(locks.as_str()));
        let _turn = match lines.enter(&line, false, limit, &self.session.hub) {
            Entry::Turn(turn, _) => turn,
            Entry::Closed => return Err(over(&self.session.hub.link())),
            Entry::OwnTurn => return Err(Error::WouldDeadlock { path: locks }),
            Entry::Taken => return Ok(None),
        };
        let (leases, number) = (self.leases(), self.permits.to_string());
        let line = Queue {
            dir: &locks,
            ..Queue::of(&self.path, Role::Exclusive)
        };
        // Of those in the line, nobody has a permit to be hurried for, and all would wait
        // for one who has let go of his.
        let overdue = options.overdue.take();
        options.hold_at_least = None;
        loop {
            options.overdue = None;
            let first = Hold::take(&self.session, &line, Patience::Waits, &mut options, limit)?;
            let Some(first) = first else {
                return Ok(None);
            };
            self.agree(limit)?;
            let lease = Queue {
                dir: &leases,
                role: Role::Permit,
                permits: self.permits,
                lasting: self.speaks_kazoo().then_some(number.as_bytes()),
                under: Some(&first),
                ..line
            };
            options.overdue = overdue;
            let hold = Hold::take(&self.session, &lease, patience, &mut options, limit)?;
            // Who has lost the mutex was not first when the permits were counted, and if he
            // went on to wait for one, two of them could wait for each other.
            match (first.check(), hold) {
                (Ok(()), hold) => return Ok(hold.map(|hold| Permit { hold })),
                (Err(_), _) if limit.is_over() => return Ok(None),
                (Err(_), _) => {}
            }
        }
    }

    /// Compares the number of permits with what is written down, or writes it down, and
    /// looks for those who count otherwise; until the numbers were found to agree.
    fn agree(&self, limit: &Limit) -> Result<()> {
        if self.agreed.load(Ordering::Relaxed) {
            return Ok(());
        }
        if let Some(Reply::Children { names, .. }) = self.ask(&list(&self.path), limit)?
            && let Some(foreign) = beside_semaphore(self.session.settings.dialect, &names)
        {
            return Err(self.session.foreign(&self.path, foreign));
        }
        let Some((data, version)) = self.written(limit)? else {
            return Ok(());
        };
        let text = std::str::from_utf8(&data).unwrap_or_default();
        match text.trim().parse() {
            Ok(theirs) if theirs == self.permits => {}
            Ok(theirs) => {
                return Err(Error::PermitsDisagree {
                    path: self.path.to_string(),
                    ours: self.permits,
                    theirs,
                });
            }
            // kazoo leaves alone what is no number. It writes its own just after it has made
            // the node, over ours if need be: that must be looked at again.
            Err(_) if self.speaks_kazoo() && !data.is_empty() => return Ok(()),
            Err(_) if self.speaks_kazoo() => return self.write(version, limit),
            // Curator leaves an address or nothing there.
            Err(_) => self.write(version, limit)?,
        }
        self.agreed.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Returns what is in the semaphore's own node, and its version.
    fn written(&self, limit: &Limit) -> Result<Option<(Vec<u8>, i32)>> {
        let read = Request::GetData {
            path: self.path.to_string(),
            watch: false,
        };
        let mut answer = self.ask(&read, limit)?;
        if answer.is_none() && self.speaks_kazoo() {
            // Whoever makes it says how many permits there are, and nobody else does.
            let (number, path) = (self.permits.to_string(), [self.path.to_string()]);
            let mut asker = self.session.asker();
            self.session
                .make_directories(&mut asker, &path, Some(number.as_bytes()), limit)?;
            answer = self.ask(&read, limit)?;
        }
        Ok(match answer {
            Some(Reply::Data { data, stat }) => Some((data, stat.version)),
            _ => None,
        })
    }

    /// Writes down how many permits there are.
    fn write(&self, version: i32, limit: &Limit) -> Result<()> {
        let write = Request::SetData {
            path: self.path.to_string(),
            data: self.permits.to_string().into_bytes(),
            version,
        };
        self.ask(&write, limit)?;
        Ok(())
    }

    /// Returns `None` if there is nothing there, nobody allows it, or the time is over.
    fn ask(&self, request: &Request, limit: &Limit) -> Result<Option<Reply>> {
        match self.session.asker().insist(request, limit)? {
            Ok(Ok(reply)) => Ok(Some(reply)),
            Ok(Err(Failure::Closed)) => Err(over(&self.session.hub.link())),
            Ok(Err(Failure::Refused(
                ErrorCode::NO_NODE | ErrorCode::NO_AUTH | ErrorCode::BAD_VERSION,
            )))
            | Err(_) => Ok(None),
            Ok(Err(Failure::Refused(code))) => Err(refused(&self.path, code)),
            Ok(Err(Failure::TooLong(long))) => Err(long.about(&self.path)),
            Ok(Err(Failure::Lost | Failure::NotSent)) => Ok(None),
        }
    }

    /// Where one waits for one's turn.
    fn locks(&self) -> String {
        match self.speaks_kazoo() {
            true => format!("{}-__lock__", self.path),
            false => format!("{}/locks", self.path),
        }
    }

    /// Where the permits are that are out.
    fn leases(&self) -> String {
        match self.speaks_kazoo() {
            true => self.path.to_string(),
            false => format!("{}/leases", self.path),
        }
    }

    fn speaks_kazoo(&self) -> bool {
        self.session.settings.dialect == Dialect::Kazoo
    }
}

guard_methods!(Permit);

impl Permit {
    /// Returns the full path of the node that stands for the permit.
    pub fn node(&self) -> &str {
        self.hold.node()
    }

    /// Gives the permit back and waits until the server has confirmed it.
    ///
    /// Blocks as [`MutexGuard::unlock`](crate::MutexGuard::unlock).
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Lost`] if the permit was lost before.
    pub fn unlock(self) -> Result<()> {
        self.hold.release()
    }
}
