//! Plans with locks that outlive a process, and work that is divided among processes: holds,
//! numbers and shards.

use super::{ClientEnd, HELD, Hold, Lock, Once, Plan, Release, Rng, Step, Trouble, What, pick};

impl Plan {
    /// Returns a plan in which all threads want the locks of one queue, and some make holds there
    /// and release them.
    pub(super) fn holds(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0x401d);
        let mut plan = Self::mixed(seed);
        plan.counters_end = false;
        let (on, timeout) = (rng.usize(..HELD.len()), plan.timeout);
        let threads = plan
            .clients
            .iter_mut()
            .flat_map(|client| &mut client.threads);
        for step in threads.flatten() {
            step.lock = match rng.u8(..3) {
                0 => Lock::Hold(hold(&mut rng, on, timeout)),
                _ => held(&mut rng, on),
            };
            if rng.bool() {
                (step.limit, step.cancel) = (None, None);
            }
            if let Lock::Once(_) = step.lock {
                step.panics_in_on_wait = false;
            }
        }
        match rng.u8(..4) {
            0 => plan.be_behind_a_row(&mut rng, on),
            // In these plans, answers are lost.
            1 | 2 => plan.be_cut_often(&mut rng, timeout),
            _ => {}
        }
        plan
    }

    /// Lets everybody wait behind a hold without an end, and behind one that ends before the first
    /// one is released.
    fn be_behind_a_row(&mut self, rng: &mut Rng, on: usize) {
        let timeout = self.timeout.max(100);
        let row = [(None, Some(timeout)), (Some(rng.u64(0..timeout)), None)];
        let makes = |at: usize| {
            let (lasts, released_after) = row[at];
            let hold = Hold {
                on,
                in_place: false,
                lasts,
                until: false,
                released_after,
            };
            wait(1 + timeout / 20 * at as u64, Lock::Hold(hold))
        };
        let waits = |rng: &mut Rng| match on {
            1 => Lock::Write,
            _ => held(rng, on),
        };
        self.clients[0].threads = vec![vec![makes(0)], vec![makes(1)]];
        for client in &mut self.clients[1..] {
            client.threads = vec![vec![wait(timeout / 4, waits(rng))]];
        }
        let mine = wait(timeout / 4, waits(rng));
        self.clients[0].threads.push(vec![mine]);
    }

    /// Lets requests be lost, and answers to those that were carried out.
    pub(super) fn be_cut_often(&mut self, rng: &mut Rng, within: u64) {
        for _ in 0..rng.usize(10..30) {
            let client = rng.usize(..self.clients.len());
            let (at, lasts) = (rng.u64(0..within), rng.u64(1..within / 8 + 2));
            match rng.u8(..4) {
                0 => {
                    let what = What::Cut { client };
                    self.troubles.push(Trouble { at, lasts, what });
                }
                1 => {
                    let (bytes, up) = (rng.u64(1..3000), rng.u8(..4) > 0);
                    for server in 0..self.servers {
                        let what = What::CutAfter {
                            client,
                            server,
                            bytes,
                            up,
                        };
                        self.troubles.push(Trouble { at, lasts, what });
                    }
                }
                _ => {
                    let what = What::LoseAnswer { multi: rng.bool() };
                    self.troubles.push(Trouble { at, lasts, what });
                }
            }
        }
        self.troubles.sort_by_key(|trouble| trouble.at);
    }

    /// Returns a plan in which all threads want permits of one semaphore, and ask for their
    /// numbers.
    pub(super) fn numbers(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0x9e41);
        let mut plan = Self::mixed(seed);
        let timeout = plan.timeout;
        let threads = plan
            .clients
            .iter_mut()
            .flat_map(|client| &mut client.threads);
        for step in threads.flatten() {
            step.lock = Lock::Numbered;
            if rng.bool() {
                (step.limit, step.cancel) = (None, None);
            }
        }
        if rng.bool() {
            plan.be_cut_often(&mut rng, timeout);
        }
        plan
    }

    /// Returns a plan in which members come and go, and share a few shards. Where nothing breaks,
    /// they stay for longer: each must get its part.
    pub(super) fn shards(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0x54a2);
        let mut plan = Self::mixed(seed);
        let (count, calm, timeout) = (rng.u8(1..8), rng.bool(), plan.timeout);
        if calm {
            plan.troubles.clear();
            plan.threads.pause = 0.0;
            (plan.old, plan.counters_end) = (false, false);
        }
        let stays = match calm {
            true => 2 * timeout + 2000..4 * timeout + 4000,
            false => 0..4 * timeout,
        };
        for client in &mut plan.clients {
            client.starts = rng.u64(0..timeout);
            if calm {
                client.end = ClientEnd::Close;
            }
            let step = |rng: &mut Rng| Step {
                rest: rng.u64(0..timeout / 2),
                lock: Lock::Shards(count),
                limit: None,
                cancel: None,
                hold: rng.u64(stays.clone()),
                end: *pick(
                    rng,
                    &[
                        Release::Unlock,
                        Release::Drop,
                        Release::Sent,
                        Release::Panic,
                    ],
                ),
                panics_in_on_wait: false,
            };
            let most = if calm { 2 } else { 3 };
            client.threads = vec![(0..rng.usize(1..most)).map(|_| step(&mut rng)).collect()];
        }
        plan
    }
}

/// Returns a step that waits without a limit, and holds for a moment.
fn wait(rest: u64, lock: Lock) -> Step {
    Step {
        rest,
        lock,
        limit: None,
        cancel: None,
        hold: 5,
        end: Release::Unlock,
        panics_in_on_wait: false,
    }
}

fn hold(rng: &mut Rng, on: usize, timeout: u64) -> Hold {
    let lasts = match rng.u8(..3) {
        0 => None,
        1 => Some(rng.u64(0..timeout / 2)),
        _ => Some(rng.u64(0..3 * timeout)),
    };
    // A hold that nobody releases keeps all others waiting until nothing is broken any more.
    let stays = rng.u8(..if lasts.is_some() { 2 } else { 8 }) == 0;
    Hold {
        on,
        in_place: rng.bool(),
        lasts,
        until: rng.bool(),
        released_after: (!stays).then(|| rng.u64(0..timeout)),
    }
}

fn held(rng: &mut Rng, on: usize) -> Lock {
    match on {
        0 => *pick(
            rng,
            &[
                Lock::Mutex(0),
                Lock::Mutex(0),
                Lock::Mutex(0),
                Lock::Several(0, 1),
                Lock::Several(1, 0),
                Lock::Standby(1),
            ],
        ),
        1 => *pick(rng, &[Lock::Read, Lock::Read, Lock::Write]),
        2 => Lock::Once(Once {
            slot: rng.u8(..6),
            attempts: None,
            waits: rng.u8(..5) > 0,
            any_order: false,
            again: false,
        }),
        _ => Lock::Tracked,
    }
}
