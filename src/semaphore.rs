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
use crate::session::limit::{GaveUp, Limit};
use crate::session::local::Entry;
use crate::session::transport::Failure;
use crate::session::{Session, list};

/// A semaphore that works across processes and machines: at most so many permits are out.
///
/// The layout is that of Curator's `InterProcessSemaphoreV2`, and excludes with it: a
/// mutex under `locks` that lets one in after the other, and a node under `leases` for
/// each permit. Only the first in line watches the leases, so hundreds may wait without a
/// herd. How many permits there are is written into the semaphore's own node by the first
/// client of this library, and the others are told if they disagree.
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
        if session.settings.dialect == Dialect::Kazoo {
            return Err(Error::Unsupported {
                what: "a semaphore in kazoo's dialect",
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
    /// does not end the wait, and does not cost the place in the line as long as the
    /// session lives; when it expires we queue again, at the end.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::PermitsDisagree`] if another client counts differently, with
    /// [`Error::ForeignContender`] if the path is a lock's or kazoo's semaphore, if
    /// somebody in the line would not wait for us or deleted our node, if the server turns
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
        let leases = list(&self.leases());
        match self.ask(&leases, &limit)? {
            Ok(Some(Reply::Children { names, .. })) if self.permits as usize <= names.len() => {
                Ok(None)
            }
            _ => self.enter(Patience::Tries, options, &limit),
        }
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
            Entry::OwnTurn | Entry::Taken => return Ok(None),
        };
        let leases = self.leases();
        let line = Queue {
            dir: &locks,
            ..Queue::of(&self.path, Role::Exclusive)
        };
        let lease = Queue {
            dir: &leases,
            role: Role::Permit,
            permits: self.permits,
            ..line
        };
        loop {
            let first = Hold::take(&self.session, &line, Patience::Waits, &mut options, limit)?;
            let Some(first) = first else {
                return Ok(None);
            };
            let Ok(()) = self.agree(limit)? else {
                return Ok(None);
            };
            let Some(hold) = Hold::take(&self.session, &lease, patience, &mut options, limit)?
            else {
                return Ok(None);
            };
            // Who has lost the mutex was not first when the permits were counted.
            if first.check().is_ok() {
                return Ok(Some(Permit { hold }));
            }
        }
    }

    /// Compares the number of permits with what is written down, or writes it down, and
    /// looks for those who count otherwise; once for each semaphore of a client.
    fn agree(&self, limit: &Limit) -> Result<std::result::Result<(), GaveUp>> {
        if self.agreed.load(Ordering::Relaxed) {
            return Ok(Ok(()));
        }
        let Ok(listed) = self.ask(&list(&self.path), limit)? else {
            return Ok(Err(GaveUp));
        };
        if let Some(Reply::Children { names, .. }) = listed
            && let Some(foreign) = beside_semaphore(&names)
        {
            return Err(self.session.foreign(&self.path, foreign));
        }
        let read = Request::GetData {
            path: self.path.to_string(),
            watch: false,
        };
        let (data, stat) = match self.ask(&read, limit)? {
            Ok(Some(Reply::Data { data, stat })) => (data, stat),
            Ok(_) => return Ok(Ok(())),
            Err(GaveUp) => return Ok(Err(GaveUp)),
        };
        let theirs = std::str::from_utf8(&data)
            .ok()
            .and_then(|text| text.trim().parse().ok());
        match theirs {
            Some(theirs) if theirs == self.permits => {}
            Some(theirs) => {
                return Err(Error::PermitsDisagree {
                    path: self.path.to_string(),
                    ours: self.permits,
                    theirs,
                });
            }
            // Curator leaves an address or nothing there.
            None => {
                let write = Request::SetData {
                    path: self.path.to_string(),
                    data: self.permits.to_string().into_bytes(),
                    version: stat.version,
                };
                if self.ask(&write, limit)?.is_err() {
                    return Ok(Err(GaveUp));
                }
            }
        }
        self.agreed.store(true, Ordering::Relaxed);
        Ok(Ok(()))
    }

    /// Returns `None` if there is nothing there or nobody allows it.
    fn ask(
        &self,
        request: &Request,
        limit: &Limit,
    ) -> Result<std::result::Result<Option<Reply>, GaveUp>> {
        match self.session.asker().insist(request, limit)? {
            Err(GaveUp) => Ok(Err(GaveUp)),
            Ok(Ok(reply)) => Ok(Ok(Some(reply))),
            Ok(Err(Failure::Closed)) => Err(over(&self.session.hub.link())),
            Ok(Err(Failure::Refused(
                ErrorCode::NO_NODE | ErrorCode::NO_AUTH | ErrorCode::BAD_VERSION,
            ))) => Ok(Ok(None)),
            Ok(Err(Failure::Refused(code))) => Err(refused(&self.path, code)),
            Ok(Err(Failure::Lost | Failure::NotSent)) => Ok(Ok(None)),
        }
    }

    fn locks(&self) -> String {
        format!("{}/locks", self.path)
    }

    fn leases(&self) -> String {
        format!("{}/leases", self.path)
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
