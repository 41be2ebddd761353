//! The plan that a seed stands for: what each thread wants and when, and what goes wrong.

use std::fmt;
use std::time::Duration;

use fastrand::Rng;
use zklock_core::dialect::Role;

use crate::holds::Pause;
use crate::servers::SERVERS;

/// The plan of one run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The time of a message between client and server.
    pub(crate) trip: Duration,
    /// How much longer such a message may take.
    pub(crate) jitter: Duration,
    /// The longest time of a message between servers.
    pub(crate) hop: Duration,
    pub(crate) tick: Duration,
    pub(crate) timeout: Duration,
    /// The timeouts that the servers grant; they need not have the same limits.
    pub(crate) grants: [Duration; SERVERS],
    /// How long the leader takes at most to end the sessions of a tick.
    pub(crate) expiry: Duration,
    pub(crate) clients: Vec<Vec<Script>>,
    pub(crate) local_handoffs: u32,
    /// How many permits the semaphores have; 0 if threads want locks.
    pub(crate) permits: [u32; 2],
    /// Whether every second client was told one permit more.
    pub(crate) disagrees: bool,
    /// Whether threads write under their locks.
    pub(crate) writes: bool,
    /// Whether releases leave notes.
    pub(crate) notes: bool,
    pub(crate) pauses: Vec<Pause>,
    pub(crate) troubles: Vec<Trouble>,
    /// Whether threads want to know whom they wait for.
    pub(crate) follows: bool,
}

/// The locks that a thread wants, one after the other.
pub(crate) type Script = Vec<Want>;

/// A lock that a thread wants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want {
    pub(crate) pause: Duration,
    pub(crate) path: usize,
    /// Whether to be alone, to read, or to write.
    pub(crate) role: Role,
    pub(crate) tries: bool,
    pub(crate) limit: Option<Duration>,
    pub(crate) cancel_after: Option<Duration>,
    pub(crate) hold: Duration,
    /// Whether the thread asks the quorum in the middle of the hold.
    pub(crate) verifies: bool,
    /// Whether the thread waits for the end of its release.
    pub(crate) unlocks: bool,
    /// Whether the thread writes in the middle of the hold.
    pub(crate) commits: bool,
    /// Whether the thread writes with its release.
    pub(crate) leaves: bool,
    /// Whether the servers refuse its writes.
    pub(crate) is_refused: bool,
}

/// Something that goes wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trouble {
    pub(crate) at: Duration,
    pub(crate) what: What,
    /// How long it lasts, if it takes time.
    pub(crate) time: Duration,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    /// The connection of a client breaks; the messages that it has sent arrive, or do not.
    Break {
        client: usize,
        arrives: bool,
    },
    /// The next write of a client is carried out, and its connection ends instead of an answer.
    LoseReply {
        client: usize,
    },
    /// Nothing arrives between a client and its server for a while.
    Delay {
        client: usize,
    },
    /// A client's process does nothing for a while.
    Stop {
        client: usize,
    },
    /// A client's ticks come late.
    LateTicks {
        client: usize,
    },
    /// Another client deletes a node that a client has in a queue.
    Evict {
        client: usize,
    },
    /// Another client asks somebody in a queue to release the lock.
    Revoke,
    /// The connection of a client ends without telling the client.
    Vanish {
        client: usize,
    },
    /// A client is closed.
    Close {
        client: usize,
    },
    /// A server does nothing for a while.
    Freeze {
        server: usize,
    },
    /// A server is cut off from the others.
    Cut {
        server: usize,
    },
    /// A server applies changes later.
    Lag {
        server: usize,
    },
    Crash {
        server: usize,
    },
    /// The leader resigns.
    Resign,
    /// Another program writes into the directory of a lock.
    Write {
        path: usize,
    },
    /// A server refuses some of a client's requests, as it has too many.
    Throttle {
        client: usize,
    },
    /// The servers' answers to a client's connect requests are lost, until the client gives its session up.
    Unheard {
        client: usize,
    },
    /// The servers delete a directory if it is empty.
    Tidy {
        path: usize,
    },
    /// The disks of the servers take this long to write.
    SlowDisks {
        takes: Duration,
    },
}

