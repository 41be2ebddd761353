//! What a server knows a session by.

/// The session as the server knows it. Who has the password has the session.
#[derive(Default)]
pub(super) struct Identity {
    pub(super) id: i64,
    pub(super) password: Vec<u8>,
    pub(super) last_zxid: i64,
}
