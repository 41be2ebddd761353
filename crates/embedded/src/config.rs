//! The settings of a server.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use super::node::TTL;
use super::sessions::Timeouts;
use zklock_jute::{CreateMode, OpCode, Request};

#[derive(Clone, Debug)]
pub struct ServerConfig {
    pub listen: IpAddr,
    /// 0 stands for any free port.
    pub port: u16,
    /// The folder where the changes are kept.
    pub data: Option<PathBuf>,
    pub max_frame: usize,
    pub max_connections: usize,
    pub container_check: Duration,
    pub without_create2: bool,
    pub without_containers: bool,
    /// The user who may do everything, with a hash, as in an access control list.
    pub super_digest: Option<String>,
    /// Whether nodes may have a time to live.
    pub extended_types: bool,
    /// The initial counters of directories that are not created yet.
    pub counters: HashMap<String, i32>,
    pub tick: Duration,
    pub min_session_timeout: Option<Duration>,
    pub max_session_timeout: Option<Duration>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: Ipv4Addr::LOCALHOST.into(),
            port: 0,
            data: None,
            max_frame: 0xf_ffff,
            max_connections: 1000,
            container_check: Duration::from_secs(60),
            without_create2: false,
            without_containers: false,
            super_digest: None,
            extended_types: false,
            counters: HashMap::new(),
            tick: Duration::from_secs(2),
            min_session_timeout: None,
            max_session_timeout: None,
        }
    }
}

impl ServerConfig {
    pub fn timeouts(&self) -> Timeouts {
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

    /// Turns a request that an older server does not know into an unknown one.
    pub fn understood(&self, request: Request) -> Request {
        let unknown = match request.op() {
            OpCode::CREATE2 => self.without_create2,
            OpCode::CREATE_CONTAINER => self.without_containers,
            _ => false,
        };
        if unknown {
            Request::Unknown(request.op())
        } else {
            request
        }
    }

    /// Returns the mode as a server of this configuration takes it.
    pub fn known(&self, mode: CreateMode) -> CreateMode {
        match mode {
            CreateMode::Ttl { flag, .. } if TTL.contains(&flag) && !self.extended_types => {
                CreateMode::Other(flag)
            }
            // A node of these kinds must have a time.
            CreateMode::Other(flag) if self.extended_types => CreateMode::Ttl { flag, ms: -1 },
            _ => mode,
        }
    }

    /// Returns the length that the head of a frame announces, if such a frame is allowed.
    pub fn frame_length(&self, head: [u8; 4]) -> Option<usize> {
        let length = usize::try_from(i32::from_be_bytes(head)).ok()?;
        (length <= self.max_frame).then_some(length)
    }

    /// Returns how long a client may take for its first frame.
    pub fn handshake_limit(&self) -> Duration {
        Duration::from_millis(self.timeouts().max_ms)
    }
}

/// Returns milliseconds, at most as many as a session timeout can have.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).map_or(i32::MAX as u64, |ms| ms.min(i32::MAX as u64))
}
