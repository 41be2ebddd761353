//! What a waiting thread does about a holder that has held for too long.

use super::{Driver, Step};
use crate::error::Result;
use crate::session::Session;
use crate::session::call_error::CallError;
use crate::time::clock::Moment;
use crate::time::limit::LimitReached;
use crate::transport::{Answered, Failure, NO_VERSION};
use zklock_core::attempt;
use zklock_core::overdue_holder::{Action, Event};
use zklock_jute::{ErrorCode, Reply, Request};

impl Driver<'_, '_> {
    /// Carries out what is due about the head of the queue.
    pub(super) fn hurry(&mut self) -> Result<Step> {
        let mut event = Event::Elapsed;
        let mut answered;
        // The head as it was looked at: what changes later is looked at again.
        let mut version = NO_VERSION;
        loop {
            let Some(overdue) = self.request.overdue.as_mut() else {
                return Ok(Step::Again);
            };
            overdue.handle(event);
            answered = match overdue.action() {
                Action::Sleep(_) => return Ok(Step::Again),
                Action::List => self.ask(Request::list(self.queue.dir)),
                Action::Look(name) => self.look(&self.full(&name)),
                Action::Ask(name) if !Session::may_ask(&name) => {
                    event = Event::Done;
                    continue;
                }
                Action::Ask(name) => self.revoke(&self.full(&name), version)?,
                Action::Evict(name) => self.evict(&self.full(&name), version)?,
            };
            event = match &answered {
                Err(LimitReached) => return Ok(Step::Report(attempt::Event::Cancel)),
                Ok(Ok(Reply::Children { names, .. })) => Event::Children(
                    self.attempt.contest(),
                    names,
                    self.attempt.node(),
                    self.queue.held,
                ),
                // A node of no session is no contender's, whatever it is called.
                Ok(Ok(Reply::Stat(stat))) if stat.has_session() => {
                    version = stat.version;
                    Event::Born(stat.czxid, Moment::now().since_boot())
                }
                Ok(_) => Event::Failed,
            };
        }
    }

    /// Looks at a node; a server that lags may show one that had the same name before.
    fn look(&mut self, path: &str) -> std::result::Result<Answered, LimitReached> {
        let sync = self.session.transport.capabilities().sync(self.queue.dir);
        let synced = self.post([sync, Request::exists(path)]);
        let caught_up = self.answer(synced)?;
        let seen = self.answer(synced.next())?;
        Ok(match caught_up {
            // A server may refuse that, having caught up.
            Ok(_) | Err(Failure::Refused(_)) => seen,
            Err(failure) => Err(failure),
        })
    }

    /// Asks the contender with this node to let go.
    fn revoke(
        &mut self,
        head: &str,
        version: i32,
    ) -> Result<std::result::Result<Answered, LimitReached>> {
        log::warn!("{head} has held for too long: asking it to let go");
        let asking = self.session.revocation(head, version);
        let asked = self.caller.call(&asking, head, &self.request.limit);
        pressed(asked, head)
    }

    /// Deletes this node. Without an answer it is not repeated here: another node may have the
    /// name by then.
    fn evict(
        &mut self,
        head: &str,
        version: i32,
    ) -> Result<std::result::Result<Answered, LimitReached>> {
        log::warn!("{head} has not let go within its grace: evicting it");
        let answer = self.ask(self.session.eviction(head, version));
        let Ok(Err(failure)) = answer else {
            return Ok(answer);
        };
        match CallError::of(failure, head, &self.session.status) {
            Some(error) => pressed(Err(error), head),
            None => Ok(answer),
        }
    }
}

/// Says what came of a request about the holder with this node.
fn pressed(
    answer: std::result::Result<Reply, CallError>,
    head: &str,
) -> Result<std::result::Result<Answered, LimitReached>> {
    match answer {
        Ok(reply) => Ok(Ok(Ok(reply))),
        // It is gone, or another client has asked it too.
        Err(CallError::Refused(code @ (ErrorCode::NO_NODE | ErrorCode::BAD_VERSION))) => {
            Ok(Ok(Err(Failure::Refused(code))))
        }
        Err(error) => error.or(head, Err(LimitReached)),
    }
}
