//! The configuration that tests use.

use super::*;

impl Config {
    /// Returns a plain configuration without credentials.
    pub(crate) fn plain(hosts: &str, session_timeout: Duration) -> Self {
        Self {
            hosts: Hosts::parse(hosts).unwrap(),
            session_timeout,
            connect_timeout: Duration::MAX,
            ..Self::default()
        }
    }
}