impl Plan {
    pub(crate) fn of(seed: u64) -> Self {
        let mut chance = Rng::with_seed(seed);
        let chance = &mut chance;
        let is_quiet = seed % 3 == 0;
        let timeout = ms(chance
            .choice([4_000, 4_000, 6_000, 12_000])
            .unwrap_or(4_000));
        let hold = match chance.u8(..4) {
            0 => timeout,
            _ => ms(60),
        };
        let clients = (0..chance.usize(1..=3)).map(|_| threads(chance, hold));
        let clients: Vec<_> = clients.collect();
        let trip = us(chance.u64(200..5_000));
        let mut plan = Self {
            trip,
            jitter: match chance.bool() {
                true => Duration::ZERO,
                false => us(chance.u64(1..3_000)),
            },
            hop: us(chance.u64(100..1_000)),
            tick: ms(2_000),
            timeout,
            grants: [timeout; SERVERS],
            expiry: match chance.u8(..3) {
                0 => timeout / 4,
                _ => Duration::ZERO,
            },
            local_handoffs: chance.choice([0, 0, 2]).unwrap_or(0),
            permits: [0; 2],
            disagrees: false,
            writes: seed % 4 == 1,
            notes: seed % 4 == 2 || seed % 16 == 5,
            pauses: Vec::new(),
            troubles: Vec::new(),
            follows: true,
            clients,
        };
        if !is_quiet {
            if chance.u8(..4) == 0 {
                let more = chance.choice([3_000, 9_000]).unwrap_or(3_000);
                plan.grants = [(); SERVERS].map(|()| timeout + ms(chance.u64(..2) * more));
            }
            let span = hold * 4 + ms(200);
            let count = plan.clients.len();
            plan.troubles = troubles(chance, count, span, timeout);
            plan.troubles.extend(end(chance, count, span));
        }
        if seed % 24 == 12 {
            // Two of these trips take up to T/18.
            plan.trip = timeout / Rng::with_seed(!seed).u32(36..80);
        }
        if seed % 8 == 4 {
            plan.add_wants(&mut Rng::with_seed(!seed), hold);
        }
        if seed % 5 == 2 && !plan.notes {
            plan.add_roles(&mut Rng::with_seed(!seed));
        }
        if seed % 10 == 5 {
            plan.add_permits(&mut Rng::with_seed(!seed), hold);
        }
        plan.add_writes(&mut Rng::with_seed(!seed), hold);
        if [7, 13].contains(&(seed % 16)) {
            plan.add_refusals(&mut Rng::with_seed(!seed), hold);
        }
        // Readers do not watch each other, so several of them may remove a hold.
        if seed % 4 == 3 && !plan.mixes_roles() {
            plan.add_pauses(&mut Rng::with_seed(!seed), hold);
        }
        plan
    }

    /// Adds wants, so that threads go on when nothing breaks any more.
    pub(crate) fn add_wants(&mut self, chance: &mut Rng, hold: Duration) {
        if self.is_quiet() {
            return;
        }
        let timeout = self.timeout;
        for script in self.clients.iter_mut().flatten() {
            for _ in 0..3 {
                let pause = timeout * chance.u32(0..12) / 2;
                let hold = match chance.bool() {
                    true => timeout * chance.u32(0..100) / 100,
                    false => hold,
                };
                script.push(Want {
                    pause,
                    hold,
                    ..want(chance, 2, hold)
                });
            }
        }
    }

    /// Threads read and write; at the second path, some want to be alone too.
    fn add_roles(&mut self, chance: &mut Rng) {
        for want in self.clients.iter_mut().flatten().flatten() {
            let first = match want.path {
                0 => Role::Read,
                _ => Role::Exclusive,
            };
            let roles = [first, Role::Read, Role::Write];
            want.role = chance.choice(roles).unwrap_or(first);
        }
    }

    /// Servers have too many requests, and delete the directories that nobody uses.
    pub(crate) fn add_refusals(&mut self, chance: &mut Rng, hold: Duration) {
        if self.is_quiet() {
            return;
        }
        let up_to = |chance: &mut Rng, time: Duration| {
            Duration::from_nanos(chance.u64(0..time.as_nanos() as u64))
        };
        let span = hold * 4 + ms(200);
        for _ in 0..chance.usize(1..4) {
            let (at, time) = (up_to(chance, span), up_to(chance, self.timeout / 4));
            let client = chance.usize(..self.clients.len());
            let what = What::Throttle { client };
            self.troubles.push(Trouble { at, what, time });
        }
        for _ in 0..chance.usize(1..12) {
            let (at, time) = (up_to(chance, span), Duration::ZERO);
            let path = chance.usize(..2);
            let what = What::Tidy { path };
            self.troubles.push(Trouble { at, what, time });
        }
    }

    /// Adds the writes of threads, and those of another program.
    fn add_writes(&mut self, chance: &mut Rng, hold: Duration) {
        let quiet = self.is_quiet();
        let writes = self.writes;
        for want in self
            .clients
            .iter_mut()
            .flatten()
            .flatten()
            .filter(|_| writes)
        {
            want.commits = chance.bool() && want.role != Role::Read;
            want.verifies &= !want.commits;
            want.leaves = want.unlocks && chance.bool();
            // A refused write delays the create of the next thread, which goes along with the
            // release.
            want.is_refused = chance.u8(..5) == 0 && (!quiet || !want.leaves);
        }
        if self.notes && !quiet && chance.u8(..3) == 0 {
            let at = Duration::from_nanos(chance.u64(0..hold.as_nanos() as u64 * 4));
            let what = What::Write {
                path: chance.usize(..2),
            };
            let time = Duration::ZERO;
            self.troubles.push(Trouble { at, what, time });
        }
    }

