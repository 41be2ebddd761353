//! The database as the rest of a client sees it: work to be done there, and rows to be
//! renewed or deleted.
//!
//! It owns the worker threads and the channel to the renewal thread, and it lives as long as
//! any guard does. The line of threads that want a lock is in `shared_client`.

use std::panic::RefUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::mysql::Conn;
use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::Mutex as Lock;

use crate::error::{Error, Result};
use crate::local::owning_process::Process;
use crate::mysql::connection::DatabaseConnection;
use crate::mysql::deletion::{Backlog, Deletion};
use crate::mysql::renewal::{self, Command};
use crate::mysql::schema::{self, Schema};
use crate::mysql::source::{Purpose, Source};
use crate::mysql::statement_error::StatementError;
use crate::mysql::worker::WorkerPool;

/// How many connections a client uses at most, apart from the one that renews leases.
const WORKERS: usize = 4;

/// The pause between tries to connect.
const CONNECT_PAUSE: Duration = Duration::from_millis(200);

/// The durations that a client is configured with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timings {
    pub(super) lease: Duration,
    pub(super) connect_timeout: Duration,
    /// The first and the longest pause between two looks at a lock that is taken.
    pub(super) poll: (Duration, Duration),
    pub(super) clean_every: Duration,
}

/// See the module's documentation. No thread owns it, so the threads end with it.
#[derive(Debug)]
pub(super) struct Database {
    pub(super) timings: Timings,
    /// The server's address; `None` if connections come from a pool, which may have too few.
    server: Option<String>,
    workers: Arc<WorkerPool>,
    pub(super) backlog: Arc<Backlog>,
    commands: Sender<Command>,
    /// Dropped when the client is closed.
    open: Lock<Option<Sender<()>>>,
    /// Disconnected when the client is closed.
    pub(super) closed: Receiver<()>,
    /// A forked child has none of the threads, and the locks are the parent's.
    process: Process,
}

impl RefUnwindSafe for Database {}

impl Database {
    pub(super) fn start(source: Source, timings: Timings) -> Result<Self> {
        let source = Arc::new(source);
        let lease = timings.lease;
        let limit = answer_limit(lease);
        let server = match &*source {
            Source::Server(opts) => {
                let (host, port) = (opts.get_ip_or_hostname(), opts.get_tcp_port());
                Some(format!("{host}:{port}"))
            }
            Source::Pool(_) => None,
        };
        let workers = WorkerPool::new(
            "zklock-mysql",
            source.clone(),
            Purpose::Rest,
            limit,
            WORKERS,
        );
        let workers = Arc::new(workers);
        let limit = limit.min(lease / 4);
        let renewer = WorkerPool::new("zklock-mysql-sql", source, Purpose::Renewals, limit, 1);
        let commands = renewal::start(lease, timings.clean_every, workers.clone(), renewer)
            .map_err(|error| Error::Database {
                what: "start a thread",
                message: error.to_string(),
            })?;
        let (open, closed) = bounded(0);
        Ok(Self {
            timings,
            server,
            workers,
            backlog: Arc::default(),
            commands,
            open: Lock::new(Some(open)),
            closed,
            process: Process::this(),
        })
    }

    /// Returns whether this is the copy of a client in a forked child.
    ///
    /// A thread that does not exist in the child may have locked something in here, so all of it is
    /// left alone, and never dropped.
    pub(super) fn is_inherited(self: &Arc<Self>) -> bool {
        let inherited = self.process.is_another();
        if inherited {
            std::mem::forget(self.clone());
        }
        inherited
    }

    pub(super) fn lease(&self) -> Duration {
        self.timings.lease
    }

    /// Returns how long a call without a deadline waits for an answer.
    pub(super) fn answer_limit(&self) -> Duration {
        answer_limit(self.timings.lease)
    }

    /// Hands a command to the renewal thread.
    pub(super) fn command(&self, command: Command) {
        // The thread lives as long as the sender.
        let _ = self.commands.send(command);
    }

    /// Deletes a row in the background.
    pub(super) fn delete(&self, deletion: Deletion) {
        let commands = self.commands.clone();
        self.workers.submit(move |connection| {
            if let Some(retry) = deletion.run(connection) {
                let _ = commands.send(Command::DeleteLater(retry));
            }
        });
    }

