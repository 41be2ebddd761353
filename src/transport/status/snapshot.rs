//! What the status says of one moment.

use std::time::Duration;

use crate::time::clock::Moment;
use crate::transport::session_state::SessionState;

/// The connection at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Snapshot {
    pub(crate) state: SessionState,
    /// The current session, or the last one of a closed client; 0 if there is none.
    pub(crate) session: i64,
    /// The shortest timeout that was negotiated in this session.
    pub(crate) timeout: Duration,
    /// Counts the connections that were made.
    pub(crate) connects: u64,
    /// When the last of them was made; meaningless before the first.
    pub(crate) since: Moment,
}

impl Snapshot {
    /// Returns whether the client has ended: there will be no further connection.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, SessionState::AuthFailed | SessionState::Closed)
    }
}
