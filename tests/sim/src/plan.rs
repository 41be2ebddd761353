//! The plan of a run: which locks each thread takes, and what breaks when.
//!
//! A plan is data, so that a failing plan can be made smaller. Times are in milliseconds.

mod cells;
mod crowd;
mod dialects;
mod lives;
mod several;

use std::time::Duration;

use fastrand::Rng;
use zklock::Dialect;

pub(crate) use self::dialects::{SHARED, Shared};
use crate::jobs::JOB;
use crate::marks;

/// All of a run except the order in which threads go on, which `seed` decides.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) servers: usize,
    pub(crate) tick: u64,
    pub(crate) timeout: u64,
    /// The longest time of a message between servers, in microseconds.
    pub(crate) hop: u64,
    /// Whether a lateness without a reason, or a cost that need not be, is a violation.
    pub(crate) is_timed: bool,
    /// Whether the servers are of version 3.4.
    pub(crate) old: bool,
    /// Whether the servers have the session rules of ClickHouse Keeper.
    pub(crate) keeper: bool,
    pub(crate) containers_vanish: bool,
    /// Whether the sequence numbers of all queues begin near their end.
    pub(crate) counters_end: bool,
    /// Whether only clients that know a password may use the clients' nodes.
    pub(crate) private: bool,
    pub(crate) threads: Threads,
    pub(crate) link: LinkPlan,
    pub(crate) clients: Vec<ClientPlan>,
    pub(crate) troubles: Vec<Trouble>,
}

/// The scheduling of threads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Threads {
    pub(crate) switch: f64,
    pub(crate) pause: f64,
    pub(crate) longest: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkPlan {
    /// The least and the greatest latency, in microseconds.
    pub(crate) latency: (u64, u64),
    pub(crate) window: usize,
    pub(crate) piece: usize,
}

/// A client, in a process of its own.
#[derive(Clone, Debug)]
pub(crate) struct ClientPlan {
    /// When the client connects.
    pub(crate) starts: u64,
    pub(crate) dialect: Dialect,
    pub(crate) handoffs: u32,
    pub(crate) threads: Vec<Vec<Step>>,
    pub(crate) end: ClientEnd,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum ClientEnd {
    Close,
    Drop,
    /// The client is closed at this time, in the middle of its work.
    CloseAt(u64),
    CrashAt(u64),
}

/// A lock that is taken, held and given up.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// How long the thread does something else before.
    pub(crate) rest: u64,
    pub(crate) lock: Lock,
    /// The limit of the call; for most locks, 0 means a try.
    pub(crate) limit: Option<u64>,
    pub(crate) cancel: Option<u64>,
    pub(crate) hold: u64,
    pub(crate) end: Release,
    pub(crate) panics_in_on_wait: bool,
}

