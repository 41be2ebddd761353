//! Was anything late without a reason? In quiet intervals, a lock is granted within the number of
//! trips between client and server that the table in `docs/simulation.md` says, by the run's own
//! clock.

mod costs;

use std::collections::HashSet;
use std::time::Duration;

use zklock::sim::ensemble::{Arrival, Change, What};

use crate::client::{Held, Journal, ms};
use crate::history::{Entry, Kind};
use crate::jobs::JOB;
use crate::marks;
use crate::ops::{Grant, Op, TIMEOUT, gather};
use crate::plan::{Plan, What as Trouble};
use crate::quiet::Quiet;
use crate::troubles::ensemble;

/// The time for the steps of a run's threads, each of which takes 100 ns.
const STEPS: Duration = Duration::from_micros(200);

/// The observations of a run, and what may be late in it.
pub(crate) struct Punctual<'a> {
    plan: &'a Plan,
    quiet: &'a Quiet,
    ops: Vec<Op>,
    nodes: Vec<Held>,
    seen: &'a Journal,
    history: Vec<Change>,
}

/// The moment from which on nothing stood in the way of a grant, and what came last.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Free {
    at: Duration,
    by: Last,
    trips: u32,
}

/// The last thing that a grant had to wait for.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Last {
    /// The call itself.
    Call,
    /// Another thread of the client.
    Thread,
    /// The deletion of the last node ahead, at the leader.
    Deletion,
    /// The handshake of a new connection.
    Handshake,
}

impl<'a> Punctual<'a> {
    pub(crate) fn new(
        plan: &'a Plan,
        quiet: &'a Quiet,
        entries: &[Entry],
        seen: &'a Journal,
    ) -> Self {
        Self {
            plan,
            quiet,
            ops: gather(entries),
            seen,
            nodes: seen.nodes(),
            history: ensemble(|ensemble, _| ensemble.history().to_vec()),
        }
    }

    pub(crate) fn judge(&self) -> Result<(), String> {
        let ops = || self.ops.iter();
        ops().try_for_each(|op| self.is_granted_in_time(op))?;
        ops().try_for_each(|op| self.is_refused_in_time(op))?;
        costs::judge(self)
    }

    fn is_granted_in_time(&self, op: &Op) -> Result<(), String> {
        let judged = self.is_usual() && !self.seen.is_continued(op.id());
        let Some(grant) = op.granted.as_ref().filter(|_| judged) else {
            return Ok(());
        };
        let (asked, at) = (nanos(op.requested), nanos(grant.at));
        let since = asked.saturating_sub(ms(self.plan.timeout));
        if !self.quiet.holds(op.who.slot, since, at) {
            return Ok(());
        }
        let due = self.frees(op, grant, at).into_iter();
        let due = due.map(|free| (free.at + self.takes(&free), free)).max();
        match due.filter(|(due, _)| *due < at) {
            None => Ok(()),
            Some((
                due,
                Free {
                    at: free,
                    by,
                    trips,
                },
            )) => Err(format!(
                "{} was granted {} at {at:?}, {:?} late without a reason: its last wait, for {by:?}, \
                 was over at {free:?}, and {trips} trips from there it was due at {due:?}\n{}",
                op.name(),
                op.paths.join(", "),
                at - due,
                self.story(grant.session, free, at),
            )),
        }
    }

    /// Checks that a call that has reached its limit returns at once.
    fn is_refused_in_time(&self, op: &Op) -> Result<(), String> {
        let (Some(limit), Some((at, why))) = (op.limit, &op.refused) else {
            return Ok(());
        };
        let (asked, at) = (nanos(op.requested), nanos(*at));
        let quiet = self.is_usual() && self.quiet.holds(op.who.slot, asked, at);
        if !quiet || why != TIMEOUT || at <= asked + limit + STEPS {
            return Ok(());
        }
        let late = at - asked - limit;
        Err(format!(
            "{} was told {late:?} late without a reason that its {limit:?} were over",
            op.name()
        ))
    }

