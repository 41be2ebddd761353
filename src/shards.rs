//! Work that is divided among the processes that are up.
//!
//! This module decides which member should work on a shard:
//! [`shard_owners`](zklock_core::shard_owners) computes it from the list of the members. Which
//! member may work on it is decided by the shard's mutex, so a member that does not know of another
//! one yet does no harm. A shard that moves is released by its old owner and waited for by its new
//! one.

mod members;
mod threads;
mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::sync::Arc;

use self::members::Members;
use self::threads::{News, Stop};
use self::worker::Worker;
use crate::contender::{Contender, reads};
use crate::error::{Error, Result};
use crate::lock::{Locks, described};
use crate::standby::{Standby, Term};
use crate::system::channel::{Receiver, Sender, bounded, unbounded, wait_any};
use zklock_core::shard_owners::shards_of;

/// More shards than this are refused: each shard that a process owns takes a thread and a lock.
const MOST: u32 = 10_000;

/// Work in a fixed number of shards, divided among the processes that are up.
///
/// Every process that calls [`run`](Self::run) is a member and owns its part of the shards: as many
/// as any other, or one more. When a member comes or goes, some shards move. A shard is never
/// worked on by two processes that both pass [`Term::check`]: it is the mutex of the path
/// `<path>/<number>`, which its new owner waits for and its old owner releases. A member that dies
/// gives up its shards when its session times out.
///
/// The members are the readers that hold the read-write lock `<path>/members`. While another
/// contender waits there, or holds it, nobody joins.
///
/// # Example
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zklock::embedded::Server::start()?;
/// # let client = zklock::Client::connect(server.hosts())?;
/// use std::ops::ControlFlow;
///
/// let shards = client.shards("/importers/orders", 8)?;
/// # let left = std::sync::atomic::AtomicUsize::new(20);
/// shards.run(move |shard, term| {
///     // Only this process works on the orders whose customer's number % 8 is `shard`.
///     while !term.is_over() {
/// #       if left.fetch_sub(1, std::sync::atomic::Ordering::Relaxed) == 1 { return ControlFlow::Break(()); }
///         // .. a batch, with term.fencing_token() in each write
/// #       let _ = shard;
///     }
///     ControlFlow::Continue(()) // the shard moves to another process, or comes back
/// })?;
/// # Ok(())
/// # }
/// ```
#[doc(alias = "SetPartitioner")]
#[doc(alias = "partition")]
#[derive(Clone)]
pub struct Shards {
    locks: Arc<Locks>,
    path: Arc<str>,
    count: u32,
}

described!(Shards, it: path = it.path);

impl Shards {
    pub(crate) fn new(locks: &Arc<Locks>, path: &str, count: u32) -> Result<Self> {
        crate::path::check(path)?;
        if !(1..=MOST).contains(&count) {
            return Err(Error::BadArgument {
                name: "shards",
                rule: format!("the number of shards is 1 to {MOST}").into(),
            });
        }
        Ok(Self {
            locks: locks.clone(),
            path: path.into(),
            count,
        })
    }

