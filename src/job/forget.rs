//! Forgets the runs of a job, and gives the job a record where its own was replaced.

use super::Job;
use super::record::RunRecord;
use super::unused_lock::{PAUSE, STAKED};
use crate::error::{Error, Result};
use crate::session::Session;
use crate::session::call_error::CallError;
use crate::session::queries::Seen;
use crate::time::limit::Limit;
use zklock_core::journal::{Journal, MOST_OPEN};
use zklock_core::mending::{Standing, standing};
use zklock_core::places::OF_A_SEMAPHORE;
use zklock_jute::{Access, CreateMode, ErrorCode, Request};

impl Job {
    /// Forgets all runs, so that the next one begins anew. Returns the last run, or `None` if there
    /// was none.
    ///
    /// Deletes the path's node while no client runs the job or waits for it. What another client
    /// writes there meanwhile is read before it is deleted. Blocks for two round trips, or for two
    /// more each time that another client writes, at most 15 s each, also when the connection is
    /// lost.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Refused`] while a client runs the job or waits for it, or other nodes are
    /// below its path, with [`Error::Unmarked`] if the path's node is not a job's, and with
    /// [`Error::Unconfirmed`] if the answer was lost. Otherwise as [`last`](Self::last).
    ///
    /// # Example
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zklock::embedded::Server::start()?;
    /// # let client = zklock::Client::connect(server.hosts())?;
    /// let job = client.job("/jobs/nightly-report")?;
    /// // A machine whose clock was wrong: no later night would be run.
    /// job.once("2062-11-22", |_run| Ok::<_, std::io::Error>(()))?;
    /// let last = job.forget()?.expect("a run");
    /// assert_eq!(last.slot(), "2062-11-22");
    /// assert_eq!(job.last()?, None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn forget(&self) -> Result<Option<RunRecord>> {
        loop {
            let Some((journal, version)) = self.record()? else {
                return Ok(None);
            };
            let Some(last) = journal.done.or(journal.failed).or(journal.running) else {
                return Ok(None);
            };
            let path = self.path.to_string();
            if self.write(&Request::Delete { path, version })? {
                return Ok(Some(RunRecord::new(last)));
            }
        }
    }

    /// Forgets that this slot is done, and its attempts, so that it is run again, even if a higher
    /// one is done. Returns whether anything was known of the slot.
    ///
    /// Writes the record unless a client runs the job. Blocks for three round trips, or for as many
    /// more each time that another client writes, at most 15 s each, also when the connection is
    /// lost.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Refused`] while a client runs the job, and with [`Error::BadArgument`]
    /// if `slot` is not a slot, or if 32 slots below the highest are already to be run again.
    /// Otherwise as [`forget`](Self::forget).
    ///
    /// # Example
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zklock::embedded::Server::start()?;
    /// # let client = zklock::Client::connect(server.hosts())?;
    /// use zklock::Once;
    ///
    /// let job = client.job("/jobs/nightly-report")?;
    /// for slot in ["2026-11-21", "2026-11-22"] {
    ///     let _ = job.once(slot, |_run| Ok::<_, std::io::Error>(()))?;
    /// }
    /// assert!(job.forget_slot("2026-11-21")?);
    /// let again = job.once("2026-11-21", |_run| Ok::<_, std::io::Error>(()))?;
    /// assert!(matches!(again, Once::Done(())));
    /// # Ok(())
    /// # }
    /// ```
    pub fn forget_slot(&self, slot: &str) -> Result<bool> {
        super::check_slot(slot)?;
        loop {
            let Some((mut journal, version)) = self.record()? else {
                return Ok(false);
            };
            let running = journal.running.as_ref();
            if running.map(|run| self.is_held(run)).transpose()? == Some(true) {
                return Err(self.in_use("somebody runs the job: try again when nobody does"));
            }
            // Each write of a run changes the version, and no write of a run whose lock is gone succeeds.
            journal.bury();
            match journal.forget(slot) {
                Some(true) => {}
                Some(false) => return Ok(false),
                None => return Err(too_many_open()),
            }
            let write = Request::set(&*self.path, journal.text(), version);
            if self.write(&write)? {
                return Ok(true);
            }
        }
    }

    /// Gives the job an empty record where its own was replaced. Returns the data that replaced it,
    /// or `None` if there was nothing to mend.
    ///
    /// Use this for a job whose calls fail with [`Error::Unmarked`] although its path is right: a
    /// client of an older version used the path as a semaphore, or somebody wrote there by hand.
    /// The node is replaced in one transaction, which deletes what was read and nothing else. The
    /// new node has the access control list of this client, and knows of no run. Blocks for five
    /// round trips, or for five more each time that another client writes, about 15 s in all, also
    /// when the connection is lost.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Refused`] while a client uses the path, and with [`Error::Unmarked`] if
    /// the data is another program's, such as a mark of abandonment or any other text, or if the
    /// node is a contender's. Fails with [`Error::Unsupported`] on a handle of the `zookeeper`
    /// crate. Otherwise as [`last`](Self::last).
    ///
    /// # Example
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zklock::embedded::Server::start()?;
    /// # let client = zklock::Client::connect(server.hosts())?;
    /// let job = client.job("/jobs/nightly-report")?;
    /// job.once("2026-11-22", |_run| Ok::<_, std::io::Error>(()))?;
    /// client.nodes().set("/jobs/nightly-report", b"2")?;
    /// assert!(job.last().is_err());
    /// assert_eq!(job.repair()?.as_deref(), Some(&b"2"[..]));
    /// assert_eq!(job.last()?, None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn repair(&self) -> Result<Option<Vec<u8>>> {
        self.locks.session.needs_transactions("a job")?;
        let (mut caller, mut mended) = (self.locks.session.caller(), None);
        let limit = Session::query_limit();
        loop {
            let Some(Seen { data, stat }) = self.newest()? else {
                return Ok(mended);
            };
            match standing(&data) {
                Standing::Whole => return Ok(mended),
                Standing::Kept => return Err(self.unmarked()),
                Standing::Torn | Standing::Unclaimed if stat.has_session() => {
                    return Err(self.unmarked());
                }
                Standing::Torn | Standing::Unclaimed => {}
            }
            let acl = self.locks.session.acl();
            let what = (stat, acl, self.unused_directories()?);
            match self.replace_under_a_stake(&mut caller, what, &limit) {
                Ok(true) => return Ok(Some(data)),
                // The next look tells; another client may have done the same.
                Ok(false) => mended = Some(data),
                Err(CallError::Refused(STAKED)) if caller.pause(PAUSE, &limit).is_ok() => {}
                refused => drop(self.written(refused.map(Some), &limit)?),
            }
        }
    }

    /// Returns the part of a transaction that creates the node anew, if there are no nodes below
    /// it. A node that a lock created may be a container, which would not keep the record.
    pub(super) fn replacement(&self, version: i32, acl: Vec<Access>) -> [Request; 2] {
        let delete = Request::Delete {
            path: self.path.to_string(),
            version,
        };
        let create = Request::create(
            &*self.path,
            Journal::EMPTY.to_vec(),
            acl,
            CreateMode::Persistent,
        );
        [delete, create]
    }

    /// Returns the deletions of the directories that an unused semaphore leaves below its path.
    pub(super) fn unused_directories(&self) -> Result<Vec<Request>> {
        let dirs = OF_A_SEMAPHORE.map(|name| format!("{}/{name}", self.path));
        let session = &self.locks.session;
        let seen = session
            .describe_within(&dirs, Session::query_limit)
            .map_err(|error| error.into_error(&self.path, || session.unanswered()))?;
        let unused = |(path, seen): (String, Option<Seen>)| {
            let Seen { data, stat } = seen?;
            let version = stat.version;
            let is_unused = standing(&data) == Standing::Unclaimed && stat.num_children == 0;
            is_unused.then_some(Request::Delete { path, version })
        };
        Ok(dirs.into_iter().zip(seen).filter_map(unused).collect())
    }

    /// Returns the path's node as the leader has it.
    fn newest(&self) -> Result<Option<Seen>> {
        let session = &self.locks.session;
        let read = session.read_latest(Request::get(&self.path), &self.path)?;
        Ok(read.and_then(Seen::of))
    }

    /// Returns the record as the leader has it, and its version.
    pub(super) fn record(&self) -> Result<Option<(Journal, i32)>> {
        let Some(Seen { data, stat }) = self.newest()? else {
            return Ok(None);
        };
        let journal = Journal::parse(&data, stat.mtime).ok_or_else(|| self.unmarked())?;
        Ok(Some((journal, stat.version)))
    }

    /// Sends a write; returns `false` if another client has changed what was seen.
    fn write(&self, request: &Request) -> Result<bool> {
        let (mut caller, limit) = (self.locks.session.caller(), Session::query_limit());
        self.written(caller.call_once(request, &self.path, &limit), &limit)
    }

    fn written<T>(&self, answered: Result<Option<T>, CallError>, limit: &Limit) -> Result<bool> {
        match answered {
            Ok(Some(_)) => Ok(true),
            Ok(None) => Err(Session::unconfirmed(limit)),
            Err(CallError::Refused(ErrorCode::BAD_VERSION | ErrorCode::NO_NODE)) => Ok(false),
            Err(CallError::Refused(ErrorCode::NOT_EMPTY | STAKED)) => {
                Err(self.in_use("somebody uses the path, or there are nodes below it"))
            }
            Err(error) => Err(error.into_error(&self.path, || self.locks.session.unanswered())),
        }
    }

    fn in_use(&self, text: &'static str) -> Error {
        Error::Refused {
            path: self.path.to_string(),
            code: ErrorCode::NOT_EMPTY.0,
            text,
        }
    }
}

fn too_many_open() -> Error {
    Error::BadArgument {
        name: "slot",
        rule: format!(
            "{MOST_OPEN} slots below the highest one are to be run again already: run them first"
        )
        .into(),
    }
}
