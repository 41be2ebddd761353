//! The single thread of a client that renews its leases.
//!
//! It also tells guards when they become Suspect or Lost, repeats deletions that failed, and from
//! time to time deletes rows whose lease ended long ago. It never waits for the database itself,
//! because then it could not tell a guard that the database is silent.

use std::io;
use std::mem;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, never, select, unbounded};
use log::{debug, warn};

use crate::error::LostReason;
use crate::mysql::connection::DatabaseConnection;
use crate::mysql::deletion::{Deletion, Retry};
use crate::mysql::lease::RowLease;
use crate::mysql::lock_table;
use crate::mysql::renew::{Progress, renew_all};
use crate::mysql::statement_error::{ErrorClass, StatementError};
use crate::mysql::worker::WorkerPool;
use crate::system::clock::since_boot;
use crate::system::contained;

/// How many threads may hang in dead connections before no more are started.
const MOST_ABANDONED: u32 = 8;

/// A request of the rest of the client to the thread.
pub(super) enum Command {
    /// Run this closure on the connection for renewals, which opens that connection.
    Connect(Box<dyn FnOnce(&mut DatabaseConnection) + Send>),
    /// A lock was acquired: renew its lease.
    Renew(Arc<RowLease>),
    /// A deletion failed: repeat it after the pause.
    DeleteLater(Retry),
    /// The client is closed: all locks are lost.
    Close,
}

/// The state of the thread.
#[derive(Debug)]
struct Renewal {
    lease: Duration,
    clean_every: Duration,
    commands: Receiver<Command>,
    workers: Arc<WorkerPool>,
    /// A worker for renewals alone, so that they never wait for other statements.
    renewer: WorkerPool,
    /// How many renewers hang in a dead connection.
    abandoned: u32,
    leases: Vec<Arc<RowLease>>,
    /// Whether the client is closed, and renews no more leases.
    closed: bool,
    deletions: Vec<(Duration, Deletion)>,
    /// The number of deletions in progress.
    deleting: usize,
    /// The number of the renewal in progress, and its progress.
    renewing: Option<(u64, Arc<Progress>)>,
    renewals: u64,
    /// How long each lease took in the last renewal.
    each: Duration,
    /// Whether the last renewals failed, and the failure was logged.
    failing: bool,
    renew_at: Duration,
    clean_at: Duration,
    to_self: Sender<Done>,
    done: Receiver<Done>,
}

/// What a job reports to the thread.
#[derive(Debug)]
enum Done {
    Renewed(u64, Result<(), StatementError>),
    Deleted(Option<Box<Retry>>),
}

/// Reports what a job has done. If the job panicked or never ran, reports the initial value.
struct Report {
    done: Option<Done>,
    to: Sender<Done>,
}

impl Report {
    fn tell(mut self, done: Done) {
        self.done = Some(done);
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        if let Some(done) = self.done.take() {
            let _ = self.to.send(done);
        }
    }
}

/// Starts the thread. It ends when every sender of commands is gone and all work is done.
pub(super) fn start(
    lease: Duration,
    clean_every: Duration,
    workers: Arc<WorkerPool>,
    renewer: WorkerPool,
) -> io::Result<Sender<Command>> {
    let (to, commands) = unbounded();
    let renewal = Renewal::new(lease, clean_every, commands, (workers, renewer));
    thread::Builder::new()
        .name("zklock-mysql-renew".to_owned())
        .spawn(move || renewal.run())?;
    Ok(to)
}

impl Renewal {
    fn new(
        lease: Duration,
        clean_every: Duration,
        commands: Receiver<Command>,
        (workers, renewer): (Arc<WorkerPool>, WorkerPool),
    ) -> Self {
        let (now, (to_self, done)) = (since_boot(), unbounded());
        Self {
            lease,
            clean_every,
            commands,
            workers,
            renewer,
            abandoned: 0,
            leases: Vec::new(),
            closed: false,
            deletions: Vec::new(),
            deleting: 0,
            renewing: None,
            renewals: 0,
            each: Duration::ZERO,
            failing: false,
            renew_at: now,
            // Random, so that clients that start together do not clean together, and that among
            // many short-lived clients some clean.
            clean_at: now.saturating_add(clean_every.mul_f64(fastrand::f64())),
            to_self,
            done,
        }
    }

    fn run(mut self) {
        let mut open = true;
        while open || self.deleting > 0 || !self.deletions.is_empty() {
            let now = since_boot();
            self.tell_guards(now);
            self.give_up_if_hung(now);
            self.renew(now);
            self.delete(now);
            self.clean(now, open);
            let pause = self.until_next(since_boot());
            let none = never();
            let commands = if open { &self.commands } else { &none };
            select! {
                recv(commands) -> command => match command {
                    Ok(command) => self.command(command),
                    Err(_) => open = false,
                },
                recv(self.done) -> done => if let Ok(done) = done {
                    self.done(done);
                },
                default(pause) => {}
            }
        }
    }

    fn tell_guards(&mut self, now: Duration) {
        self.leases.retain(|lease| {
            lease.state(now);
            !lease.is_over()
        });
    }

