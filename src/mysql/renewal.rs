//! The one thread of a client that minds its leases.
//!
//! It renews them, tells their guards when one becomes Suspect or Lost, repeats deletions
//! that failed, and from time to time deletes rows that nobody wants. It never waits for
//! the database itself, or it could not tell of a database that is silent.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, never, select, unbounded};
use log::{debug, warn};

use crate::mysql::connection::{Link, Trouble};
use crate::mysql::lease::{self, Lease};
use crate::mysql::release::{Next, Release};
use crate::mysql::statement::{self, Key};
use crate::mysql::worker::Workers;
use crate::time::clock::Moment;

/// How many leases are renewed in one packet.
const BATCH: usize = 50;

/// How many threads may hang in a dead connection before we stop to start others.
const MOST_ABANDONED: u32 = 8;

/// What the rest of the client has for the thread.
#[derive(Debug)]
pub(super) enum Command {
    /// A lock was taken.
    Watch(Arc<Lease>),
    /// A row is to go, after a pause.
    Later(Release, Duration),
    /// The client was closed: all locks are lost.
    Close,
}

/// The thread's own state.
#[derive(Debug)]
struct Renewal {
    lease: Duration,
    clean_every: Duration,
    commands: Receiver<Command>,
    workers: Arc<Workers>,
    /// Apart from the others, so that nothing they wait for holds a renewal up.
    lane: Workers,
    abandoned: u32,
    leases: Vec<Arc<Lease>>,
    later: Vec<(Moment, Release)>,
    /// Deletions that we have handed over.
    deleting: usize,
    /// When the renewal that is under way was handed over.
    under_way: Option<(u64, Moment)>,
    round: u64,
    /// The last renewals failed, and that was logged.
    failing: bool,
    renew_at: Moment,
    clean_at: Moment,
    to_self: Sender<Done>,
    done: Receiver<Done>,
}

/// What our jobs tell us.
#[derive(Debug)]
enum Done {
    Renewed(u64, Result<(), Trouble>),
    Deleted(Box<Next>),
}

/// Starts the thread; it ends when every sender of commands is gone and all is done.
pub(super) fn start(
    lease: Duration,
    clean_every: Duration,
    workers: Arc<Workers>,
    lane: Workers,
) -> io::Result<Sender<Command>> {
    let (to, commands) = unbounded();
    let (to_self, done) = unbounded();
    let now = Moment::now();
    let renewal = Renewal {
        lease,
        clean_every,
        commands,
        workers,
        lane,
        abandoned: 0,
        leases: Vec::new(),
        later: Vec::new(),
        deleting: 0,
        under_way: None,
        round: 0,
        failing: false,
        renew_at: now,
        // Clients that were started together do not clean together.
        clean_at: now + clean_every.mul_f64(0.5 + fastrand::f64()),
        to_self,
        done,
    };
    thread::Builder::new()
        .name("zklock-mysql-renew".to_owned())
        .spawn(move || renewal.run())?;
    Ok(to)
}