    /// Returns the late client's requests meanwhile, and what the servers did.
    fn story(&self, session: i64, from: Duration, to: Duration) -> String {
        let from = from.saturating_sub(ms(self.plan.timeout / 20));
        let asked = ensemble(|ensemble, _| ensemble.asked(session).to_vec());
        let asked = asked
            .iter()
            .map(|asked| (asked.at, format!("it asked: {:?}", asked.kind)));
        let done = self.history.iter();
        let done = done.map(|change| (change.at, format!("{:?}", change.what)));
        let mut lines: Vec<_> = asked.chain(done).collect();
        lines.retain(|(at, _)| (from..=to).contains(at));
        lines.sort();
        let lines = lines.iter().map(|(at, what)| format!("    {at:?} {what}"));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Returns whether the run has usual servers: version 3.4, the last sequence numbers, full
    /// sockets and slow links have ways of their own.
    fn is_usual(&self) -> bool {
        let Plan {
            old,
            counters_end,
            link,
            timeout,
            ..
        } = self.plan;
        let is_prompt = 8 * self.proof_takes() < 1000 * timeout;
        !old && !counters_end && 100_000 < link.window && is_prompt
    }

    /// Returns how long a proof takes at most, in microseconds. It must be young when it arrives: otherwise the client
    /// asks for several.
    pub(super) fn proof_takes(&self) -> u64 {
        2 * self.plan.link.latency.1 + 5 * self.plan.hop
    }

    /// Returns how long after the leader a follower carries out a change, at most.
    fn lag(&self) -> Duration {
        Duration::from_micros(2 * self.plan.hop)
    }

    /// Returns how long these trips take at most.
    fn takes(&self, free: &Free) -> Duration {
        let (trips, allowed) = match self.is_even() {
            true => (free.trips, Duration::ZERO),
            // A message that overtakes an answer may cost a waiter another look at the queue.
            false => (2 * free.trips, ms(self.plan.timeout) / 20),
        };
        let (trip, hop) = (self.plan.link.latency.1, self.plan.hop);
        let rounds = u64::from(trips.div_ceil(2));
        // With a follower, each write goes to the leader, to a quorum and back.
        let micros = trip * u64::from(trips) + 5 * hop * (1 + rounds);
        Duration::from_micros(micros) + allowed + STEPS
    }

    /// Returns whether every trip takes the same time.
    fn is_even(&self) -> bool {
        let (least, most) = self.plan.link.latency;
        least == most
    }

    /// Returns all that a grant waits for: when each was out of the way, and how many trips the
    /// grant is from there.
    fn frees(&self, op: &Op, grant: &Grant, at: Duration) -> Vec<Free> {
        let id = op.id();
        let held = self
            .nodes
            .iter()
            .find(|(who, number, _)| (*who, *number) == id);
        let nodes = held.map_or(&[][..], |(.., nodes)| nodes);
        let call = self.trips_of_a_call(op, at);
        let free = |at, by, trips| Free { at, by, trips };
        let mut all = vec![free(nanos(op.requested), Last::Call, call)];
        all.extend(self.turns(op).map(|at| free(at, Last::Thread, call)));
        for node in nodes {
            let gone = match op.kind {
                Kind::Permit(_) => self.last_given_back(node, at),
                _ => self.ahead_gone(node, at),
            };
            all.extend(gone.map(|gone| {
                free(
                    gone,
                    Last::Deletion,
                    self.trips_of_a_release(op, node, gone),
                )
            }));
        }
        all.retain(|free| free.at <= at);
        all.extend(self.resumed(grant.session, at, call));
        all
    }

    /// Returns whether every trip takes the same time, and nobody else uses the client's
    /// connection.
    fn is_exact(&self, op: &Op) -> bool {
        self.is_even() && self.plan.clients[op.who.slot].threads.len() == 1
    }

    /// Returns whether the directory of a lock existed all the time.
    fn knows(&self, dir: &str, from: Duration, to: Duration) -> bool {
        let own = self.history.iter().filter(|change| match &change.what {
            What::Created { path, .. } | What::Deleted { path, .. } => path == dir,
            _ => false,
        });
        let mut there = false;
        for change in own.take_while(|change| change.at <= to) {
            there = matches!(change.what, What::Created { .. }) && change.at < from;
        }
        there
    }

    /// Returns the trips from a call for a free lock to its grant. The first client creates the
    /// directories.
    fn trips_of_a_call(&self, op: &Op, at: Duration) -> u32 {
        let knows = |dir: &str| self.knows(dir, nanos(op.requested), at);
        let known = || self.is_exact(op) && op.paths.iter().all(|path| knows(path));
        match (op.kind, op.paths[0].as_str()) {
            (Kind::Permit(_), path) => {
                let dirs = ["locks", "leases"].map(|dir| format!("{path}/{dir}"));
                match known() && dirs.iter().all(|dir| knows(dir)) {
                    true => 6,
                    false => 14,
                }
            }
            (_, JOB) => 10,
            (_, marks::LOCK) => 12,
            _ if op.paths.len() > 1 => match known() {
                true => 6,
                false => 18,
            },
            _ => match known() {
                true => 2,
                false => 6,
            },
        }
    }

    /// Returns the trips from the deletion of the last node ahead to the grant.
    fn trips_of_a_release(&self, op: &Op, node: &str, gone: Duration) -> u32 {
        let has_settled = self.is_exact(op) && self.has_settled(op, node, gone);
        match (op.kind, op.paths[0].as_str()) {
            (_, JOB) => 9,
            (_, marks::LOCK) => 7,
            // Who waits for several locks lists the queues that are left, and has all nodes confirmed. The next in a
            // semaphore's line looks whether there is room, and creates the permit's node with a listing.
            (kind, _) if op.paths.len() > 1 || matches!(kind, Kind::Permit(_)) => {
                match has_settled && !self.was_reset(op) {
                    true => 5,
                    false => 11,
                }
            }
            (_, path) if has_settled => {
                // The listing of readers and writers comes after the event, with a proof that is due.
                match path.ends_with("rw") || self.was_reset(op) {
                    true => 3,
                    false => 1,
                }
            }
            _ => 7,
        }
    }

    /// Returns whether a connection of this client was ever reset.
    fn was_reset(&self, op: &Op) -> bool {
        let mut troubles = self.plan.troubles.iter();
        troubles
            .any(|trouble| matches!(trouble.what, Trouble::Cut { client } if client == op.who.slot))
    }

    /// Returns whether a waiter had all its watches, and nothing happened in its queue for a while. A contender for a
    /// permit has a node in the line, too.
    fn has_settled(&self, op: &Op, node: &str, gone: Duration) -> bool {
        let since = gone.saturating_sub(self.takes(&Free {
            at: gone,
            by: Last::Call,
            trips: 10,
        }));
        let in_line = matches!(op.kind, Kind::Permit(_));
        let dir = match in_line {
            true => &*op.paths[0],
            false => node.rsplit_once('/').map_or("", |(dir, _)| dir),
        };
        let before = self
            .history
            .iter()
            .filter(|change| (since..gone).contains(&change.at));
        let mut moved = before.filter(|change| match &change.what {
            What::Created { path, .. } => path == node || in_line && path.starts_with(dir),
            What::Deleted { path, .. } => path.starts_with(dir),
            _ => false,
        });
        moved.next().is_none()
    }

    /// Returns the last time by then at which the session was resumed, and how far the grant is
    /// from there.
    fn resumed(&self, session: i64, by: Duration, call: u32) -> Option<Free> {
        let arrivals = ensemble(|ensemble, _| ensemble.arrivals(session).to_vec());
        let (opened, rest) = arrivals.split_first()?;
        let is_handshake =
            |(at, what): &&(Duration, Arrival)| *what == Arrival::Handshake && *at <= by;
        let (at, _) = *rest.iter().rev().find(is_handshake)?;
        let committed = rest
            .iter()
            .rev()
            .find(|(sent, what)| *what == Arrival::Write && *sent < at);
        let committed = committed.unwrap_or(opened).0;
        let timeout = ms(self.plan.timeout);
        // The client looks for the results of lost requests before it repeats them.
        let trips = 13 + call;
        // A commit shows that the leader had heard of the session T/2 before. Otherwise the
        // session's end may have been due, and the leader must have heard of it since.
        let counts = match committed + timeout * 9 / 20 < at {
            true => timeout / 4,
            false => Duration::ZERO,
        };
        Some(Free {
            at: at + counts,
            by: Last::Handshake,
            trips,
        })
    }

    /// Returns when the client's other threads left the line for a path of this call.
    fn turns<'b>(&'b self, op: &'b Op) -> impl Iterator<Item = Duration> + 'b {
        let others = self.ops.iter().filter(|other| {
            let shared = other.paths.iter().any(|path| op.paths.contains(path));
            other.who == op.who && other.number != op.number && shared
        });
        others.flat_map(|other| {
            let refused = other.refused.as_ref().map(|(at, _)| *at);
            [
                other
                    .granted
                    .as_ref()
                    .map(|g| g.at)
                    .filter(|_| other.kind == Kind::Read),
                other.release,
                refused,
            ]
            .into_iter()
            .flatten()
            .map(nanos)
        })
    }

    /// Returns when the last node that kept this one waiting was deleted.
    fn ahead_gone(&self, node: &str, by: Duration) -> Option<Duration> {
        let (dir, name) = node.rsplit_once('/')?;
        let mut ahead = HashSet::new();
        let mut last = None;
        for change in self.history.iter().take_while(|change| change.at <= by) {
            match &change.what {
                // A downgraded lock keeps its place, although its node is created later than nodes
                // behind it.
                What::Created { path, .. } => {
                    let other = path.rsplit_once('/').filter(|(of, _)| *of == dir);
                    if other.is_some_and(|(_, other)| excludes(other, name)) {
                        ahead.insert(path.clone());
                    }
                }
                What::Deleted { path, .. } if ahead.remove(path) => last = Some(change.at),
                _ => {}
            }
        }
        last
    }

    /// Returns when a permit was last given back, or a place in the line for permits.
    fn last_given_back(&self, node: &str, by: Duration) -> Option<Duration> {
        let (dir, _) = node.rsplit_once('/')?;
        let (top, _) = dir.rsplit_once('/')?;
        let changes = self.history.iter().take_while(|change| change.at <= by);
        let gone = changes.filter(|change| {
            matches!(&change.what, What::Deleted { path, .. } if path.starts_with(top) && path != node)
        });
        gone.map(|change| change.at).last()
    }
}

/// Returns whether a node keeps one behind it waiting.
fn excludes(ahead: &str, behind: &str) -> bool {
    let reads = |name: &str| name.contains("__READ__");
    let number = |name: &str| name.get(name.len().saturating_sub(10)..).map(str::to_owned);
    number(ahead) < number(behind) && !(reads(ahead) && reads(behind))
}

fn nanos(time: u64) -> Duration {
    Duration::from_nanos(time)
}
