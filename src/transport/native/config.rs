//! What a user says about the connection.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::cipher::Security;
use super::hosts::Hosts;
use crate::jute::Secret;

/// What ZooKeeper calls jute.maxbuffer, and its default.
pub(crate) const FRAME_LIMIT: usize = 0xf_ffff;
/// What it may be set to: less leaves no room for the crate's own requests, and a longer
/// frame is not believed.
pub(crate) const FRAME_LIMITS: RangeInclusive<usize> = 256 * 1024..=512 * 1024 * 1024;

/// How to reach the servers, and as whom.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) hosts: Hosts,
    /// What to ask for; the server decides.
    pub(crate) session_timeout: Duration,
    pub(crate) auth: Vec<Credentials>,
    /// The longest request, and about the longest reply.
    pub(crate) frame_limit: usize,
    /// Absent for a plain connection.
    pub(crate) tls: Option<Security>,
}

/// Who we are, in one of ZooKeeper's schemes.
#[derive(Clone, Debug)]
pub(crate) struct Credentials {
    pub(crate) scheme: String,
    pub(crate) secret: Secret,
}
