//! Stops the command when its lock is in doubt, lost or asked for, or its time is over.

use std::mem;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use zklock::GuardState;

use super::{LOOK, News, Supervisor};
use crate::args::OnLost;
use crate::helper::trust::since_boot;
use crate::stderr::say;
use crate::stop_policy::StopAction;

/// Times that differ by no more than this are the same time, read again: no other client gets the
/// lock so soon after it.
const JITTER: Duration = Duration::from_millis(10);

impl Supervisor<'_> {
    /// Stops the command if the lock is about to be lost; returns when to look again.
    pub(super) fn look_at_lock(&mut self) -> Duration {
        // The time is read before the look, because this process may be stopped meanwhile.
        let now = since_boot();
        let (state, valid_for) = (self.order.lock.state(), self.order.lock.valid_for());
        self.looks.look(state, since_boot());
        self.tell_trust(now, valid_for);
        let has_changed = mem::replace(&mut self.state, state) != state;
        // The command is stopped before anybody is told, which may take a moment.
        let wait = match self.order.what.on_lost {
            OnLost::Kill => self.obey_lock(state, valid_for),
            OnLost::Warn => {
                if has_changed {
                    self.warn(state);
                }
                self.order.policy.look
            }
        };
        if has_changed {
            (self.order.told)(News::Is(state));
        }
        wait
    }

    fn obey_lock(&mut self, state: GuardState, valid_for: Duration) -> Duration {
        if self.killed {
            return LOOK;
        }
        let doubted = self.doubted.map(|at| at.elapsed());
        match self.order.policy.decide(state, valid_for, doubted) {
            StopAction::Wait(wait) => return wait,
            StopAction::Terminate => {
                let policy = self.order.policy;
                if let Some(due) = self.looks.answer_due(policy.to_wait(valid_for)) {
                    return due;
                }
                self.doubted = Some(Instant::now());
                let why = self.lock_is("is in doubt, no server confirms it");
                let advice = self.looks.advice();
                self.terminate(&format!("{why}: stopping the command{advice}"));
                return Duration::ZERO;
            }
            StopAction::Kill if state == GuardState::Lost => {
                self.kill(&format!("is lost{}", self.why_lost(" because")));
            }
            StopAction::Kill => self.kill("is about to be lost"),
        }
        LOOK
    }

    /// Tells the keeper until when the lock can be trusted, unless it knows.
    pub(super) fn tell_trust(&mut self, now: Duration, valid_for: Duration) {
        let until = now.saturating_add(valid_for);
        if self.order.what.on_lost != OnLost::Warn && self.trusted.abs_diff(until) > JITTER {
            self.trusted = until;
            self.child.trust(until);
        }
    }

    /// Handles that the keeper has killed the command, because this process alone was stopped.
    pub(super) fn was_stopped_alone(&mut self) {
        self.look_at_lock();
        // The servers may have confirmed the lock again since.
        if !self.killed {
            self.kill("could not be trusted");
        }
    }

    fn kill(&mut self, why: &str) {
        self.killed = true;
        self.child.kill();
        (self.order.told)(News::Stops);
        say(&format!("{}: killed the command", self.lock_is(why)));
    }

    /// Returns the beginning of a message about the lock.
    fn lock_is(&self, what: &str) -> String {
        format!("the lock {} {what}{}", self.order.name, self.looks)
    }

    /// Stops the command if its time is over; returns when to look again.
    pub(super) fn look_at_time(&mut self) -> Duration {
        let Some(most) = self.order.what.max_time else {
            return Duration::MAX;
        };
        let over_time = self.over_time.map(|at| at.elapsed());
        let policy = self.order.policy;
        match policy.decide_by_time(most, self.began.elapsed(), over_time) {
            StopAction::Wait(wait) => return wait,
            StopAction::Terminate => {
                self.over_time = Some(Instant::now());
                let what = format!("the command for {}", self.order.name);
                self.terminate(&format!(
                    "{what} has run for longer than {most:?}: stopping it"
                ));
                return Duration::ZERO;
            }
            StopAction::Kill => self.child.kill(),
        }
        LOOK
    }

    pub(super) fn asked_for(&mut self) {
        self.revoked = true;
        let what = format!("somebody asks for the lock {}", self.order.name);
        self.terminate(&format!("{what}, stopping the command"));
    }

    /// Returns why the lock is lost, if that is known.
    pub(super) fn why_lost(&self, because: &str) -> String {
        let why = self.order.lock.lost_reason();
        why.map(|why| format!("{because} {why}"))
            .unwrap_or_default()
    }

    fn terminate(&mut self, why: &str) {
        self.child.signal(Signal::SIGTERM);
        (self.order.told)(News::Stops);
        say(why);
    }

    fn warn(&self, state: GuardState) {
        let name = &self.order.name;
        let what = match state {
            GuardState::Held => return say(&format!("the lock {name} is confirmed again")),
            GuardState::Suspect => "is in doubt: no server confirms it",
            GuardState::Lost => {
                (self.order.told)(News::Stops);
                "is lost: another may run now"
            }
        };
        say(&self.lock_is(what));
    }
}
