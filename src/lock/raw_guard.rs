//! What every guard owns: a place at the head of a queue, and the duty to give it up.
//!
//! A [`RawGuard`] is the only thing in the locks that acts when it is dropped; the guards are
//! plain structs around it, so that they can be taken apart.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use parking_lot::Mutex;

use crate::contender::Contender;
use crate::error::{Error, Result};
use crate::guard::{FencingToken, GuardEvent, GuardState};
use crate::lock::driver::{Acquisition, Ahead, Reached};
use crate::options::{LockOptions, Waiting};
use crate::recipe::attempt::Patience;
use crate::recipe::dialect::Role;
use crate::recipe::last_grant::LastGrant;
use crate::recipe::overdue::Overdue;
use crate::recipe::validity::Stamp;
use crate::session::Session;
use crate::session::caller::over;
use crate::session::cleaner::{Ended, Release};
use crate::session::lease::Lease;
use crate::session::proof::{self, Proof};
use crate::session::queries::Lasting;
use crate::time::limit::{Limit, from_now};
use crate::transport::Failure;
use crate::transport::mailbox::{Mailbox, Slot};

/// How often to look whether a lock is lost that is held for some time more.
const LOOK: Duration = Duration::from_millis(500);

/// Which queue to go through, and as what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue<'a> {
    /// The lock, for messages.
    pub(crate) path: &'a str,
    /// The directory of the queue's nodes.
    pub(crate) dir: &'a str,
    pub(crate) role: Role,
    /// How many may hold at once, for permits.
    pub(crate) permits: u32,
    /// What becomes of the directory when it is empty.
    pub(crate) lasting: Lasting<'a>,
    /// What must be held all the while.
    pub(crate) under: Option<&'a RawGuard>,
    /// The last grant to whoever takes turns here.
    pub(crate) last: Option<&'a LastTurn>,
}

/// Read and written by who has the turn only.
pub(crate) type LastTurn = Mutex<Option<LastGrant>>;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct RawGuard {
    session: Arc<Session>,
    lease: Arc<Lease>,
    token: FencingToken,
    /// The number of the lease; taken when the nodes are given up.
    watched: Option<u64>,
    /// Whether the release clears the mark of a holder.
    clears: bool,
    /// The nodes are not to go before this.
    pub(crate) at_least_until: Option<Instant>,
    /// How many threads of this client may have it in a row; 0 if none may inherit it.
    most: u32,
    /// When it was granted; absent if it does not count as a grant of its own.
    since: Option<Instant>,
}

impl<'a> Queue<'a> {
    /// The queue in the lock's own directory.
    pub(crate) fn of(path: &'a str, role: Role) -> Self {
        Self {
            path,
            dir: path,
            role,
            permits: 0,
            lasting: Lasting::WhileUsed,
            under: None,
            last: None,
        }
    }

    /// What to go through it with.
    pub(crate) fn wanted<'q>(
        &self,
        session: &'q Arc<Session>,
        patience: Patience,
        options: &'q mut LockOptions<'_>,
    ) -> Acquisition<'q>
    where
        'a: 'q,
    {
        let contest = session.contest(self.role, self.permits as usize);
        Acquisition {
            path: self.path,
            dir: self.dir,
            contest,
            patience,
            note: options.note.as_deref(),
            on_wait: options.on_wait.as_mut().map(|told| told_by(session, told)),
            overdue: options.overdue.map(|rule| Overdue::new(rule, contest)),
            lasting: self.lasting,
            under: self.under.map(RawGuard::lease),
            // Whatever comes of it, it is not the last one any more.
            last: self.last.and_then(|last| last.lock().take()),
        }
    }
}

impl RawGuard {
    pub(crate) fn new(session: &Arc<Session>, reached: Reached) -> Self {
        let Reached { lease, mine } = reached;
        Self::with(session, lease, FencingToken::new(mine.origin.czxid))
    }

    /// Takes over nodes that are at the head of their queues.
    pub(crate) fn with(session: &Arc<Session>, lease: Arc<Lease>, token: FencingToken) -> Self {
        Self {
            watched: Some(session.leases.begin(lease.clone())),
            session: session.clone(),
            lease,
            token,
            clears: false,
            at_least_until: None,
            most: 0,
            since: None,
        }
    }

    /// Counts as a grant, so long after it was asked for.
    pub(crate) fn granted(&mut self, after: Duration) {
        self.since = Some(Instant::now());
        self.session.counters.acquired(after);
    }

    /// Has come from another thread of this client.
    pub(crate) fn inherited(&mut self, after: Duration) {
        self.session.counters.handed_on();
        self.granted(after);
    }

    /// Lets the threads of this client that wait for the same lock inherit it, as far as the
    /// client's settings allow.
    pub(crate) fn share(&mut self) {
        self.most = self.session.settings.local_handoffs;
    }

    /// Goes to no other thread, but back to the server.
    pub(crate) fn abandon(mut self) {
        self.most = 0;
    }

    /// Leaves the lock to the next thread of this client, if it may; nothing is left to be
    /// given up then.
    fn hand_off(&mut self) -> bool {
        if self.most == 0 || self.clears || self.at_least_until.is_some() {
            return false;
        }
        let Some(watched) = self.watched else {
            return false;
        };
        let session = self.session.clone();
        let cede = || {
            let lease = session.leases.succeed(watched)?;
            self.watched = None;
            Some(Self {
                session: session.clone(),
                lease,
                token: self.token,
                watched: Some(watched),
                clears: false,
                at_least_until: None,
                most: self.most,
                since: None,
            })
        };
        let left = session
            .turnstile
            .hand_off(self.lease.path(), self.most, cede);
        if left {
            self.count_time();
        }
        left
    }