impl Step {
    /// Returns whether the step does not wait.
    pub(crate) fn tries(&self) -> bool {
        use Lock::{Mutex, Permit, Read, Several, Write};
        self.limit == Some(0) && matches!(self.lock, Mutex(_) | Read | Write | Permit | Several(..))
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Lock {
    Mutex(u8),
    Tracked,
    Reentrant,
    Read,
    Write,
    Permit,
    Several(u8, u8),
    Together(Together),
    /// This many of the permits of [`SEATS`].
    Seats(u8),
    Once(Once),
    /// This many terms as the active one.
    Standby(u8),
    Hold(Hold),
    /// A permit that asks for its number.
    Numbered,
    /// A member's part of this many shards.
    Shards(u8),
    /// A lock at a path where there are locks of other kinds.
    Shared(Shared),
}

/// Several of [`TOGETHER`] at once, each of them in the role of its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Together {
    pub(crate) roles: [Option<Role>; 3],
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Role {
    Alone,
    Reads,
}

/// The queues whose locks are taken together.
pub(crate) const TOGETHER: [&str; 3] = ["/sim/m0", "/sim/m1", "/sim/rw"];

/// A semaphore whose permits are taken together.
pub(crate) const SEATS: &str = "/sim/seats";

/// A hold, which keeps a lock without a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    /// The index of the queue in [`HELD`].
    pub(crate) on: usize,
    /// Whether it takes the place of a lock that is held, as `zklock hold` does, or the end of the
    /// queue, as `zklock pause` does.
    pub(crate) in_place: bool,
    pub(crate) lasts: Option<u64>,
    /// Whether it ends at a given time, rather than a given while after it is written.
    pub(crate) until: bool,
    /// When somebody releases the first hold of this queue, after this one was made.
    pub(crate) released_after: Option<u64>,
}

/// The queues in which there are holds.
pub(crate) const HELD: [&str; 4] = ["/sim/m0", "/sim/rw", JOB, marks::LOCK];

/// A job that must be run once for a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Once {
    pub(crate) slot: u8,
    pub(crate) attempts: Option<u32>,
    pub(crate) waits: bool,
    pub(crate) any_order: bool,
    pub(crate) again: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Release {
    Unlock,
    Drop,
    Panic,
    /// The guard is released in another thread, if it may go there.
    Sent,
    /// The guard is released in another process that takes the lock over, if it is a mutex; several
    /// try to.
    HandOver,
}

/// Something that breaks, and for how long.
#[derive(Clone, Debug)]
pub(crate) struct Trouble {
    pub(crate) at: u64,
    pub(crate) lasts: u64,
    pub(crate) what: What,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    Cut {
        client: usize,
    },
    Hold {
        client: usize,
        server: usize,
        up: bool,
        down: bool,
    },
    Slow {
        client: usize,
        most: u64,
    },
    CutAfter {
        client: usize,
        server: usize,
        bytes: u64,
        up: bool,
    },
    Freeze {
        client: usize,
    },
    Suspend {
        client: usize,
    },
    Refuse {
        server: usize,
    },
    Unknown {
        server: usize,
    },
    SlowNames {
        by: u64,
    },
    CrashServer {
        server: usize,
    },
    PauseServer {
        server: usize,
    },
    CutServer {
        server: usize,
    },
    Lag {
        server: usize,
        by: u64,
    },
    ChangeLeader {
        to: usize,
    },
    /// The clock is set only at a Keeper, which only plans have that are written by hand.
    #[cfg(test)]
    SetClock {
        server: usize,
        by: u64,
    },
    LoseReply,
    /// The answer to the next creation, or to the next transaction, is lost.
    LoseAnswer {
        multi: bool,
    },
    LatePings,
    Expire {
        nth: usize,
    },
    Evict {
        nth: usize,
    },
    Revoke {
        nth: usize,
    },
    /// A server does not delete a node, until its data are built anew.
    Ghost {
        server: usize,
        nth: usize,
    },
    /// The client receives something that is no frame.
    Garbage {
        client: usize,
        server: usize,
        kind: usize,
    },
}

/// The plans that are written by hand: one thing happens, in a quiet ensemble of three.
#[cfg(test)]
impl Plan {
    pub(crate) fn quiet(clients: Vec<ClientPlan>) -> Self {
        Self {
            seed: 0,
            servers: 3,
            tick: 50,
            timeout: 450,
            hop: 550,
            is_timed: false,
            old: false,
            keeper: false,
            containers_vanish: false,
            counters_end: false,
            private: false,
            threads: Threads {
                switch: 0.2,
                pause: 0.0,
                longest: 1,
            },
            link: LinkPlan {
                latency: (100, 1000),
                window: 1 << 20,
                piece: usize::MAX,
            },
            clients,
            troubles: Vec::new(),
        }
    }

    pub(crate) fn with(mut self, at: u64, lasts: u64, what: What) -> Self {
        self.troubles.push(Trouble { at, lasts, what });
        self
    }
}

#[cfg(test)]
impl ClientPlan {
    pub(crate) fn of(threads: Vec<Vec<Step>>) -> Self {
        Self {
            starts: 0,
            dialect: Dialect::Curator,
            handoffs: 0,
            threads,
            end: ClientEnd::Close,
        }
    }
}

#[cfg(test)]
impl Step {
    /// Returns a step that rests, takes a lock without a limit, and holds it.
    pub(crate) fn of(rest: u64, lock: Lock, hold: u64) -> Self {
        Self {
            rest,
            lock,
            limit: None,
            cancel: None,
            hold,
            end: Release::Unlock,
            panics_in_on_wait: false,
        }
    }

