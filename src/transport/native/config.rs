//! The user's settings of the connection.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::cipher::Security;
use super::hosts::Hosts;
use crate::transport::handover::Inherited;
use zklock_core::connection::link::PINGS;
use zklock_jute::Secret;

/// The default of the frame limit, which ZooKeeper calls `jute.maxbuffer`.
pub(crate) const FRAME_LIMIT: usize = 0xf_ffff;
/// The range of the frame limit: a lower one leaves no room for the crate's own requests, and a
/// higher one comes near the length that counts as an error.
pub(crate) const FRAME_LIMITS: RangeInclusive<usize> = 256 * 1024..=512 * 1024 * 1024;

/// How to reach the servers, and with which credentials.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) hosts: Hosts,
    /// The timeout to ask for; the server decides.
    pub(crate) session_timeout: Duration,
    /// How long the user waits for the first connection.
    pub(crate) connect_timeout: Duration,
    /// The timeout that any server grants at least, if it may be less than what others have granted.
    pub(crate) granted_at_least: Option<Duration>,
    /// Whether a server may end sessions by a wall clock, which may be set.
    pub(crate) wall_clock_expiry: bool,
    /// Whether to dial the servers that the ensemble's own configuration names.
    pub(crate) follow_reconfiguration: bool,
    /// How many pings the client sends in a session timeout while it watches nothing.
    pub(crate) idle_pings: u32,
    pub(crate) auth: Vec<Credentials>,
    /// The longest request, and about the longest reply.
    pub(crate) frame_limit: usize,
    /// A session of another process, to be continued.
    pub(crate) inherited: Option<Inherited>,
    /// The TLS settings; absent for a plain connection.
    pub(crate) tls: Option<Security>,
    /// The SASL login; absent if the client does not log in.
    #[cfg(feature = "sasl")]
    pub(crate) sasl: Option<super::sasl::Login>,
}

impl Default for Config {
    /// Returns the defaults, without servers.
    fn default() -> Self {
        Self {
            hosts: Hosts::default(),
            session_timeout: Duration::from_secs(20),
            connect_timeout: Duration::from_secs(15),
            granted_at_least: None,
            wall_clock_expiry: false,
            follow_reconfiguration: false,
            idle_pings: PINGS,
            auth: Vec::new(),
            frame_limit: FRAME_LIMIT,
            inherited: None,
            tls: None,
            #[cfg(feature = "sasl")]
            sasl: None,
        }
    }
}

/// Credentials in one of ZooKeeper's schemes.
#[derive(Clone, Debug)]
pub(crate) struct Credentials {
    pub(crate) scheme: String,
    pub(crate) secret: Secret,
}

impl Credentials {
    /// Returns whether the credentials are for a SASL login, which servers accept only by other requests.
    pub(crate) fn are_of_a_login(&self) -> bool {
        self.scheme.trim().eq_ignore_ascii_case("sasl")
    }
}

#[cfg(test)]
mod tests;