impl Renewal {
    fn run(mut self) {
        let mut open = true;
        while open || self.deleting > 0 || !self.later.is_empty() {
            let now = Moment::now();
            self.look_at_leases(now);
            self.renew(now);
            self.delete(now);
            self.clean(now, open);
            let pause = self.next(Moment::now());
            let nothing = never();
            let commands = if open { &self.commands } else { &nothing };
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

    /// Tells the guards.
    fn look_at_leases(&mut self, now: Moment) {
        self.leases.retain(|lease| {
            lease.state(now);
            !lease.is_over()
        });
    }

    fn renew(&mut self, now: Moment) {
        if let Some((_, since)) = self.under_way {
            let hangs = now >= since + self.lease / 3;
            if !hangs || self.abandoned == MOST_ABANDONED {
                return;
            }
            debug!("a renewal hangs: its connection is given up");
            self.abandoned += 1;
            self.lane = self.lane.replacement();
            self.under_way = None;
        }
        if now < self.renew_at {
            return;
        }
        // Those that are due soon go along, so that in the end all go together.
        let soon = now + lease::renewal(self.lease) / 2;
        let due: Vec<_> = self
            .leases
            .iter()
            .filter(|lease| self.due(lease) <= soon)
            .cloned()
            .collect();
        if due.is_empty() {
            return;
        }
        self.round += 1;
        self.under_way = Some((self.round, now));
        let (to, round, lease) = (self.to_self.clone(), self.round, self.lease);
        self.lane.submit(move |link| {
            let renewed = renew_all(link, &due, lease);
            let _ = to.send(Done::Renewed(round, renewed));
        });
    }

    fn due(&self, lease: &Lease) -> Moment {
        lease.confirmed() + lease::renewal(self.lease)
    }

    fn delete(&mut self, now: Moment) {
        for (_, release) in self.later.extract_if(.., |(at, _)| *at <= now) {
            self.deleting += 1;
            let to = self.to_self.clone();
            self.workers.submit(move |link| {
                let _ = to.send(Done::Deleted(Box::new(release.run(link))));
            });
        }
    }

    fn clean(&mut self, now: Moment, open: bool) {
        if now < self.clean_at || !open {
            return;
        }
        self.clean_at = now + self.clean_every;
        // Who waits for a name takes its row over at once; this is for the others.
        let ago = self.lease;
        self.workers.submit(
            move |link| match link.run(|conn| statement::clean(conn, ago)) {
                Ok(0) => {}
                Ok(rows) => debug!("deleted {rows} rows of holders that are gone"),
                Err(trouble) => debug!("cannot tidy up: {trouble}"),
            },
        );
    }

    /// Returns how long there is nothing to do.
    fn next(&self, now: Moment) -> Duration {
        let changes = self
            .leases
            .iter()
            .filter_map(|lease| lease.next_change(now));
        let renewals = self.leases.iter().filter_map(|lease| match self.under_way {
            Some(_) if self.abandoned == MOST_ABANDONED => None,
            Some((_, since)) => Some(since + self.lease / 3),
            None => Some(self.due(lease).max(self.renew_at)),
        });
        let deletions = self.later.iter().map(|(at, _)| *at);
        let at = changes.chain(renewals).chain(deletions).min();
        let at = at.map_or(self.clean_at, |at| at.min(self.clean_at));
        at.saturating_since(now)
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Watch(lease) => self.leases.push(lease),
            Command::Later(release, pause) => self.later.push((Moment::now() + pause, release)),
            Command::Close => self.leases.drain(..).for_each(|lease| lease.lose()),
        }
    }

    fn done(&mut self, done: Done) {
        match done {
            Done::Deleted(next) => {
                self.deleting -= 1;
                if let Next::Again(release, pause) = *next {
                    self.later.push((Moment::now() + pause, release));
                }
            }
            Done::Renewed(round, renewed) => {
                let current = self.under_way.is_some_and(|(of, _)| of == round);
                if current {
                    self.under_way = None;
                } else {
                    self.abandoned = self.abandoned.saturating_sub(1);
                }
                let failing = std::mem::replace(&mut self.failing, renewed.is_err());
                if let Err(trouble) = renewed {
                    if !failing {
                        warn!("cannot renew the leases, trying again: {trouble}");
                    }
                    let pause = (self.lease / 24).min(Duration::from_secs(1));
                    self.renew_at = Moment::now() + pause;
                }
            }
        }
    }
}

/// Renews leases; one that cannot be renewed now does not hold up the others.
fn renew_all(link: &mut Link, leases: &[Arc<Lease>], length: Duration) -> Result<(), Trouble> {
    let mut first = Ok(());
    let mut rest = leases;
    while !rest.is_empty() {
        let (batch, later) = rest.split_at(rest.len().min(BATCH));
        let (count, renewed) = renew_batch(link, batch, length);
        match renewed {
            Ok(()) => rest = later,
            Err(trouble) => {
                let passed_over = rest.get(count + 1..).unwrap_or_default();
                rest = if trouble.kind.is_the_connection() {
                    &[]
                } else {
                    passed_over
                };
                first = first.and(Err(trouble));
            }
        }
    }
    first
}

/// Returns how many were answered, and why it ended there.
fn renew_batch(
    link: &mut Link,
    leases: &[Arc<Lease>],
    length: Duration,
) -> (usize, Result<(), Trouble>) {
    let keys: Vec<_> = leases.iter().map(|lease| key(lease)).collect();
    let mut rows = Vec::new();
    let mut sent = Moment::now();
    let done = link.run(|conn| {
        sent = Moment::now();
        leases.iter().for_each(|lease| lease.sending(sent));
        let (ours, done) = statement::renew(conn, &keys, length);
        rows = ours;
        done
    });
    let now = Moment::now();
    for (lease, ours) in leases.iter().zip(&rows) {
        if *ours {
            lease.confirm(sent, now)
        } else {
            lease.lose()
        }
    }
    (rows.len(), done)
}

/// Renews one lease now; used to verify it.
pub(super) fn renew_one(
    link: &mut Link,
    lease: &Arc<Lease>,
    length: Duration,
) -> Result<(), Trouble> {
    renew_batch(link, std::slice::from_ref(lease), length).1
}

fn key(lease: &Lease) -> Key<'_> {
    Key {
        name: &lease.name,
        owner: &lease.owner,
    }
}