    pub(crate) fn within(self, limit: u64) -> Self {
        Self {
            limit: Some(limit),
            ..self
        }
    }
}

impl Plan {
    pub(crate) fn from_seed(seed: u64) -> Self {
        let mut plan = match seed % 16 {
            1 => Self::holds(seed),
            3 => Self::standbys(seed),
            5 => Self::crowd(seed),
            6 => Self::handovers(seed),
            7 => Self::late(seed),
            8 => Self::dialects(seed),
            9 => Self::marks(seed),
            10 => Self::several(seed),
            11 => Self::jobs(seed),
            12 => Self::numbers(seed),
            13 => Self::cells(seed),
            14 => Self::shards(seed),
            15 => Self::hard(seed),
            _ => Self::mixed(seed),
        };
        plan.keep_the_preconditions();
        plan
    }

    /// Removes troubles that break a precondition. The promises do not cover a leader that stood
    /// still and whose next ping is late: see `docs/guarantees.md`.
    fn keep_the_preconditions(&mut self) {
        if self.pauses_a_server() {
            let is_late = |trouble: &Trouble| matches!(trouble.what, What::LatePings);
            self.troubles.retain(|trouble| !is_late(trouble));
        }
    }

    fn pauses_a_server(&self) -> bool {
        let pauses = |trouble: &Trouble| matches!(trouble.what, What::PauseServer { .. });
        self.troubles.iter().any(pauses)
    }

    /// Returns within which time a leader ends the sessions that are due at a tick: less than half a
    /// tick, and so less than a quarter of every session timeout. One that stood still ends them at
    /// once: else it might grant to one of them behind another one before it hears which of them are
    /// alive, which the promises do not cover (seed 78676534134531).
    pub(crate) fn expiry(&self) -> Duration {
        match self.pauses_a_server() {
            true => Duration::ZERO,
            false => Duration::from_millis(self.tick) * 9 / 20,
        }
    }

    /// Returns a plan with a few holders of one lock whose answers come late, when the server that
    /// gave them has already lost its leader.
    fn late(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0x1a7e);
        let mut plan = Self::mixed(seed);
        plan.servers = 3;
        plan.old = false;
        plan.timeout = plan.tick * rng.u64(6..12);
        let timeout = plan.timeout;
        plan.threads.pause = 0.0;
        plan.link = LinkPlan {
            latency: (10, 1000 * timeout / 400),
            window: 1 << 20,
            piece: usize::MAX,
        };
        let holder = |rng: &mut Rng| Step {
            rest: rng.u64(0..timeout / 2),
            lock: Lock::Mutex(0),
            limit: None,
            cancel: None,
            hold: rng.u64(timeout..4 * timeout),
            end: Release::Drop,
            panics_in_on_wait: false,
        };
        let client = |rng: &mut Rng| ClientPlan {
            starts: 0,
            dialect: Dialect::Curator,
            handoffs: 0,
            threads: vec![(0..rng.usize(1..4)).map(|_| holder(rng)).collect()],
            end: ClientEnd::Close,
        };
        plan.clients = (0..rng.usize(2..4)).map(|_| client(&mut rng)).collect();
        plan.troubles.clear();
        for _ in 0..rng.usize(1..4) {
            let at = rng.u64(0..8 * timeout);
            let lasts = rng.u64(timeout + 1..4 * timeout);
            // The last client is not slow: it takes what the others lose.
            for client in 0..plan.clients.len() - 1 {
                let most = timeout * rng.u64(30..65) / 100;
                let what = What::Slow { client, most };
                plan.troubles.push(Trouble { at, lasts, what });
            }
            plan.troubles.push(Trouble {
                at: at + rng.u64(timeout / 4..lasts),
                lasts: rng.u64(timeout..3 * timeout),
                what: What::CutServer {
                    server: rng.usize(..3),
                },
            });
        }
        plan.troubles.sort_by_key(|trouble| trouble.at);
        plan
    }