    /// Makes a worker run the job.
    pub(super) fn submit(&self, job: impl FnOnce(&mut DatabaseConnection) + Send + 'static) {
        self.workers.submit(job);
    }

    /// Like [`submit`](Self::submit), for one look of a wait, which runs when nothing else is to be done.
    pub(super) fn submit_later(&self, job: impl FnOnce(&mut DatabaseConnection) + Send + 'static) {
        self.workers.submit_later(job);
    }

    /// Runs work on a worker, and waits for its result until the deadline.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        deadline: Instant,
        what: &'static str,
        work: impl FnOnce(&mut DatabaseConnection) -> std::result::Result<T, StatementError>
        + Send
        + 'static,
    ) -> Result<T> {
        if self.process.is_another() {
            return Err(Error::Closed);
        }
        let (to, answer) = bounded(1);
        self.submit(move |connection| {
            let done = work(connection);
            connection.job = None;
            let _ = to.send(done);
        });
        answer
            .recv_deadline(deadline)
            .unwrap_or_else(|_| Err(StatementError::no_answer()))
            .map_err(|error| error.into_error(what))
    }

    /// Opens the first connection and inspects the tables.
    pub(super) fn connect(&self) -> Result<()> {
        let deadline = Instant::now() + self.timings.connect_timeout;
        let found = self.ask(deadline, "connect to the database", move |connection| {
            run_until(deadline, connection, schema::inspect)
        });
        let found = found.map_err(|error| self.locate(error))?;
        match found {
            Schema::Missing => {}
            found => found.usable()?,
        }
        match self.server {
            None => self.reserve(deadline),
            Some(_) => Ok(()),
        }
    }

    /// Creates the tables that do not exist, and inspects all.
    pub(super) fn create_tables(&self) -> Result<()> {
        let deadline = Instant::now() + self.timings.connect_timeout;
        let found = self.ask(deadline, "create the tables", move |connection| {
            run_until(deadline, connection, schema::create)
        });
        found.and_then(Schema::usable)
    }

    /// Adds the server that does not answer to an error.
    fn locate(&self, error: Error) -> Error {
        match (error, &self.server) {
            (Error::Database { what, message }, Some(server))
                if message.starts_with("no answer") =>
            {
                Error::Database {
                    what,
                    message: format!(
                        "{server} does not answer in time; check host and port, and that a database listens there"
                    ),
                }
            }
            (error, _) => error,
        }
    }

    /// Takes the connection that renewals need, before others take all of the pool's.
    fn reserve(&self, deadline: Instant) -> Result<()> {
        let (to, done) = bounded(1);
        self.command(Command::Connect(Box::new(move |connection| {
            let _ = to.send(run_until(deadline, connection, |_| Ok(())));
        })));
        let done = done.recv_deadline(deadline);
        let done = done.unwrap_or_else(|_| Err(StatementError::no_answer()));
        done.map_err(|error| Error::Database {
            what: "connect to the database",
            message: format!("{error}; locks need two connections of the pool, one for renewals"),
        })
    }

    pub(super) fn is_closed(&self) -> bool {
        self.open.lock().is_none()
    }

    /// Marks all locks as lost, and disconnects [`closed`](Self::closed).
    pub(super) fn close(&self) {
        self.open.lock().take();
        self.command(Command::Close);
    }
}

/// Runs statements; while there is no connection, tries again until the deadline.
fn run_until<T>(
    deadline: Instant,
    connection: &mut DatabaseConnection,
    work: impl Fn(&mut Conn) -> ::mysql::Result<T>,
) -> std::result::Result<T, StatementError> {
    loop {
        match connection.run(&work) {
            Err(error)
                if error.class.is_transient() && Instant::now() + CONNECT_PAUSE < deadline =>
            {
                std::thread::sleep(CONNECT_PAUSE);
            }
            other => return other,
        }
    }
}

/// Returns a limit longer than the one second for which a statement waits for a locked row.
fn answer_limit(lease: Duration) -> Duration {
    (lease / 4).clamp(Duration::from_secs(2), Duration::from_secs(5))
}
