//! How a thread sleeps until something happens, and handles it.
//!
//! Answers, the events of watches and changes of the connection wake the same thread, so a wait
//! without cancellation needs no `select!`. Before it sleeps, its user is told which contender it waits for.

use std::time::Duration;

use super::Driver;
use crate::error::Result;
use crate::lock::request::Ahead;
use crate::owner::Owner;
use crate::system::channel::Waitable;
use crate::system::clock;
use crate::time::limit::{LimitReached, from_now};
use crate::transport::status::Snapshot;
use crate::transport::{Failure, Fired, Reading, Watch};
use zklock_core::dialect::Role;
use zklock_core::queue::Blocked;
use zklock_jute::EventKind;

impl Driver<'_, '_> {
    /// Handles the next answer or event, or waits for one; gives up at the limit.
    pub(super) fn take_in(&mut self, rests_until: Option<Duration>) -> Result<()> {
        if self.take_in_letter() {
            return Ok(());
        }
        // One write sends all requests of this turn.
        self.wired.flush();
        let (waits, quiet) = (self.acquisition.is_waiting(), self.acquisition.is_quiet());
        if waits {
            self.waits_for_others()?;
            self.tell_place()?;
            if self.has_let_pass() {
                self.give_up();
                return Ok(());
            }
        }
        if !waits && quiet && !self.wired.connected {
            self.wired.reading = None;
            if self.wired.caller.connected(&self.request.limit)?.is_none() {
                self.give_up();
            }
            return Ok(());
        }
        // The status may have changed before the subscription.
        if quiet && self.listen() {
            return Ok(());
        }
        let again = self.request.looks_again().filter(|_| waits);
        let rests_until = rests_until.into_iter().chain(again).min();
        if self.queue.is_pointless() || self.sleep(rests_until).is_err() {
            self.give_up();
        } else {
            self.take_in_letter();
        }
        Ok(())
    }

    fn has_let_pass(&mut self) -> bool {
        let again = self.request.looks_again();
        if again.is_some_and(|again| again <= clock::since_boot()) {
            // A look waits for answers.
            self.wired.reading = None;
        }
        let blocked = self.acquisition.blocked();
        let ahead = blocked.map_or(1, |blocked| blocked.ahead);
        self.request.has_let_pass(ahead)
    }

    fn give_up(&mut self) {
        self.leaves_its_node();
        self.acquisition.cancel(&mut self.wired);
    }

    /// Passes on an answer or an event that has arrived; returns `false` if there is none.
    fn take_in_letter(&mut self) -> bool {
        let Some((call, answered)) = self.wired.caller.try_take() else {
            let fired = self.wired.fired.try_recv();
            return fired.map(|fired| self.heard(&fired)).is_some();
        };
        self.is_closed |= answered == Err(Failure::Closed);
        let lost = matches!(answered, Err(Failure::Lost | Failure::NotSent));
        if let Some(early) = self.wired.early.take_if(|early| early.call_id == call) {
            early.finish();
        }
        self.acquisition.answered(call, answered, &mut self.wired);
        // The transport may report in a moment why the answer was lost; after the pause the request is sent again.
        let (caller, snapshot) = (&mut self.wired.caller, &self.wired.snapshot);
        if lost {
            self.wired.reading = None;
        }
        if lost && caller.is_steady(snapshot) && caller.breathe(&self.request.limit).is_err() {
            self.give_up();
        }
        true
    }

    /// Handles the event of a watch.
    fn heard(&mut self, fired: &Fired) {
        // The event is from a watch that was given up, or reports a change of the connection.
        let Some(path) = self.wired.path_of(fired.id) else {
            return;
        };
        // After a reconnect, events arrive in any order.
        let kind = match self.wired.caller.is_steady(&self.wired.snapshot) {
            true => fired.kind,
            false => EventKind::None,
        };
        let name = match self.queue.has(&path) {
            _ if path == self.queue.dir => "",
            true => crate::path::name(&path),
            false => &path,
        };
        self.acquisition.happened(name, kind);
    }

    /// Subscribes to changes of the connection, on the channel of the watches. Returns `false` if
    /// it has subscribed before.
    fn listen(&mut self) -> bool {
        if self.listening.is_some() {
            return false;
        }
        let Watch { id, to, .. } = self.wired.new_watch();
        let kind = EventKind::None;
        let told = move |_: &Snapshot| to.put(Fired { id, kind });
        self.listening = Some(self.session.status.on_change(told));
        true
    }

