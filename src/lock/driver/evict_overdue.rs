//! What a waiting thread does about a holder that has held for too long.

use super::{Driver, Step};
use crate::error::Result;
use crate::jute::{ErrorCode, Reply, Request};
use crate::recipe::attempt;
use crate::recipe::overdue_holder::{Action, Event};
use crate::session::call_error::CallError;
use crate::time::clock::Moment;
use crate::time::limit::LimitReached;
use crate::transport::{Answered, Failure};

impl Driver<'_, '_> {
    /// Carries out what is due about the head of the queue.
    pub(super) fn hurry(&mut self) -> Result<Step> {
        let mut event = Event::Elapsed;
        let mut answered;
        loop {
            let Some(overdue) = self.request.overdue.as_mut() else {
                return Ok(Step::Again);
            };
            overdue.handle(event);
            answered = match overdue.action() {
                Action::Sleep(_) => return Ok(Step::Again),
                Action::List => self.ask(Request::list(self.queue.dir)),
                Action::Look(name) => {
                    let path = self.full(&name);
                    self.ask(Request::exists(&path))
                }
                Action::Ask(name) => {
                    let head = self.full(&name);
                    log::warn!("{head} has held for too long: asking it to let go");
                    let asking = self.session.revocation(&head);
                    let asked = self.caller.call(&asking, &head, &self.request.limit);
                    pressed(asked.map(Some), &head)?
                }
                Action::Evict(name) => {
                    let head = self.full(&name);
                    log::warn!("{head} has not let go within its grace: evicting it");
                    let eviction = self.session.eviction(&head);
                    // If the answer is lost, another node may have the name: look again first.
                    let evicted = self.caller.call_once(&eviction, &head, &self.request.limit);
                    pressed(evicted, &head)?
                }
            };
            event = match &answered {
                Err(LimitReached) => return Ok(Step::Report(attempt::Event::Cancel)),
                Ok(Ok(Reply::Children { names, .. })) => Event::Children(
                    self.attempt.contest(),
                    names,
                    self.attempt.node(),
                    self.queue.held,
                ),
                Ok(Ok(Reply::Stat(stat))) => Event::Born(stat.czxid, Moment::now().since_boot()),
                Ok(_) => Event::Failed,
            };
        }
    }
}

/// Says what came of a request about the holder with this node.
fn pressed(
    answer: std::result::Result<Option<Reply>, CallError>,
    head: &str,
) -> Result<std::result::Result<Answered, LimitReached>> {
    match answer {
        Ok(reply) => Ok(Ok(reply.ok_or(Failure::Lost))),
        Err(CallError::Refused(ErrorCode::NO_NODE)) => {
            Ok(Ok(Err(Failure::Refused(ErrorCode::NO_NODE))))
        }
        Err(error) => error.or(head, Err(LimitReached)),
    }
}