    /// Adds the holds of another program.
    fn add_pauses(&mut self, chance: &mut Rng, hold: Duration) {
        let up_to = |chance: &mut Rng, time: Duration| {
            Duration::from_nanos(chance.u64(0..time.as_nanos() as u64))
        };
        let one = |_| Pause {
            at: up_to(chance, hold * 2),
            path: chance.usize(..2),
            lasts: (chance.u8(..5) != 0).then(|| up_to(chance, hold * 2)),
            released: up_to(chance, hold),
        };
        self.pauses = (0..2).map(one).collect();
    }

    /// Returns whether threads read and write.
    pub(crate) fn mixes_roles(&self) -> bool {
        let mut wants = self.clients.iter().flatten().flatten();
        wants.any(|want| want.role != Role::Exclusive)
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.troubles.is_empty()
    }

    /// Returns the shortest and the longest timeout that a session may have.
    pub(crate) fn granted(&self) -> (Duration, Duration) {
        let [shortest, longest] = [self.grants.iter().min(), self.grants.iter().max()]
            .map(|timeout| timeout.copied().unwrap_or_default());
        (shortest, longest)
    }

    /// Returns how long a follower and its leader go on without each other.
    pub(crate) fn patience(&self) -> Duration {
        self.tick * 3
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            trip,
            jitter,
            hop,
            grants,
            expiry,
            local_handoffs,
            ..
        } = self;
        writeln!(
            f,
            "a trip takes {trip:?} and up to {jitter:?} more, a hop {hop:?}; sessions {grants:?}, ended within \
             {expiry:?}; {local_handoffs} hand-overs among threads"
        )?;
        for (client, threads) in self.clients.iter().enumerate() {
            for (thread, script) in threads.iter().enumerate() {
                for want in script {
                    writeln!(f, "c{client}.{thread}: {want:?}")?;
                }
            }
        }
        for pause in &self.pauses {
            writeln!(f, "{pause:?}")?;
        }
        for Trouble { at, what, time } in &self.troubles {
            writeln!(f, "{what:?} at {at:?} for {time:?}")?;
        }
        Ok(())
    }
}

fn threads(chance: &mut Rng, hold: Duration) -> Vec<Script> {
    let threads = chance.choice([1, 1, 2, 3]).unwrap_or(1);
    let paths = chance.usize(1..=2);
    (0..threads)
        .map(|_| {
            let count = chance.usize(1..=3);
            (0..count).map(|_| want(chance, paths, hold)).collect()
        })
        .collect()
}

fn want(chance: &mut Rng, paths: usize, hold: Duration) -> Want {
    let up_to = |chance: &mut Rng, time: Duration| {
        Duration::from_nanos(chance.u64(0..=time.as_nanos() as u64))
    };
    Want {
        pause: match chance.bool() {
            true => up_to(chance, hold),
            false => us(chance.u64(..2_000)),
        },
        path: chance.usize(..paths),
        role: Role::Exclusive,
        tries: chance.u8(..8) == 0,
        limit: (chance.u8(..4) == 0).then(|| up_to(chance, hold * 2)),
        cancel_after: (chance.u8(..10) == 0).then(|| up_to(chance, hold)),
        hold: match chance.bool() {
            true => up_to(chance, hold),
            false => us(chance.u64(..500)),
        },
        verifies: chance.u8(..6) == 0,
        unlocks: chance.bool(),
        commits: false,
        leaves: false,
        is_refused: false,
    }
}

fn troubles(chance: &mut Rng, clients: usize, span: Duration, timeout: Duration) -> Vec<Trouble> {
    let count = chance.usize(1..=5);
    let one = |_| {
        let client = chance.usize(..clients);
        let server = chance.usize(..SERVERS);
        let what = match chance.u8(..20) {
            0..3 => What::Break {
                client,
                arrives: chance.bool(),
            },
            3..6 => What::LoseReply { client },
            6 => What::Delay { client },
            7..9 => What::Stop { client },
            9 => What::LateTicks { client },
            10 | 19 => What::Evict { client },
            11 => What::Freeze { server },
            12 => What::Cut { server },
            13 => What::Lag { server },
            14 => What::Crash { server },
            15 | 16 => What::Revoke,
            17 => What::Vanish { client },
            _ => What::Resign,
        };
        let at = Duration::from_nanos(chance.u64(0..span.as_nanos() as u64));
        let longest = match what {
            What::LateTicks { .. } => timeout / 3,
            What::Lag { .. } => timeout,
            _ => timeout * 5 / 2,
        };
        let time = Duration::from_nanos(chance.u64(0..longest.as_nanos() as u64));
        Trouble { at, what, time }
    };
    (0..count).map(one).collect()
}

/// Returns the end of a client, in one plan of eight.
fn end(chance: &mut Rng, clients: usize, span: Duration) -> Option<Trouble> {
    let ends = chance.u8(..8) == 0;
    ends.then(|| Trouble {
        what: What::Close {
            client: chance.usize(..clients),
        },
        at: Duration::from_nanos(chance.u64(0..span.as_nanos() as u64)),
        time: Duration::ZERO,
    })
}

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}