    /// Sleeps until something arrives, or there is something to do.
    fn sleep(&mut self, rests_until: Option<Duration>) -> Result<(), LimitReached> {
        let silence = match self.acquisition.is_waiting() {
            true => self.wired.caller.silence(),
            false => None,
        };
        let now = clock::since_boot();
        let rests = rests_until.map(|at| at.saturating_sub(now));
        let pause = [rests, silence].into_iter().flatten().min();
        // A thread that awaits an answer reads it itself, and checks the other lock afterwards.
        let under = self.queue.under.filter(|_| self.acquisition.is_quiet());
        let under = under.map(|under| under.events().clone());
        let limit = &self.request.limit;
        if limit.is_over() {
            return Err(LimitReached);
        }
        if under.is_none() && !limit.is_cancellable() {
            self.rest(pause);
        } else {
            self.wired.reading = None;
            let transport = &self.session.transport;
            let letters: [&dyn Waitable; 2] =
                [self.wired.caller.letters(), self.wired.fired.letters()];
            let under = under.iter().map(|under| under as &dyn Waitable);
            let channels: Vec<_> = letters.into_iter().chain(under).collect();
            let wait = || limit.wait_any_for(pause, &channels);
            transport.while_attended(wait)?;
        }
        if let Some(under) = &under {
            // The loop checks whether the other lock is held, whatever the event was.
            let _ = under.try_recv();
        }
        if silence.is_some() && silence == pause {
            let path = self.queue.path;
            self.wired.reading = None;
            self.wired
                .caller
                .tell_silence(format_args!("waiting for the lock {path}"));
        }
        Ok(())
    }

    /// Reads from the connection for the whole client until something has arrived for this thread.
    fn rest(&mut self, pause: Option<Duration>) {
        let transport = &*self.session.transport;
        if self.acquisition.is_waiting() {
            self.wired
                .reading
                .get_or_insert_with(|| Reading::of(transport));
        }
        let (answers, fired) = (self.wired.caller.letters(), self.wired.fired.letters());
        let awake = || !answers.is_empty() || !fired.is_empty();
        let until = pause.map(from_now).into_iter();
        transport.rest(&awake, until.chain(self.request.limit.deadline()).min());
    }

    /// Fails if the node ahead is one that this client has left, and that the servers do not let it delete.
    fn waits_for_others(&self) -> Result<()> {
        let (cleaner, dir) = (&self.session.cleaner, self.queue.dir);
        match self.acquisition.blocked() {
            Some(ahead) if self.queue.role != Role::Permit => {
                cleaner.may_delete(dir, &ahead.nearest)
            }
            // A permit waits for any of the others.
            _ => cleaner.may_delete_in(dir),
        }
    }

    /// Tells the user who is ahead, at first and whenever that changes.
    fn tell_place(&mut self) -> Result<()> {
        let told = self.request.on_wait.is_some() || self.request.circles.is_some();
        if !told && !log::log_enabled!(log::Level::Info) {
            return Ok(());
        }
        let crowd = self.acquisition.crowd().map(|ahead| Blocked {
            ahead,
            ..Blocked::default()
        });
        match self.acquisition.blocked().cloned().or(crowd) {
            Some(blocked) => self.tell(&blocked),
            None => Ok(()),
        }
    }

    fn tell(&mut self, blocked: &Blocked) -> Result<()> {
        let place = (blocked.nearest.clone(), blocked.ahead);
        if self.told.as_ref() == Some(&place) {
            return Ok(());
        }
        self.told = Some(place);
        // The code from here on is the user's.
        self.wired.reading = None;
        if log::log_enabled!(log::Level::Info) {
            self.log_place(blocked);
        }
        let nearest = format!("{}/{}", self.queue.dir, blocked.nearest);
        if let Some(on_wait) = self.request.on_wait.as_mut() {
            let (data, stat) = self.acquisition.found();
            on_wait(&Ahead {
                since: self.request.limit.spent(),
                count: blocked.ahead,
                nearest: nearest.clone(),
                holds: blocked.holds,
                data: data.to_vec(),
                stat: *stat,
            });
        }
        match &self.request.circles {
            Some(look) => look(&nearest, self.request.several, &self.request.limit),
            None => Ok(()),
        }
    }

    fn log_place(&self, blocked: &Blocked) {
        let (path, ahead) = (self.queue.path, blocked.ahead);
        if blocked.nearest.is_empty() {
            return log::info!("waiting for a permit of {path}: {ahead} must be given back first");
        }
        let nearest = Owner::parse(&self.acquisition.found().0).named();
        let nearest = nearest.unwrap_or_else(|| blocked.nearest.clone());
        match blocked.holds && self.queue.dir == path {
            true => log::info!("waiting for the lock {path}, which {nearest} holds"),
            false => log::info!("waiting for the lock {path}: {ahead} ahead, then {nearest}"),
        }
    }
}