    /// Returns a plan with a few holders of one lock with a short session timeout, while servers
    /// are cut off.
    fn hard(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0x4a4d);
        let mut plan = Self::mixed(seed);
        plan.servers = 3;
        plan.timeout = plan.tick * rng.u64(2..4);
        let timeout = plan.timeout;
        let most = 1000 * timeout / rng.u64(8..40);
        plan.link.latency = (most / 20, most);
        plan.clients.truncate(3);
        for client in &mut plan.clients {
            client.threads.truncate(2);
            for step in client.threads.iter_mut().flatten() {
                step.lock = Lock::Mutex(0);
                step.limit = None;
                step.cancel = None;
                step.hold = rng.u64(timeout / 4..2 * timeout);
            }
        }
        plan.troubles.clear();
        for _ in 0..rng.usize(2..7) {
            let (client, server) = (rng.usize(..plan.clients.len()), rng.usize(..3));
            let what = match rng.u8(..6) {
                0..3 => What::CutServer { server },
                3 => What::LatePings,
                4 => What::PauseServer { server },
                _ => What::Slow {
                    client,
                    most: timeout / 2,
                },
            };
            // A leader and a follower that find each other again before they notice have late pings,
            // and a session may be due by then: the promises do not cover that.
            let least = match what {
                What::CutServer { .. } | What::PauseServer { .. } => 6 * plan.tick,
                _ => timeout / 2,
            };
            plan.troubles.push(Trouble {
                at: rng.u64(0..6 * timeout),
                lasts: rng.u64(least..least + 4 * timeout),
                what,
            });
        }
        plan.troubles.sort_by_key(|trouble| trouble.at);
        plan
    }

    /// Returns a plan with a few clients that take one lock with marks in turn, and go from server
    /// to server while a server lags.
    fn marks(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0x3a4c);
        let mut plan = Self::mixed(seed);
        plan.servers = 3;
        plan.clients.truncate(3);
        let timeout = plan.timeout;
        let steps = |rng: &mut Rng| Step {
            rest: rng.u64(0..timeout / 8),
            lock: Lock::Tracked,
            limit: None,
            cancel: None,
            hold: rng.u64(0..timeout / 8),
            end: *pick(rng, &[Release::Drop, Release::Unlock, Release::Panic]),
            panics_in_on_wait: false,
        };
        for client in &mut plan.clients {
            client.threads = vec![(0..rng.usize(3..12)).map(|_| steps(&mut rng)).collect()];
        }
        plan.troubles.clear();
        for _ in 0..rng.usize(10..40) {
            let (client, server) = (rng.usize(..plan.clients.len()), rng.usize(..3));
            let what = match rng.u8(..8) {
                0 => What::Lag {
                    server,
                    by: timeout / 4,
                },
                1 => What::CutServer { server },
                _ => What::Cut { client },
            };
            plan.troubles.push(Trouble {
                at: rng.u64(0..3 * timeout),
                lasts: rng.u64(1..timeout / 2),
                what,
            });
        }
        plan.troubles.sort_by_key(|trouble| trouble.at);
        plan
    }

    /// Returns a plan in which all threads want the slots of one job, more or less in order.
    fn jobs(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0x10b5);
        let mut plan = Self::mixed(seed);
        let few = rng.u8(..4) == 0;
        let (any_order, again) = (rng.u8(..2) == 0, rng.u8(..4) == 0);
        for thread in plan
            .clients
            .iter_mut()
            .flat_map(|client| &mut client.threads)
        {
            let mut slot = 0;
            for step in thread {
                if !few && rng.u8(..8) == 0 {
                    continue;
                }
                slot += rng.u8(..3) / (1 + u8::from(few));
                step.lock = Lock::Once(Once {
                    slot,
                    attempts: *pick(&mut rng, &[None, None, Some(1), Some(2), Some(3)]),
                    waits: rng.u8(..5) > 0,
                    any_order: any_order && rng.u8(..3) > 0,
                    again: again && rng.u8(..3) == 0,
                });
                step.end = *pick(
                    &mut rng,
                    &[
                        Release::Unlock,
                        Release::Unlock,
                        Release::Drop,
                        Release::Panic,
                    ],
                );
                step.panics_in_on_wait = false;
            }
        }
        if rng.bool() {
            plan.be_killed_often(&mut rng);
        }
        plan
    }

    /// Lets processes be killed, and requests and answers be lost, while they run the job.
    fn be_killed_often(&mut self, rng: &mut Rng) {
        let within = 2 * self.timeout.max(100);
        for client in &mut self.clients {
            if rng.bool() {
                client.end = ClientEnd::CrashAt(rng.u64(0..within));
            }
        }
        self.be_cut_often(rng, within);
    }

    /// Returns a plan in which some threads stand by where others take the lock.
    fn standbys(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0x57b);
        let mut plan = Self::mixed(seed);
        let steps = plan
            .clients
            .iter_mut()
            .flat_map(|client| &mut client.threads);
        for step in steps.flatten() {
            if rng.u8(..4) > 0 {
                step.lock = Lock::Standby(rng.u8(1..4));
            }
        }
        plan
    }

    /// Returns a plan with processes that hand one lock over while others wait for it.
    fn handovers(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0x4a0d);
        let mut plan = Self::mixed(seed);
        // An old server does not tell which nodes a session has.
        plan.old = false;
        for client in &mut plan.clients {
            client.handoffs = 0;
            client.threads.truncate(1);
            // The process that is in the middle of its work is no longer the client of the plan.
            if let ClientEnd::CloseAt(_) = client.end {
                client.end = ClientEnd::Close;
            }
            for step in client.threads.iter_mut().flatten() {
                let ends = [
                    Release::HandOver,
                    Release::HandOver,
                    Release::Unlock,
                    Release::Drop,
                ];
                step.lock = Lock::Mutex(0);
                step.end = *pick(&mut rng, &ends);
                step.panics_in_on_wait = false;
            }
        }
        plan
    }

    fn mixed(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0x5eed);
        let tick = *pick(&mut rng, &[50, 100, 500, 2000]);
        let servers = *pick(&mut rng, &[1, 3, 3, 3]);
        let timeout = tick * rng.u64(2..12);
        let clients = rng.usize(1..5);
        let calm = rng.u8(..8) == 0;
        let mut plan = Self {
            seed,
            servers,
            tick,
            timeout,
            hop: 50 + 10 * tick,
            is_timed: false,
            old: rng.u8(..10) == 0,
            keeper: false,
            containers_vanish: rng.u8(..4) == 0,
            counters_end: rng.u8(..10) == 0,
            private: rng.u8(..10) == 0,
            threads: threads(&mut rng, timeout),
            link: link(&mut rng, timeout),
            clients: (0..clients).map(|_| client(&mut rng, timeout)).collect(),
            troubles: Vec::new(),
        };
        let troubles = if calm { 0 } else { rng.usize(1..8) };
        plan.troubles = (0..troubles).map(|_| plan.trouble(&mut rng)).collect();
        plan.troubles.sort_by_key(|trouble| trouble.at);
        plan
    }

    fn trouble(&self, rng: &mut Rng) -> Trouble {
        let (client, server) = (rng.usize(..self.clients.len()), rng.usize(..self.servers));
        let around = self.timeout.max(100);
        let what = match rng.u8(..33) {
            0..5 => What::Cut { client },
            5..9 => {
                let (up, down) = *pick(rng, &[(true, true), (true, false), (false, true)]);
                What::Hold {
                    client,
                    server,
                    up,
                    down,
                }
            }
            9 => What::Slow {
                client,
                most: rng.u64(1..around),
            },
            10..14 => {
                let (bytes, up) = (rng.u64(1..2000), rng.bool());
                What::CutAfter {
                    client,
                    server,
                    bytes,
                    up,
                }
            }
            14..16 => What::Freeze { client },
            16 => What::Suspend { client },
            17 => What::Refuse { server },
            18 => What::Unknown { server },
            19 => What::SlowNames {
                by: rng.u64(1..around),
            },
            20 => What::CrashServer { server },
            21 => What::PauseServer { server },
            22 => What::CutServer { server },
            23 => What::Lag {
                server,
                by: rng.u64(1..around),
            },
            24 => What::ChangeLeader { to: server },
            25 => What::LoseReply,
            26 => What::LatePings,
            27 => What::Expire {
                nth: rng.usize(..4),
            },
            28 => What::Evict {
                nth: rng.usize(..8),
            },
            29 => What::Revoke {
                nth: rng.usize(..8),
            },
            // A server that keeps a node cannot reap what the others reap, and its numbers
            // would differ from theirs.
            30 if !self.containers_vanish => What::Ghost {
                server,
                nth: rng.usize(..8),
            },
            _ => What::Garbage {
                client,
                server,
                kind: rng.usize(..GARBAGE.len()),
            },
        };
        let most = *pick(rng, &[around / 10, around, 2 * around]);
        Trouble {
            at: rng.u64(0..4 * around),
            lasts: rng.u64(1..most.max(2)),
            what,
        }
    }

    /// Returns whether no thread ever stands still.
    pub(crate) fn is_steady(&self) -> bool {
        let stops =
            |trouble: &Trouble| matches!(trouble.what, What::Freeze { .. } | What::Suspend { .. });
        self.threads.pause == 0.0 && !self.troubles.iter().any(stops)
    }

    /// Returns whether nothing breaks, and no client ends before its calls do. Servers of version
    /// 3.4 and the last sequence numbers have refusals of their own.
    pub(crate) fn is_calm(&self) -> bool {
        let usual = !self.old && !self.counters_end && !self.hands_over() && !self.is_shared();
        usual && self.is_sound()
    }

    /// Returns whether a client is closed because another process goes on with its session.
    pub(crate) fn hands_over(&self) -> bool {
        let steps = self.clients.iter().flat_map(|client| &client.threads);
        let mut steps = steps.flatten();
        steps.any(|step| matches!(step.end, Release::HandOver))
    }

    /// Returns whether there are locks of several kinds at one path, which refuse each other.
    fn is_shared(&self) -> bool {
        let mut steps = self
            .clients
            .iter()
            .flat_map(|client| &client.threads)
            .flatten();
        steps.any(|step| matches!(step.lock, Lock::Shared(_)))
    }

    /// Returns whether nothing breaks, and no client ends by itself.
    pub(crate) fn is_sound(&self) -> bool {
        let stays = |client: &ClientPlan| matches!(client.end, ClientEnd::Close | ClientEnd::Drop);
        self.is_steady() && self.troubles.is_empty() && self.clients.iter().all(stays)
    }

    /// Returns whether a lock is kept without a process.
    pub(crate) fn has_holds(&self) -> bool {
        let threads = self.clients.iter().flat_map(|client| &client.threads);
        let mut steps = threads.flatten();
        steps.any(|step| matches!(step.lock, Lock::Hold(_)))
    }

    /// Returns how long the plan takes if no two threads hold at the same time.
    pub(crate) fn holds_for(&self) -> Duration {
        let threads = self.clients.iter().flat_map(|client| &client.threads);
        let time = |step: &Step| match step.lock {
            Lock::Standby(terms) => step.rest + step.hold * u64::from(terms),
            _ => step.rest + step.hold,
        };
        Duration::from_millis(threads.flatten().map(time).sum())
    }

    /// Returns whether an administrator deletes nodes.
    pub(crate) fn evicts(&self) -> bool {
        let evicts = |trouble: &Trouble| matches!(trouble.what, What::Evict { .. });
        self.troubles.iter().any(evicts)
    }

    /// Returns whether the plan keeps the order of queues.
    pub(crate) fn keeps_order(&self) -> bool {
        !self.evicts() && self.clients.iter().all(|client| client.handoffs == 0)
    }
}