    fn renew(&mut self, now: Duration) {
        if self.renewing.is_some() || now < self.renew_at {
            return;
        }
        // Leases that are due soon are renewed too, so that in the end all are renewed together.
        let soon = now + self.lease / 12;
        let due = self.leases.iter().filter(|lease| lease.due() <= soon);
        let mut due: Vec<_> = due.cloned().collect();
        if due.is_empty() {
            return;
        }
        // The last renewal may have taken longer than the time after which a lease is due.
        due.sort_by_key(|lease| lease.due());
        self.renewals += 1;
        let progress = Arc::new(Progress::new(due.len(), self.each, self.lease));
        self.renewing = Some((self.renewals, progress.clone()));
        let (number, lease) = (self.renewals, self.lease);
        let report = self.report(Done::Renewed(number, Err(StatementError::no_answer())));
        let workers = self.workers.clone();
        self.renewer.submit(move |connection| {
            let renewed = renew_all(connection, &due, lease, &progress);
            match renewed {
                // The server may have no place for one more connection, but a worker may have one.
                Err(error) if error.class == ErrorClass::Unreachable && workers.can_help() => {
                    workers.submit(move |connection| {
                        let renewed = renew_all(connection, &due, lease, &progress);
                        report.tell(Done::Renewed(number, renewed));
                    });
                }
                renewed => report.tell(Done::Renewed(number, renewed)),
            }
        });
    }

    /// Abandons a renewer that hangs in its connection, and continues with a new one.
    fn give_up_if_hung(&mut self, now: Duration) {
        let hangs = self.hangs_at().is_some_and(|at| at <= now);
        if hangs {
            contained(|| debug!("a renewal hangs: its connection is given up"));
            self.abandoned += 1;
            self.renewer = self.renewer.replacement();
            if let Some((_, progress)) = self.renewing.take() {
                self.each = progress.each();
            }
        }
    }

    /// Returns when the renewal in progress is given up, if that is allowed.
    fn hangs_at(&self) -> Option<Duration> {
        let (_, progress) = self.renewing.as_ref()?;
        (self.abandoned < MOST_ABANDONED).then(|| progress.last() + self.lease / 3)
    }

    fn delete(&mut self, now: Duration) {
        let all = mem::take(&mut self.deletions).into_iter();
        let (due, later): (Vec<_>, _) = all.partition(|(at, _)| *at <= now);
        self.deletions = later;
        for (_, deletion) in due {
            self.deleting += 1;
            let report = self.report(Done::Deleted(None));
            self.workers.submit(move |connection| {
                let retry = deletion.run(connection).map(Box::new);
                report.tell(Done::Deleted(retry));
            });
        }
    }

    fn report(&self, done: Done) -> Report {
        Report {
            done: Some(done),
            to: self.to_self.clone(),
        }
    }

    fn delete_later(&mut self, retry: Retry) {
        let at = since_boot() + retry.pause;
        self.deletions.push((at, retry.deletion));
    }

    fn clean(&mut self, now: Duration, open: bool) {
        if now < self.clean_at {
            return;
        }
        // A moment in the past would make the thread spin until the last deletion.
        self.clean_at = now.saturating_add(self.clean_every);
        if !open {
            return;
        }
        // A waiter takes over an expired row at once, so this is for names without waiters.
        let ago = self.lease;
        self.workers.submit(move |connection| {
            match connection.run(|conn| lock_table::clean(conn, ago)) {
                Ok(0) => {}
                Ok(rows) => {
                    contained(|| debug!("deleted {rows} rows whose lease ended long ago"));
                }
                Err(error) => {
                    contained(|| debug!("cannot delete rows whose lease ended long ago: {error}"));
                }
            }
        });
    }

    /// Returns how long nothing is due.
    fn until_next(&self, now: Duration) -> Duration {
        let changes = self.leases.iter().filter_map(|lease| lease.steady_for(now));
        let due = self.leases.iter().map(|lease| lease.due()).min();
        let renewal = match &self.renewing {
            Some(_) => self.hangs_at(),
            None => due.map(|due| due.max(self.renew_at)),
        };
        let deletions = self.deletions.iter().map(|(at, _)| *at);
        let moments = deletions.chain(renewal).chain([self.clean_at]);
        let waits = moments.map(|at| at.saturating_sub(now));
        waits.chain(changes).min().unwrap_or_default()
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Connect(job) => self.renewer.submit(job),
            // The lock was acquired while another thread closed the client.
            Command::Renew(lease) if self.closed => lease.lose(LostReason::Closed),
            Command::Renew(lease) => self.leases.push(lease),
            Command::DeleteLater(retry) => self.delete_later(retry),
            Command::Close => {
                self.closed = true;
                for lease in self.leases.drain(..) {
                    lease.lose(LostReason::Closed);
                }
            }
        }
    }

    fn done(&mut self, done: Done) {
        match done {
            Done::Deleted(retry) => {
                self.deleting -= 1;
                if let Some(retry) = retry {
                    self.delete_later(*retry);
                }
            }
            Done::Renewed(number, renewed) => {
                let current = self.renewing.take_if(|(current, _)| *current == number);
                match current {
                    None => self.abandoned = self.abandoned.saturating_sub(1),
                    // An error may have ended it before most leases were tried.
                    Some((_, progress)) if renewed.is_err() => {
                        self.each = self.each.max(progress.each());
                    }
                    Some((_, progress)) => self.each = progress.each(),
                }
                self.renewed(renewed);
            }
        }
    }

    fn renewed(&mut self, renewed: Result<(), StatementError>) {
        let failing = mem::replace(&mut self.failing, renewed.is_err());
        if let Err(error) = renewed {
            if error.class == ErrorClass::Contended {
                contained(|| {
                    debug!("cannot renew the leases beside others, trying again: {error}")
                });
            } else if !failing {
                contained(|| warn!("cannot renew the leases, trying again: {error}"));
            }
            self.workers.give_way();
            let pause = (self.lease / 24).min(Duration::from_secs(1));
            self.renew_at = since_boot() + pause;
        }
    }
}

#[cfg(test)]
mod tests;
