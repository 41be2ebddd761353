//! The settings of an ensemble.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use zklock_embedded::parts::ServerConfig;

/// The settings of an [`Ensemble`](super::Ensemble).
#[derive(Clone, Debug)]
pub struct EnsembleConfig {
    /// How many servers there are. Defaults to 3.
    pub servers: usize,
    /// The unit of time: sessions end at whole ticks of the leader. Defaults to 2 s.
    pub tick: Duration,
    /// The shortest session timeout that a client gets. Defaults to two ticks.
    pub min_session_timeout: Option<Duration>,
    /// The longest session timeout that a client gets. Defaults to twenty ticks.
    pub max_session_timeout: Option<Duration>,
    /// For how many ticks a follower and its leader go on without each other. Defaults to 5.
    pub sync_limit: u32,
    /// How long a message takes from one server to another. Defaults to 0.1 ms to 2 ms.
    pub hop: RangeInclusive<Duration>,
    /// How long a server takes to find a leader, or the servers to elect one. Defaults to
    /// 200 ms to 1 s.
    pub election: RangeInclusive<Duration>,
    /// Whether the servers are of version 3.4, without `create2`, containers and everything
    /// newer. Defaults to `false`.
    pub old: bool,
    /// Whether the servers have the session rules of ClickHouse Keeper: no session is resumed, only
    /// committed requests prolong one, and a server counts by its own wall clock from when it
    /// applied them. Defaults to `false`.
    pub keeper: bool,
    /// At which number the sequence of a directory starts. Defaults to none.
    pub counters: BTreeMap<String, i32>,
    /// How often containers that have lost their last child are removed. Defaults to 60 s.
    pub container_check: Duration,
    /// How long the leader takes at most to end the sessions of a tick. Until it comes to a
    /// session, that session is served, and its touches are lost. Defaults to zero.
    pub expiry: Duration,
    /// The longest frame that a client may send, in bytes. Defaults to 1,048,575.
    pub max_frame: usize,
}

impl Default for EnsembleConfig {
    fn default() -> Self {
        Self {
            servers: 3,
            tick: Duration::from_secs(2),
            min_session_timeout: None,
            max_session_timeout: None,
            sync_limit: 5,
            hop: Duration::from_micros(100)..=Duration::from_millis(2),
            election: Duration::from_millis(200)..=Duration::from_secs(1),
            old: false,
            keeper: false,
            counters: BTreeMap::new(),
            container_check: Duration::from_secs(60),
            expiry: Duration::ZERO,
            max_frame: 0xf_ffff,
        }
    }
}

impl EnsembleConfig {
    /// Returns the part that each server has by itself.
    pub(super) fn of_server(&self) -> ServerConfig {
        ServerConfig {
            max_frame: self.max_frame,
            container_check: self.container_check,
            without_create2: self.old,
            without_containers: self.old,
            counters: self.counters.clone().into_iter().collect(),
            tick: self.tick,
            min_session_timeout: self.min_session_timeout,
            max_session_timeout: self.max_session_timeout,
            ..ServerConfig::default()
        }
    }

    pub(super) fn quorum(&self) -> usize {
        self.servers / 2 + 1
    }

    /// Returns how long a follower and its leader go on without each other.
    pub(super) fn patience(&self) -> Duration {
        self.tick.saturating_mul(self.sync_limit)
    }
}
