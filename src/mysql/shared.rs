//! What the clones of a client, its mutexes, guards and jobs have in common.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::Mutex as Lock;

use crate::error::{Error, Result};
use crate::mysql::acquire::error;
use crate::mysql::connection::{Kind, Link, Source, Trouble};
use crate::mysql::local::Local;
use crate::mysql::release::{Backlog, Next, Release};
use crate::mysql::renewal::{self, Command};
use crate::mysql::schema::{self, Schema};
use crate::mysql::worker::Workers;

/// How many connections a client uses at most, apart from the one that renews leases.
const WORKERS: usize = 4;

/// How long the last client of a process waits for rows that are on their way out.
const FAREWELL: Duration = Duration::from_secs(2);

/// The pause between tries to connect.
const PAUSE: Duration = Duration::from_millis(200);

/// The settings of a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) lease: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) poll: (Duration, Duration),
    pub(super) clean_every: Duration,
}

/// What clients and mutexes have in common; the last one waits for rows on their way out.
pub(super) struct Handle {
    pub(super) shared: Arc<Shared>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.backlog.wait(FAREWELL);
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.shared, f)
    }
}

/// What clients, mutexes, guards and jobs have in common. The threads do not own it.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) settings: Settings,
    workers: Arc<Workers>,
    local: Arc<Local>,
    backlog: Arc<Backlog>,
    commands: Sender<Command>,
    /// Dropped when the client is closed.
    open: Lock<Option<Sender<()>>>,
    closed: Receiver<()>,
}

impl Shared {
    pub(super) fn start(source: Source, settings: Settings) -> Result<Self> {
        let source = Arc::new(source);
        let lease = settings.lease;
        let workers = Arc::new(Workers::new(
            "zklock-mysql",
            source.clone(),
            answer_limit(lease),
            WORKERS,
        ));
        let limit = (lease / 4).min(answer_limit(lease));
        let lane = Workers::new("zklock-mysql-lane", source, limit, 1);
        let commands = renewal::start(lease, settings.clean_every, workers.clone(), lane).map_err(
            |error| Error::Database {
                what: "start a thread",
                message: error.to_string(),
            },
        )?;
        let (open, closed) = bounded(0);
        Ok(Self {
            settings,
            workers,
            local: Arc::default(),
            backlog: Arc::default(),
            commands,
            open: Lock::new(Some(open)),
            closed,
        })
    }

    pub(super) fn lease(&self) -> Duration {
        self.settings.lease
    }

    pub(super) fn poll(&self) -> (Duration, Duration) {
        self.settings.poll
    }

    /// How long an answer may take for a call that names no time.
    pub(super) fn answer_limit(&self) -> Duration {
        answer_limit(self.settings.lease)
    }

    pub(super) fn local(&self) -> &Arc<Local> {
        &self.local
    }

    pub(super) fn workers(&self) -> &Workers {
        &self.workers
    }

    pub(super) fn backlog(&self) -> Arc<Backlog> {
        self.backlog.clone()
    }

    /// A channel that ends when the client is closed.
    pub(super) fn closed(&self) -> &Receiver<()> {
        &self.closed
    }

    pub(super) fn tell(&self, command: Command) {
        // The thread lives as long as we do.
        let _ = self.commands.send(command);
    }

    /// Has a row deleted in the background.
    pub(super) fn release(&self, release: Release) {
        let commands = self.commands.clone();
        self.workers.submit(move |link| {
            if let Next::Again(release, pause) = release.run(link) {
                let _ = commands.send(Command::Later(release, pause));
            }
        });
    }

    /// Runs work on a worker, and waits for it until the deadline.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        deadline: Instant,
        what: &'static str,
        work: impl FnOnce(&mut Link) -> std::result::Result<T, Trouble> + Send + 'static,
    ) -> Result<T> {
        let (to, answer) = bounded(1);
        self.workers.submit(move |link| {
            let _ = to.send(work(link));
        });
        let answer = answer.recv_deadline(deadline).unwrap_or_else(|_| {
            let said = "no answer from the database in time".to_owned();
            Err(Trouble::new(Kind::Unreachable, said))
        });
        answer.map_err(|trouble| error(what, trouble))
    }

    /// Makes the first connection, and looks at the tables.
    pub(super) fn greet(&self) -> Result<()> {
        let deadline = Instant::now() + self.settings.connect_timeout;
        let found = self.ask(deadline, "connect to the database", move |link| {
            loop {
                match link.run(schema::inspect) {
                    Err(trouble) if trouble.kind.passes() && Instant::now() + PAUSE < deadline => {
                        std::thread::sleep(PAUSE);
                    }
                    other => return other,
                }
            }
        })?;
        match found {
            Schema::Missing => Ok(()),
            found => good(found),
        }
    }

    pub(super) fn close(&self) {
        self.open.lock().take();
        self.local.close();
        self.tell(Command::Close);
    }
}

pub(super) fn good(schema: Schema) -> Result<()> {
    let message = match schema {
        Schema::Good => return Ok(()),
        Schema::Missing => "there is no table database_lock: run CREATE_TABLE",
        Schema::Wrong(message) => message,
    };
    Err(Error::Database {
        what: "use the table",
        message: message.to_owned(),
    })
}

/// Longer than the second that a statement waits for a locked row.
fn answer_limit(lease: Duration) -> Duration {
    (lease / 4).clamp(Duration::from_secs(2), Duration::from_secs(5))
}