/// Bytes that a client takes for the end of a connection: lengths that no frame has, replies to
/// nothing, and an event that is cut off.
pub(crate) const GARBAGE: [&[u8]; 6] = [
    &[0xff; 4],
    &[0x7f, 0xff, 0xff, 0xff],
    &[0; 4],
    &[0, 0, 0, 3, 1, 2, 3],
    &[0, 0, 0, 16, 0, 77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0],
    &[
        0, 0, 0, 28, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0,
        0, 3, 0, 0, 0, 9,
    ],
];

impl Trouble {
    /// Returns whether the servers and clients that it names exist.
    pub(crate) fn fits(&self, plan: &Plan) -> bool {
        match self.what {
            What::Hold { server, .. }
            | What::CutAfter { server, .. }
            | What::Refuse { server }
            | What::Unknown { server }
            | What::CrashServer { server }
            | What::PauseServer { server }
            | What::CutServer { server }
            | What::Lag { server, .. }
            | What::Ghost { server, .. }
            | What::Garbage { server, .. }
            | What::ChangeLeader { to: server } => server < plan.servers,
            _ => true,
        }
    }
}

fn pick<'a, T>(rng: &mut Rng, from: &'a [T]) -> &'a T {
    &from[rng.usize(..from.len())]
}

fn threads(rng: &mut Rng, timeout: u64) -> Threads {
    Threads {
        switch: *pick(rng, &[0.0, 0.05, 0.2, 0.5]),
        pause: *pick(rng, &[0.0, 0.0, 0.0002, 0.002]),
        longest: *pick(rng, &[1, timeout / 20, timeout]),
    }
}

