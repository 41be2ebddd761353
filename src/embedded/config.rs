//! The settings of a server.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use super::sessions::Timeouts;

#[derive(Clone, Debug)]
pub(super) struct ServerConfig {
    pub(super) listen: IpAddr,
    /// 0 stands for any free port.
    pub(super) port: u16,
    pub(super) max_frame: usize,
    pub(super) max_connections: usize,
    pub(super) container_check: Duration,
    pub(super) without_create2: bool,
    pub(super) without_containers: bool,
    /// Where the counters of directories start that are not created yet.
    pub(super) counters: HashMap<String, i32>,
    pub(super) tick: Duration,
    pub(super) min_session_timeout: Option<Duration>,
    pub(super) max_session_timeout: Option<Duration>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: Ipv4Addr::LOCALHOST.into(),
            port: 0,
            max_frame: 0xf_ffff,
            max_connections: 1000,
            container_check: Duration::from_secs(60),
            without_create2: false,
            without_containers: false,
            counters: HashMap::new(),
            tick: Duration::from_secs(2),
            min_session_timeout: None,
            max_session_timeout: None,
        }
    }
}

impl ServerConfig {
    pub(super) fn timeouts(&self) -> Timeouts {
        let min = self
            .min_session_timeout
            .unwrap_or_else(|| self.tick.saturating_mul(2));
        let max = self
            .max_session_timeout
            .unwrap_or_else(|| self.tick.saturating_mul(20));
        Timeouts {
            tick_ms: millis(self.tick),
            min_ms: millis(min),
            max_ms: millis(max.max(min)),
        }
    }

    /// Returns how long a client may take for its first frame.
    pub(super) fn handshake_limit(&self) -> Duration {
        Duration::from_millis(self.timeouts().max_ms)
    }
}

/// Returns milliseconds, as many as a session timeout can have.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).map_or(i32::MAX as u64, |ms| ms.min(i32::MAX as u64))
}