    /// Works on the shards that are this process's, until `work` returns [`ControlFlow::Break`] for
    /// one of them.
    ///
    /// Calls `work` with a shard's number, from 0, and its [`Term`], in a thread for each shard
    /// that this process owns. `work` should return [`ControlFlow::Continue`] soon after
    /// [`Term::is_over`] turns true: until then, the next owner waits. If it returns before, it is
    /// called again, after a pause if it took less than 100 ms, as in
    /// [`Standby::run`](crate::Standby::run).
    ///
    /// Blocks all that time, and at the end until `work` has returned for each shard. All members
    /// must name the same number of shards. A lost connection does not end the call: terms that are
    /// lost are over, and begin anew when a server answers. A panic of `work` ends the call,
    /// releases all shards and propagates.
    ///
    /// # Errors
    ///
    /// Fails if a server refuses a request, if a contender at a shard's path would not wait for this
    /// client, if the system cannot start another thread, and if the client is closed, as
    /// [`Standby::run`](crate::Standby::run).
    pub fn run<W>(&self, work: W) -> Result<()>
    where
        W: Fn(u32, &Term<'_>) -> ControlFlow<()> + Send + Sync + 'static,
    {
        let (_never, cancel) = bounded(0);
        self.run_until(cancel, work)
    }

    /// As [`run`](Self::run), and ends when `cancel` has a message or has lost all its senders.
    ///
    /// Then all terms are over, and the call waits until `work` has returned for each.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub fn run_until<W>(&self, cancel: Receiver<()>, work: W) -> Result<()>
    where
        W: Fn(u32, &Term<'_>) -> ControlFlow<()> + Send + Sync + 'static,
    {
        let (tell, told) = unbounded();
        let members = Members::join(&self.locks, &self.members_path(), tell.clone())?;
        let mut part = Part {
            shards: self,
            work: Arc::new(work),
            tell,
            owned: BTreeSet::new(),
            workers: BTreeMap::new(),
        };
        let served = part.serve(&cancel, &told);
        // The other members must learn first that this member leaves, so that they already wait for its shards.
        let left = members.leave();
        let ended = part.end();
        match served.and(left).and(ended) {
            Ok(()) => Ok(()),
            Err(Stop::Failed(error)) => Err(error),
            Err(Stop::Panicked(panic)) => resume_unwind(panic),
        }
    }

    /// Returns the members, the one that has been here longest first.
    ///
    /// Blocks for a few round trips, at most 15 s each. [`Client::locks`](crate::Client::locks) of
    /// the path tells which member works on which shard, and which ones wait.
    ///
    /// # Errors
    ///
    /// As [`Client::contenders`](crate::Client::contenders).
    pub fn members(&self) -> Result<Vec<Contender>> {
        let mut members = self.locks.session.contenders(&self.members_path())?;
        members.retain(|one| reads(one.role(), one.holds()));
        Ok(members)
    }

    /// Returns the path.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the number of shards.
    pub fn count(&self) -> u32 {
        self.count
    }

    fn members_path(&self) -> String {
        format!("{}/members", self.path)
    }
}

/// The shards of a member.
struct Part<'a, W> {
    shards: &'a Shards,
    work: Arc<W>,
    tell: Sender<News>,
    owned: BTreeSet<u32>,
    /// The workers of the owned shards, and of others that are still at work.
    workers: BTreeMap<u32, Worker>,
}

impl<W> Part<'_, W>
where
    W: Fn(u32, &Term<'_>) -> ControlFlow<()> + Send + Sync + 'static,
{
    /// Follows the members' list, until `cancel` or a thread ends the call.
    fn serve(&mut self, cancel: &Receiver<()>, told: &Receiver<News>) -> Result<(), Stop> {
        loop {
            wait_any(&[cancel, told], None);
            if !cancel.try_recv().is_err_and(|error| error.is_empty()) {
                return Ok(());
            }
            match told.try_recv() {
                Ok(News::Members(members, mine)) => {
                    let members: Vec<_> = members.iter().map(String::as_str).collect();
                    self.owned = shards_of(&members, &mine, self.shards.count);
                }
                Ok(News::Ended(Some(shard))) => {
                    let ended = self.workers.remove(&shard);
                    if let Some(ControlFlow::Break(())) = ended.map(Worker::end).transpose()? {
                        return Ok(());
                    }
                }
                Ok(News::Ended(None)) => return Ok(()),
                Err(_) => {}
            }
            self.follow().map_err(Stop::Failed)?;
        }
    }

    /// Starts work on the shards that this member has got, and ends it on those that it has lost.
    fn follow(&mut self) -> Result<()> {
        for (shard, worker) in &mut self.workers {
            if !self.owned.contains(shard) {
                worker.stop();
            }
        }
        for &shard in &self.owned {
            if !self.workers.contains_key(&shard) {
                let worker = self.begin(shard)?;
                self.workers.insert(shard, worker);
            }
        }
        Ok(())
    }

    fn begin(&self, shard: u32) -> Result<Worker> {
        let Shards { locks, path, .. } = self.shards;
        let standby = Standby::new(locks, &format!("{path}/{shard}"))?;
        Worker::start(standby, shard, &self.work, &self.tell)
    }

    /// Ends all shards; reports the first failure.
    fn end(&mut self) -> Result<(), Stop> {
        self.workers.values_mut().for_each(Worker::stop);
        let ended: Vec<_> = std::mem::take(&mut self.workers)
            .into_values()
            .map(Worker::end)
            .collect();
        ended.into_iter().try_for_each(|ended| ended.map(drop))
    }
}
