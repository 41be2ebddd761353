//! How a waiting thread sleeps, what wakes it, and what it reports meanwhile.
//!
//! Watches and changes of the connection report to one channel, so that a wait without
//! a cancel needs no `select!`.

use std::iter;

use super::{Driver, Step};
use crate::error::Result;
use crate::lock::request::Ahead;
use crate::owner::Owner;
use crate::system::channel::{Receiver, Waitable};
use crate::system::clock;
use crate::time::limit::LimitReached;
use crate::transport::status::Snapshot;
use crate::transport::{Fired, Watch};
use zklock_core::attempt::Event;
use zklock_core::overdue_holder::Overdue;
use zklock_core::queue::Blocked;
use zklock_jute::EventKind;

impl Driver<'_, '_> {
    /// Sleeps until the watch fires, the connection changes or the limit is reached.
    pub(super) fn wait(&mut self) -> Result<Step> {
        if let Some(fired) = self.heard_early.pop_front() {
            return Ok(self.woken(fired));
        }
        self.prefetch_again();
        let told = self.request.on_wait.is_some() || self.request.circles.is_some();
        if told || log::log_enabled!(log::Level::Info) {
            if let Some(blocked) = self.attempt.blocked().cloned() {
                self.tell(&blocked)?;
            }
        }
        self.listen();
        if let Some(step) = self.changed()? {
            return Ok(step);
        }
        if self.queue.is_pointless() {
            return Ok(Step::Report(Event::Cancel));
        }
        if let Some(step) = self.sleep_in_turns()? {
            return Ok(step);
        }
        let limit = &self.request.limit;
        Ok(match self.fired.recv(&*self.session.transport, limit) {
            Ok(fired) => self.woken(fired),
            Err(LimitReached) => Step::Report(Event::Cancel),
        })
    }

    /// Sleeps if there is something else to wait for, or to do from time to time; `None` if a
    /// watch has fired, or there is nothing else.
    fn sleep_in_turns(&mut self) -> Result<Option<Step>> {
        let silence = self.caller.silence();
        let period = self.request.overdue.as_ref().map(Overdue::pause);
        let hold = self.holds.pause();
        let period = [period, silence, hold].into_iter().flatten().min();
        let under = self.queue.under.map(|under| under.events().clone());
        if period.is_none() && under.is_none() {
            return Ok(None);
        }
        let letters: &dyn Waitable = self.fired.letters();
        let channels: Vec<_> = iter::once(letters)
            .chain(under.as_ref().map(|under| under as &dyn Waitable))
            .collect();
        let wait = || self.request.limit.wait_any_for(period, &channels);
        Ok(match self.session.transport.while_attended(wait) {
            Ok(None) if period == hold => Some(Step::Report(Event::Woken)),
            Ok(None) if period == silence => {
                let path = self.queue.path;
                self.caller
                    .tell_silence(format_args!("waiting for the lock {path}"));
                Some(Step::Again)
            }
            Ok(None) => return self.hurry().map(Some),
            Ok(Some(1)) => {
                let _ = under.as_ref().map(Receiver::try_recv);
                Some(Step::Again)
            }
            Ok(Some(_)) => None,
            Err(LimitReached) => Some(Step::Report(Event::Cancel)),
        })
    }

    pub(super) fn tell(&mut self, blocked: &Blocked) -> Result<()> {
        let place = (blocked.nearest.clone(), blocked.ahead);
        let news = self.told.as_ref() != Some(&place);
        if news && log::log_enabled!(log::Level::Info) {
            self.log_place(blocked);
        }
        if let (Some(on_wait), true) = (self.request.on_wait.as_mut(), news) {
            on_wait(&Ahead {
                since: clock::now().saturating_duration_since(self.since),
                count: blocked.ahead,
                nearest: format!("{}/{}", self.queue.dir, blocked.nearest),
                holds: blocked.holds,
                data: self.seen.0.clone(),
                stat: self.seen.1,
            });
        }
        self.told = Some(place);
        match &self.request.circles {
            Some(look) if news => {
                let nearest = self.full(&blocked.nearest);
                look(&nearest, self.request.several, &self.request.limit)
            }
            _ => Ok(()),
        }
    }

    fn log_place(&self, blocked: &Blocked) {
        let (path, ahead) = (self.queue.path, blocked.ahead);
        if blocked.nearest.is_empty() {
            return log::info!("waiting for a permit of {path}: {ahead} must be given back first");
        }
        let nearest = Owner::parse(&self.seen.0).named();
        let nearest = nearest.unwrap_or_else(|| blocked.nearest.clone());
        match blocked.holds && self.queue.dir == path {
            true => log::info!("waiting for the lock {path}, which {nearest} holds"),
            false => log::info!("waiting for the lock {path}: {ahead} ahead, then {nearest}"),
        }
    }

    /// Has changes of the connection reported where watches report.
    fn listen(&mut self) {
        if self.listening.is_some() {
            return;
        }
        let Watch { id, to, .. } = self.new_watch();
        let told = move |_: &Snapshot| to.put(Fired::told(id, EventKind::None));
        let awake = self.session.status.on_change(told);
        self.listening = Some(awake);
    }

    fn woken(&mut self, fired: Fired) -> Step {
        if let Some(overdue) = self.request.overdue.as_mut() {
            overdue.stir();
        }
        // The events of a new connection come in any order.
        let ordered = self.caller.is_steady(&self.snapshot);
        self.heard(fired, ordered)
    }
}
