//! A session's id and password.

/// The session as the server knows it; the password is all that it takes to use it.
#[derive(Default)]
pub(super) struct Identity {
    pub(super) id: i64,
    pub(super) password: Vec<u8>,
    pub(super) last_zxid: i64,
}