fn link(rng: &mut Rng, timeout: u64) -> LinkPlan {
    let most = *pick(rng, &[200, 1000, 1000 * timeout / 60]);
    LinkPlan {
        latency: (most / 10, most.max(2)),
        window: *pick(rng, &[2048, 1 << 20, 1 << 20]),
        piece: *pick(rng, &[7, 100, usize::MAX, usize::MAX]),
    }
}

fn client(rng: &mut Rng, timeout: u64) -> ClientPlan {
    let threads = *pick(rng, &[1, 1, 2, 3, 6]);
    let around = timeout.max(100);
    ClientPlan {
        starts: 0,
        dialect: Dialect::Curator,
        handoffs: *pick(rng, &[0, 0, 0, 4]),
        threads: (0..threads)
            .map(|_| (0..rng.usize(1..5)).map(|_| step(rng, around)).collect())
            .collect(),
        end: match rng.u8(..10) {
            0 => ClientEnd::CrashAt(rng.u64(0..4 * around)),
            1 => ClientEnd::CloseAt(rng.u64(0..4 * around)),
            2..5 => ClientEnd::Drop,
            _ => ClientEnd::Close,
        },
    }
}

fn step(rng: &mut Rng, around: u64) -> Step {
    let long = *pick(rng, &[around / 50, around / 10, 2 * around]);
    Step {
        rest: rng.u64(0..around / 5),
        lock: match rng.u8(..16) {
            0..7 => Lock::Mutex(rng.u8(..2)),
            7 => Lock::Tracked,
            8 => Lock::Reentrant,
            9..11 => Lock::Read,
            11..13 => Lock::Write,
            13..15 => Lock::Permit,
            _ => *pick(rng, &[Lock::Several(0, 1), Lock::Several(1, 0)]),
        },
        limit: match rng.u8(..4) {
            0 => Some(rng.u64(0..around / 2)).map(|limit| if limit % 3 == 0 { 0 } else { limit }),
            1 => Some(rng.u64(0..5 * around)),
            _ => None,
        },
        cancel: (rng.u8(..10) == 0).then(|| rng.u64(0..around)),
        hold: rng.u64(0..long.max(1)),
        end: *pick(
            rng,
            &[
                Release::Unlock,
                Release::Unlock,
                Release::Drop,
                Release::Drop,
                Release::Drop,
                Release::Panic,
                Release::Sent,
            ],
        ),
        panics_in_on_wait: rng.u8(..40) == 0,
    }
}
