//! Holds: nodes without a session, which another program puts into a queue. Nobody gets a lock behind a hold. No
//! waiter removes a hold before its end by the servers' clock. In a quiet run, no hold stands for long after its
//! end while somebody waits.

use std::rc::Rc;
use std::time::Duration;

use zklock_core::name::may_be_hold;
use zklock_jute::{CreateMode, Request};

use crate::client::Op;
use crate::plan::ms;
use crate::servers::{Ask, Deed, Time};
use crate::world::{Happening, Life, PATHS, World};

/// The servers' time when the time of the run is 0.
const SERVERS_CLOCK: Duration = Duration::from_secs(1_700_000_000);

/// A pause by another program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pause {
    pub(crate) at: Duration,
    pub(crate) path: usize,
    /// How long the pause lasts; `None` if it is released after `released`.
    pub(crate) lasts: Option<Duration>,
    pub(crate) released: Duration,
}

/// Returns the time that the servers' clocks show.
pub(crate) fn servers_millis(now: Time) -> i64 {
    (SERVERS_CLOCK + now).as_millis() as i64
}

/// Returns whether this node is a hold.
pub(crate) fn is_hold(path: &str) -> bool {
    path.rsplit_once('/')
        .is_some_and(|(_, name)| may_be_hold(name))
}

/// Returns which pause of the plan this hold is.
fn pause_of(path: &str) -> Option<usize> {
    path.get(path.len() - 28..path.len() - 16)?.parse().ok()
}

impl World {
    /// Lets the servers carry out another program's request, if one of them leads.
    pub(crate) fn tells_servers(&mut self, request: Request) {
        let Some(leader) = self.leader() else { return };
        let ask = Ask {
            origin: None,
            session: 0,
            deed: Deed::Write(Rc::new(request)),
        };
        self.propose(leader, leader, ask);
    }

    /// Puts another program's hold at the end of a queue.
    pub(crate) fn pause(&mut self, pause: usize) {
        let Pause {
            path,
            lasts,
            released,
            ..
        } = self.plan.pauses[pause];
        let dir = PATHS[path];
        let data = match lasts {
            Some(time) => format!("{{\"hold\":{{\"for_ms\":{}}}}}", time.as_millis()),
            None => "{\"hold\":{}}".to_owned(),
        };
        let creates = [
            (dir.to_owned(), CreateMode::Persistent, String::new()),
            (
                format!("{dir}/_c_401d401d-0000-8000-8000-{pause:012}-lock-"),
                CreateMode::PersistentSequential,
                data,
            ),
        ];
        for (path, mode, data) in creates {
            self.tells_servers(Request::Create {
                path,
                data: data.into_bytes().into(),
                acl: Vec::new(),
                mode,
                stat: false,
            });
        }
        if lasts.is_none() {
            let at = self.now + released;
            self.plan(at, Happening::Release(pause));
        }
    }

    /// Releases another program's hold that has no end.
    pub(crate) fn release_pause(&mut self, pause: usize) {
        let is_it = |life: &&Life| life.is_hold && pause_of(&life.path) == Some(pause);
        let hold = self.lives.iter().find(is_it);
        let (hold, gone) = match hold {
            Some(hold) => (Some(hold.path.to_string()), hold.to.is_some()),
            None => (None, false),
        };
        if gone {
            return;
        }
        // The create of the hold, or this deletion, may not be carried out.
        let at = self.now + self.plan.timeout;
        self.plan(at, Happening::Release(pause));
        if let Some(path) = hold {
            self.tells_servers(Request::delete(path));
        }
    }

    /// Returns when a hold is over at the servers, in milliseconds since the epoch.
    fn end_of(&self, life: &Life) -> Option<i64> {
        let pause = self.plan.pauses[pause_of(&life.path)?];
        Some(life.written + pause.lasts?.as_millis() as i64)
    }

    /// Judges the deletion of a hold.
    pub(crate) fn judge_hold(&mut self, path: &str, session: i64) {
        let life = self.lives.iter().rev().find(|life| *life.path == *path);
        let Some(life) = life.filter(|_| session != 0) else {
            return;
        };
        let now = servers_millis(self.now);
        match self.end_of(life) {
            Some(end) if end <= now => {
                let late = Duration::from_millis((now - end) as u64);
                let why = self.removed_late(life, late);
                self.seen.unheld += 1;
                if let Some(why) = why {
                    self.fail(why);
                }
            }
            end => self.fail(format!("{path} is removed at {now}, and ends at {end:?}")),
        }
    }

    /// Returns a complaint if a hold stood for longer than it must while somebody waited behind it.
    fn removed_late(&self, hold: &Life, late: Duration) -> Option<String> {
        let dir = hold.path.rsplit_once('/').map_or("", |(dir, _)| dir);
        let behind = self
            .lives
            .iter()
            .filter(|life| life.is_in(dir) && life.owner != 0 && hold.number() < life.number());
        let stands = |life: &&Life| life.to.is_none();
        let first = behind
            .clone()
            .filter(stands)
            .min_by_key(|life| life.number())?;
        let waits = |op: &&Op| op.node.is_none() && op.want.tries;
        let between = behind.filter(|life| life.number() < first.number());
        let left = between.filter_map(|life| life.to).max();
        let since = left.unwrap_or(first.from).max(first.from);
        let waited = self.now.saturating_sub(since).min(late);
        let slack = self.trips(10, 16) + ms(2);
        let may_try = self.ops.iter().any(|op| waits(&op));
        (self.plan.is_quiet() && slack < waited && !may_try)
            .then(|| format!("{} stands {late:?} after its end", hold.path))
    }

    /// Returns how many holds stood ahead of this op's node.
    pub(crate) fn holds_ahead_of(&self, op: &Op) -> u32 {
        let node = op.node.as_deref();
        let holds = self.lives.iter();
        let holds = holds.filter(|life| life.is_hold && life.owner == 0);
        let ahead = holds.filter(|life| {
            let ended = op.released.unwrap_or(self.now);
            let met = life.from <= ended && life.to.is_none_or(|to| op.asked <= to);
            let before = node.is_none_or(|node| life.is_ahead_of(PATHS[op.want.path], node));
            met && before && life.is_in(PATHS[op.want.path])
        });
        ahead.count() as u32
    }
}
