//! A session's id and password.

use std::time::Duration;

use crate::transport::session_key::SessionKey;
use zklock_jute::{ConnectRequest, Secret};

/// The session as the server knows it; the id and the password are enough to use it.
#[derive(Default)]
pub(super) struct Identity {
    pub(super) id: i64,
    pub(super) password: Vec<u8>,
    pub(super) last_zxid: i64,
}

impl Identity {
    /// The session of another process; only that process knows the zxid it has seen.
    pub(super) fn of(key: SessionKey) -> Self {
        Self {
            id: key.id,
            password: key.password.0,
            last_zxid: 0,
        }
    }

    /// Asks a server for the session, or for a new one if there is none.
    pub(super) fn request(&self, timeout: Duration) -> ConnectRequest {
        let mut password = self.password.clone();
        if password.is_empty() {
            // Servers expect them even without a session.
            password = vec![0; 16];
        }
        ConnectRequest {
            last_zxid: self.last_zxid,
            timeout_ms: i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX),
            session: self.id,
            password,
            read_only: false,
        }
    }

    pub(super) fn key(&self) -> SessionKey {
        SessionKey {
            id: self.id,
            password: Secret(self.password.clone()),
        }
    }
}
