//! Ends the session: asks servers until one says that it is over, or the time for that is up.
//!
//! A server that goes away closes its connections, perhaps without having read the request. The end
//! of a connection is therefore no answer: the next server resumes the session and is asked again,
//! or says that there is no such session. Otherwise the session's nodes would stay for a session
//! timeout, in the way of the contenders behind them.

use std::time::Duration;

use super::channel::End;
use super::shared::{Shared, Stage, State, jittered};
use crate::system::clock::since_boot;
use crate::transport::Failure;
use crate::transport::handover::SessionKey;
use zklock_core::connection::backoff::LEAST;
use zklock_jute::{ErrorCode, Request};

/// A pause between two attempts is at most this fraction of the time that is left for the end.
const PARTS: u32 = 8;
/// A server that has not confirmed the end of the session after this fraction of the time that was
/// left when it was asked is left for another server.
const PATIENT_PARTS: u32 = 4;
/// The least time that a server gets to answer.
const LEAST_WAIT: Duration = Duration::from_millis(1);

impl Shared {
    /// Begins to end the session. Returns `false` if that has begun before.
    ///
    /// The guards fail before the server gets the request: the server may grant their locks to
    /// other clients at once.
    pub(super) fn begin_close(&self, limit: Duration) -> bool {
        self.status.closed();
        let mut state = self.state.lock();
        if let Stage::Closing { .. } | Stage::Over = state.stage {
            return false;
        }
        // From now on the only request is the one to close.
        let open = state.queue.take_pending();
        state.watches.clear();
        let until = since_boot().saturating_add(limit);
        match state.stage {
            _ if state.is_kept() => {
                state.key = None;
                state.stage = Stage::Over;
                state.shut_down();
            }
            Stage::Serving => state.ask_for_the_end(until),
            _ => {
                state.stage = Stage::Closing { reply: None, until };
                if !state.wants_connection() {
                    // There is no session yet.
                    state.shut_down();
                }
            }
        }
        self.stop.notify_all();
        self.flush(state);
        for pending in open {
            pending.answer(Err(Failure::Closed));
        }
        true
    }

    /// Sets whether the present session is kept for another process instead of ended.
    pub(super) fn keep_session(&self, kept: bool) {
        let mut state = self.state.lock();
        let session = state.key.as_ref().map(|key| key.id);
        state.kept = session.filter(|_| kept);
    }

    /// Returns whether the session is to end while no server is being asked for that.
    pub(super) fn is_away(&self) -> bool {
        matches!(self.state.lock().stage, Stage::Closing { reply: None, .. })
    }

    /// Returns this time, or what is left for the end of the session if that is less.
    pub(super) fn at_most(&self, limit: Duration) -> Duration {
        match self.state.lock().stage {
            Stage::Closing { until, .. } => {
                let left = until.saturating_sub(since_boot());
                limit.min(left.max(LEAST_WAIT))
            }
            _ => limit,
        }
    }

    /// Ends the transport, because no thread waits for the end of the session any more.
    pub(super) fn give_up_close(&self) {
        let mut state = self.state.lock();
        state.stage = Stage::Over;
        state.shut_down();
        self.stop.notify_all();
    }

    /// Returns whether nobody asks for the end of the session any more.
    pub(super) fn has_given_up(&self) -> bool {
        self.state.lock().stage == Stage::Over
    }
}

impl State {
    /// Queues the request to end the session.
    pub(super) fn ask_for_the_end(&mut self, until: Duration) {
        let reply = self.queue.push(Request::Close, None, None).ok();
        self.stage = Stage::Closing { reply, until };
    }

    /// Returns how a connection ends that answered the request to close with this code.
    pub(super) fn closed_by(&mut self, code: ErrorCode) -> End {
        match code {
            ErrorCode::OK | ErrorCode::SESSION_EXPIRED => {
                self.key = None;
                End::Closed
            }
            // The request may not have been carried out.
            _ => End::Broken(code.to_string()),
        }
    }

    /// Returns whether the session is another process's, which continues it.
    fn is_kept(&self) -> bool {
        let is_it = |key: &SessionKey| self.kept == Some(key.id);
        self.key.as_ref().is_some_and(is_it)
    }

    /// Returns whether there is anything to connect for.
    pub(super) fn wants_connection(&self) -> bool {
        match self.stage {
            Stage::Away => true,
            Stage::Closing { until, .. } => self.key.is_some() && since_boot() < until,
            Stage::Serving | Stage::Over => false,
        }
    }

    /// Returns when to leave a server that was asked at `asked` to end the session.
    pub(super) fn leaves_unless_closed_at(&self, asked: Option<Duration>) -> Option<Duration> {
        match (self.stage, asked) {
            (Stage::Closing { until, .. }, Some(asked)) => {
                Some(asked + (until.saturating_sub(asked) / PATIENT_PARTS).max(LEAST))
            }
            _ => None,
        }
    }

    /// Returns the longest pause from `began` until the next attempt, if the session is to end.
    pub(super) fn longest_pause(&self, began: Duration) -> Option<Duration> {
        match self.stage {
            Stage::Closing { until, .. } => {
                let part = until.saturating_sub(began) / PARTS;
                Some(jittered(part.max(LEAST)))
            }
            _ => None,
        }
    }

    fn shut_down(&self) {
        if let Some(channel) = &self.channel {
            channel.shut_down();
        }
    }
}