    /// The release clears the mark of a holder, unless the holder panics or has lost.
    pub(crate) fn clear_at_the_end(&mut self) {
        self.clears = true;
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    pub(crate) fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Goes through a queue; `None` if it is taken or the limit was reached.
    pub(crate) fn take(
        session: &Arc<Session>,
        queue: &Queue<'_>,
        patience: Patience,
        options: &mut LockOptions<'_>,
        limit: &Limit,
    ) -> Result<Option<Self>> {
        let at_least = options.hold_at_least;
        let mut wanted = queue.wanted(session, patience, options);
        let before = wanted.last;
        let reached = session.acquire(&mut wanted, limit)?;
        Ok(reached.map(|reached| {
            if let Some(last) = queue.last {
                // A node that stays after its guard would be ahead of the next one.
                let ends = at_least.is_none();
                *last.lock() = LastGrant::new(&reached.mine, before).filter(|_| ends);
            }
            let mut raw = Self::new(session, reached);
            // A semaphore has a lock in front of it, which is nobody's aim.
            if queue.dir == queue.path || queue.role == Role::Permit {
                raw.granted(limit.begun.elapsed());
            }
            raw.at_least_until = at_least.map(from_now);
            raw
        }))
    }

    pub(crate) fn token(&self) -> FencingToken {
        self.token
    }

    pub(crate) fn nodes(&self) -> &[String] {
        self.lease.nodes()
    }

    /// The first of the nodes; a mutex has one only.
    pub(crate) fn node(&self) -> &str {
        self.nodes().first().map_or("", String::as_str)
    }

    pub(crate) fn check(&self) -> Result<()> {
        self.lease.check()
    }

    pub(crate) fn state(&self) -> GuardState {
        self.lease.state()
    }

    pub(crate) fn valid_for(&self) -> Duration {
        self.lease.valid_for()
    }

    pub(crate) fn events(&self) -> &Receiver<GuardEvent> {
        self.lease.events()
    }

    /// Has the quorum confirm the nodes now.
    pub(crate) fn verify(&self) -> Result<()> {
        self.check()?;
        let limit = Limit::after(self.valid_for());
        let capabilities = self.session.transport.capabilities();
        let stamp = self.session.status.stamp();
        let answers = self
            .session
            .caller()
            .prove(self.nodes(), &limit)
            .unwrap_or_default();
        self.judge(stamp, proof::judge(capabilities, &answers), &answers)
    }

    fn judge(
        &self,
        stamp: Stamp,
        proof: Proof,
        answers: &[crate::session::caller::Answered],
    ) -> Result<()> {
        match proof {
            Proof::Confirmed => self.lease.confirm(stamp),
            Proof::Gone(_) => self.lease.lose(),
            Proof::Unanswered => {}
        }
        self.check()?;
        if answers.contains(&Err(Failure::Closed)) {
            return Err(over(&self.session.status.snapshot()));
        }
        match proof {
            Proof::Confirmed => Ok(()),
            _ => Err(Error::Suspect {
                path: self.lease.path().to_owned(),
            }),
        }
    }

    /// Gives the nodes up and waits for the answer, at most until the lock is lost.
    pub(crate) fn release(mut self) -> Result<()> {
        if let Some(until) = self.at_least_until.take() {
            self.hold_until(until);
        }
        let held = self.check();
        if held.is_ok() && self.hand_off() {
            return Ok(());
        }
        let limit = Limit::after(self.valid_for());
        let endings = Mailbox::new();
        let count = self.nodes().len();
        self.give_up(Some(&endings.slot()));
        held?;
        for _ in 0..count {
            let ending = endings.recv(&*self.session.transport, &limit);
            if ending != Ok(Ended::Deleted) {
                return Err(self.lease.lost());
            }
        }
        Ok(())
    }

    /// Waits until this time, or until the lock is lost.
    fn hold_until(&self, until: Instant) {
        let changes = self.session.status.changes();
        while self.check().is_ok() && Instant::now() < until {
            let next = from_now(self.valid_for().min(LOOK));
            // An error is the time.
            let _ = changes.receiver().recv_deadline(next.min(until));
        }
    }

    /// Leaves the nodes to another hold.
    pub(crate) fn hand_over(mut self) {
        if let Some(watched) = self.watched.take() {
            self.session.leases.end(watched);
        }
    }

    fn give_up(&mut self, waiter: Option<&Slot<Ended>>) {
        let Some(watched) = self.watched.take() else {
            return;
        };
        self.lease.tell(&self.session.counters);
        self.count_time();
        let release = Release {
            session: self.lease.session(),
            waiter,
            clears: self.clears && !thread::panicking() && self.check().is_ok(),
            not_before: self.at_least_until,
        };
        self.session.leases.end(watched);
        self.session.cleaner.release(self.lease.nodes(), &release);
    }
}

impl RawGuard {
    fn count_time(&mut self) {
        if let Some(since) = self.since.take() {
            self.session.counters.held(since.elapsed());
        }
    }
}

impl Drop for RawGuard {
    fn drop(&mut self) {
        if self.session.is_inherited() {
            return;
        }
        if !self.hand_off() {
            self.give_up(None);
        }
    }
}

/// Turns what a drive sees into what a user is told.
fn told_by<'a>(
    session: &'a Arc<Session>,
    told: &'a mut (dyn FnMut(&Waiting) + '_),
) -> Box<dyn FnMut(&Ahead) + 'a> {
    Box::new(move |ahead| {
        let Ahead {
            since,
            count,
            ref nearest,
            holds,
            ref data,
            stat,
        } = *ahead;
        let nearest = nearest.clone();
        let contender = || Contender::new(session, nearest, holds, stat, data);
        told(&Waiting {
            position: count,
            // A crowd has no nearest one.
            ahead: (stat.czxid != 0).then(contender),
            since,
        });
    })
}
