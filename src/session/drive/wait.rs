//! How a waiting thread sleeps, and what wakes it.
//!
//! Watches and changes of the connection are told in one channel, so that a wait without
//! a cancel needs no `select!`.

use crossbeam_channel::{after, select};

use super::{Drive, Step};
use crate::error::Result;
use crate::proto::EventKind;
use crate::protocol::attempt::Event;
use crate::session::limit::{GaveUp, Limit};
use crate::session::overdue::Overdue;
use crate::session::transport::{Fired, Watch, WatchId};

impl Drive<'_, '_> {
    /// Sleeps until the watch fires, the connection changes or the limit is reached.
    pub(super) fn wait(&mut self, limit: &Limit) -> Result<Step> {
        self.listen();
        if let Some(step) = self.changed()? {
            return Ok(step);
        }
        let fired = match self.quest.overdue.as_ref().map(Overdue::period) {
            None => limit.recv(&self.fired.1),
            Some(period) => select! {
                recv(after(period)) -> _ => return self.hurry(limit),
                recv(self.fired.1) -> fired => fired.map_err(|_| GaveUp),
                recv(limit.timer) -> _ => Err(GaveUp),
                recv(limit.cancel) -> _ => Err(GaveUp),
            },
        };
        Ok(match fired {
            Ok(fired) => self.woken(fired),
            Err(GaveUp) => Step::Report(Event::Cancel),
        })
    }

    /// Has changes of the connection told where watches tell.
    fn listen(&mut self) {
        if self.listening.is_some() {
            return;
        }
        let Watch { id, to } = self.new_watch();
        let kind = EventKind::None;
        let awake = self.session.hub.on_change(move || {
            let _ = to.send(Fired { id, kind });
        });
        self.listening = Some(awake);
    }

    fn woken(&mut self, fired: Fired) -> Step {
        let deleted = fired.kind == EventKind::Deleted;
        if self.guarding == Some(fired.id) {
            self.guarding = None;
            return Step::Report(if deleted {
                Event::Evicted
            } else {
                Event::Woken
            });
        }
        let ours = |(_, id): &mut (String, WatchId)| *id == fired.id;
        if self.watching.take_if(ours).is_some() {
            return Step::Report(if deleted {
                Event::Deleted
            } else {
                Event::Woken
            });
        }
        // Of a watch that was given up, or a change of the connection.
        Step::Again
    }
}
