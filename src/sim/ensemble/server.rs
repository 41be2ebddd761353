//! One server of the ensemble.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::connection::ConnectionNo;
use super::message::{LinkNo, SyncAsk, Transaction};
use super::tracker::SessionTracker;
use super::waiting::Waiting;
use zklock_embedded::parts::{ServerConfig, ServerView};

#[derive(Debug)]
pub(super) struct ServerNode {
    pub(super) role: Role,
    /// Grows with each change of the role; what was planned in an earlier life is void.
    pub(super) life: u64,
    pub(super) refuses: bool,
    /// Cut off from the other servers.
    pub(super) is_cut: bool,
    pub(super) paused_until: Duration,
    /// The epoch of its last leader; it survives a crash, as the log does.
    pub(super) epoch: i64,
    pub(super) log: Vec<Arc<Transaction>>,
    /// How much of the log is committed, as far as the server knows.
    pub(super) committed: usize,
    /// How much of the log the view shows.
    pub(super) applied: usize,
    /// What is to be applied, and when.
    pub(super) steps: VecDeque<(Duration, Step)>,
    pub(super) lag: Duration,
    pub(super) view: ServerView,
    /// The sessions that have begun and not ended, with the timeouts they began with.
    pub(super) sessions: BTreeMap<i64, u64>,
    /// How far its wall clock was set forward.
    pub(super) set_forward_ms: u64,
    /// When it applied the last request of each session, by its wall clock.
    pub(super) renewed: BTreeMap<i64, u64>,
    /// The sessions whose clients have sent something since the leader's last ping.
    pub(super) touched: BTreeMap<i64, u64>,
    pub(super) waiting: Waiting,
    /// The connection of each session.
    pub(super) clients: BTreeMap<i64, ConnectionNo>,
    pub(super) latest_session: i64,
    /// The nodes that it does not delete.
    pub(super) ghosts: BTreeSet<String>,
}

#[derive(Debug)]
pub(super) enum Role {
    Down,
    Looking,
    Following(Following),
    Leading(Leading),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Following {
    pub(super) link: LinkNo,
    pub(super) is_serving: bool,
    /// When the leader last sent something.
    pub(super) heard: Duration,
}

#[derive(Debug)]
pub(super) struct Leading {
    /// Of the last transaction.
    pub(super) zxid: i64,
    pub(super) tracker: SessionTracker,
    pub(super) members: BTreeMap<usize, Member>,
    /// The syncs that wait for the log to be committed up to a length.
    pub(super) syncs: Vec<(usize, LinkNo, SyncAsk)>,
    /// How far the leader's clock is ahead, so that its ticks are its own.
    pub(super) phase_ms: u64,
    /// How many half ticks it has led.
    pub(super) rounds: u64,
}

/// A follower, as its leader knows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) link: LinkNo,
    /// How much of the log it has.
    pub(super) acked: usize,
    /// When it last sent something.
    pub(super) heard: Duration,
    /// When the last ping to it leaves.
    pub(super) pinged: Duration,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// The next transaction of the log.
    Apply,
    /// The answer to a sync.
    Sync(SyncAsk),
}

impl ServerNode {
    pub(super) fn new(config: &ServerConfig) -> Self {
        Self {
            role: Role::Looking,
            life: 0,
            refuses: false,
            is_cut: false,
            paused_until: Duration::ZERO,
            epoch: 0,
            log: Vec::new(),
            committed: 0,
            applied: 0,
            steps: VecDeque::new(),
            lag: Duration::ZERO,
            view: ServerView::new(0, config.counters.clone()),
            sessions: BTreeMap::new(),
            set_forward_ms: 0,
            renewed: BTreeMap::new(),
            touched: BTreeMap::new(),
            waiting: Waiting::default(),
            clients: BTreeMap::new(),
            latest_session: 0,
            ghosts: BTreeSet::new(),
        }
    }

    pub(super) fn is_serving(&self) -> bool {
        match &self.role {
            Role::Down | Role::Looking => false,
            Role::Following(following) => following.is_serving,
            Role::Leading(_) => true,
        }
    }

    pub(super) fn is_looking(&self) -> bool {
        matches!(self.role, Role::Looking)
    }

    pub(super) fn leading(&mut self) -> Option<&mut Leading> {
        match &mut self.role {
            Role::Leading(leading) => Some(leading),
            _ => None,
        }
    }

    pub(super) fn following(&mut self) -> Option<&mut Following> {
        match &mut self.role {
            Role::Following(following) => Some(following),
            _ => None,
        }
    }

    pub(super) fn leads(&self) -> bool {
        matches!(self.role, Role::Leading(_))
    }

    /// The number of the last transaction in the log.
    pub(super) fn last_logged(&self) -> i64 {
        self.log.last().map_or(0, |last| last.zxid)
    }

    pub(super) fn begin_session(&mut self, session: i64, timeout_ms: u64) {
        self.sessions.insert(session, timeout_ms);
        if self.following().is_some() {
            // Every follower touches a session that it sees begin.
            self.touched.insert(session, timeout_ms);
        }
    }

    pub(super) fn end_session(&mut self, session: i64) {
        self.sessions.remove(&session);
        self.touched.remove(&session);
        if let Some(leading) = self.leading() {
            leading.tracker.remove(session);
        }
    }

    /// Begins another role; what was planned in the former is void.
    pub(super) fn change_role(&mut self, role: Role) {
        self.role = role;
        self.life += 1;
        self.steps.clear();
        self.touched.clear();
        self.waiting = Waiting::default();
    }
}
