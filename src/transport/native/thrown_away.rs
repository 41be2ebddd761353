//! Requests of the transport itself that a server has thrown away, because it had too many.
//!
//! They are sent again on the same connection: another one would cost the server more. No caller waits for them.

use std::mem;
use std::time::Duration;

use super::channel::End;
use super::shared::State;
use crate::system::clock::since_boot;
use zklock_core::answer::BREATHER;
use zklock_jute::{ErrorCode, WatchLists};

/// See the module's documentation.
#[derive(Default)]
pub(super) struct ThrownAway {
    watches: Vec<WatchLists>,
    members: bool,
    /// When to send the requests again.
    pub(super) due: Option<Duration>,
}

impl ThrownAway {
    /// Takes in the answer to a request that sets these watches again.
    pub(super) fn watches_answered(
        &mut self,
        code: ErrorCode,
        lists: Option<WatchLists>,
    ) -> Result<(), End> {
        match (code, lists) {
            (ErrorCode::OK, _) => Ok(()),
            (ErrorCode::THROTTLED, Some(lists)) => {
                self.watches.push(lists);
                self.again_soon();
                Ok(())
            }
            _ => Err(End::Broken(format!("the watches were not set: {code}"))),
        }
    }

    /// Notes that the read of the members, with its watch, was thrown away.
    pub(super) fn members_were(&mut self) {
        self.members = true;
        self.again_soon();
    }

    fn again_soon(&mut self) {
        self.due.get_or_insert_with(|| since_boot() + BREATHER);
    }

    /// Queues the requests if they are due by `now`, without the watches that nobody needs any more.
    pub(super) fn send_again(&mut self, state: &mut State, now: Duration) {
        if self.due.is_none_or(|due| now < due) {
            return;
        }
        let Self {
            watches, members, ..
        } = mem::take(self);
        for lists in watches {
            let lists = state.watches.still_set(lists);
            if !lists.is_empty() {
                state.queue.set_watches(lists);
            }
        }
        if members {
            state.ask_for_members();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::channel::Outbox;
    use super::super::config::Config;
    use super::super::shared::Shared;
    use super::*;
    use crate::transport::status::Status;

    #[test]
    fn what_a_server_has_thrown_away_is_sent_again_after_a_pause_and_once() {
        let timeout = Duration::from_secs(10);
        let status = Arc::new(Status::new(timeout, true));
        let shared = Shared::new(Config::plain("127.0.0.1:1", timeout), status);
        let (mut thrown_away, began) = (ThrownAway::default(), since_boot());
        let sends = |thrown_away: &mut ThrownAway, now| {
            let mut state = shared.state.lock();
            thrown_away.send_again(&mut state, now);
            state.queue.load(&mut Outbox::default())
        };
        assert!(!sends(&mut thrown_away, began));
        thrown_away.members_were();
        assert!(!sends(&mut thrown_away, began + BREATHER / 2));
        let due = thrown_away.due.expect("a time");
        assert!(sends(&mut thrown_away, due));
        assert_eq!(thrown_away.due, None);
        // Nobody needs the watches any more.
        let lists = WatchLists {
            data: vec!["/a".to_owned()],
            ..WatchLists::default()
        };
        let answered = thrown_away.watches_answered(ErrorCode::THROTTLED, Some(lists));
        assert!(answered.is_ok());
        assert!(!sends(&mut thrown_away, due + timeout));
        assert_eq!(thrown_away.due, None);
    }
}
