//! How a thread that has waited reads what the holder before it has left.

use super::RawGuard;
use crate::transport::session_state::SessionState;

impl RawGuard {
    /// Asks, and asks again at a server that `catches_up` if the answer may show less than what the holder before has
    /// left.
    ///
    /// The grant may have come with the event of a deletion. The server that reported it has applied all earlier
    /// writes too. Another one, to which the client has moved meanwhile, may not have heard of them. A grant by a
    /// listing rests on a reply, and no server that is behind a reply takes over the session.
    pub(crate) fn ask_for_what_was_left<T>(&self, ask: impl Fn(bool) -> T) -> T {
        if !self.may_read_less() {
            let answered = ask(false);
            // It may be another server's.
            if !self.may_read_less() {
                return answered;
            }
        }
        ask(true)
    }

    fn may_read_less(&self) -> bool {
        let now = self.session.status.snapshot();
        // A handle tells of a reconnect on another thread than that of its answers.
        let tells = self.session.transport.capabilities().resumes;
        let is_known = tells && now.state == SessionState::Connected;
        self.waited
            .is_some_and(|connects| !is_known || now.connects != connects)
    }
}
