//! Hurries a holder that has held for too long, for a contender that waits.
//!
//! [`Overdue`] decides. A look is due from time to time, and when the queue has moved.

use alloc::string::String;

use super::state::Step;
use super::{Acquisition, Note, Wire};
use crate::answer::{Answered, Failure};
use crate::connection::{NO_VERSION, sync};
use crate::name::may_ask;
use crate::overdue_holder::{Action, Event, Overdue};
use crate::path::node_in;
use zklock_jute::{ErrorCode, Reply, Request};

impl Acquisition {
    /// Sets the rules for hurrying holders. The same call `held` these nodes here before.
    pub fn hurry_by(&mut self, overdue: Option<Overdue>, held: &[String]) {
        self.hurry.overdue = overdue;
        self.hurry.held = held.to_vec();
        // An earlier attempt of the call may have been about to act in another directory, where another
        // node has the name.
        self.hurry
            .looks_anew(|action| !matches!(action, Action::Sleep(_)));
    }

    /// Takes what is known of the head of the queue, for the next attempt of the same call.
    pub fn hurried(&mut self) -> Option<Overdue> {
        self.hurry.overdue.take()
    }

    /// Sends what is due about the head of the queue.
    pub(super) fn hurries(&mut self, wire: &mut dyn Wire) {
        while wire.is_connected() && !self.is_on_its_way(|step| *step == Step::Head) {
            let Some(overdue) = &mut self.hurry.overdue else {
                return;
            };
            match overdue.action() {
                Action::Sleep(pause) => {
                    let at = *self.hurry.at.get_or_insert_with(|| wire.now() + pause);
                    if wire.now() < at {
                        return self.rest_at(at);
                    }
                    self.hurry.at = None;
                    self.hurry.handle(Event::Elapsed);
                }
                Action::Ask(name) if !may_ask(&name) => {
                    self.hurry.handle(Event::Asked(wire.now()));
                }
                action => self.send_about_head(&action, wire),
            }
        }
    }

    fn send_about_head(&mut self, action: &Action, wire: &mut dyn Wire) {
        let version = self.hurry.version;
        match action {
            Action::Sleep(_) => {}
            Action::List => self.send(Request::list(&self.path), Step::Head, wire),
            // Without the sync, a server that lags may show an earlier node of the same name.
            Action::Look(name, caught_up) => {
                self.hurry.version = NO_VERSION;
                if *caught_up {
                    self.hurry.before = 1;
                    self.send(sync(&self.path), Step::Head, wire);
                }
                let look = Request::exists(&node_in(&self.path, name));
                self.send(look, Step::Head, wire);
            }
            Action::Ask(name) => {
                let path = node_in(&self.path, name);
                wire.tell(Note::Asks(&path));
                let asking =
                    Request::set(path, self.contest.dialect.revocation().to_vec(), version);
                self.send(asking, Step::Head, wire);
            }
            Action::Evict(name) => {
                let path = node_in(&self.path, name);
                wire.tell(Note::Evicts(&path));
                self.send(Request::Delete { path, version }, Step::Head, wire);
            }
        }
    }

    pub(super) fn head_answered(
        &mut self,
        answered: Answered,
        wire: &mut dyn Wire,
    ) -> Result<(), Failure> {
        let action = self.hurry.overdue.as_ref().map(Overdue::action);
        if self.hurry.before != 0 {
            self.hurry.before -= 1;
            // A server may refuse a sync although it has caught up.
            if let Err(Failure::Lost | Failure::NotSent | Failure::Closed) = answered {
                self.hurry.handle(Event::Failed);
            }
            return Ok(());
        }
        let (asks, now) = (matches!(action, Some(Action::Ask(_))), wire.now());
        let presses = asks || matches!(action, Some(Action::Evict(_)));
        let event = match &answered {
            Ok(Reply::Children { names, .. }) => {
                Event::Children(self.contest, names, self.attempt.node(), &self.hurry.held)
            }
            // A node without a session belongs to no contender, whatever its name.
            Ok(Reply::Stat(stat)) if stat.has_session() && !presses => {
                self.hurry.version = stat.version;
                Event::Born(stat.czxid, now)
            }
            // Another client may have asked the holder too.
            Ok(_) | Err(Failure::Refused(ErrorCode::BAD_VERSION)) if asks => Event::Asked(now),
            Err(Failure::Refused(ErrorCode::NO_NODE | ErrorCode::BAD_VERSION)) => Event::Failed,
            Err(failure @ (Failure::Refused(_) | Failure::TooLong(_))) if presses => {
                return Err(*failure);
            }
            // While no answer has arrived, the holder is asked again.
            Err(Failure::Lost | Failure::NotSent) if asks => return Ok(()),
            _ => Event::Failed,
        };
        if let Some(overdue) = &mut self.hurry.overdue {
            overdue.handle(event);
        }
        Ok(())
    }
}
