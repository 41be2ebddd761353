//! A session's id and password.

use crate::jute::Secret;
use crate::transport::session_key::SessionKey;

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

    pub(super) fn key(&self) -> SessionKey {
        SessionKey {
            id: self.id,
            password: Secret(self.password.clone()),
        }
    }
}
