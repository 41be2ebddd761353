//! What becomes of the command when its lock is in doubt, lost or asked for, or its time is over.

use std::mem;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use zklock::GuardState;

use super::{LOOK, News, Supervisor};
use crate::args::OnLost;
use crate::stderr::say;
use crate::stop_policy::StopAction;

impl Supervisor<'_> {
    /// Stops the command if the lock is about to be lost; returns when to look again.
    pub(super) fn look_at_lock(&mut self) -> Duration {
        self.attended.look();
        let (state, valid_for) = (self.lock.state(), self.lock.valid_for());
        if mem::replace(&mut self.state, state) != state {
            (self.told)(News::Is(state));
        }
        let term_sent = self.term_sent.map(|term_sent| term_sent.elapsed());
        if self.what.on_lost == OnLost::Warn {
            self.warn(state);
            return LOOK;
        }
        if self.killed {
            return LOOK;
        }
        let path = &self.name;
        match self.policy.decide(state, valid_for, term_sent) {
            StopAction::Wait(wait) => return wait,
            StopAction::Terminate => {
                self.child.signal(Signal::TERM);
                // A process that was stopped does not get SIGTERM before it continues.
                self.child.signal(Signal::CONT);
                self.term_sent = Some(Instant::now());
                (self.told)(News::Stops);
                say(&format!(
                    "the lock {path} is in doubt, no server confirms it: stopping the command"
                ));
                return Duration::ZERO;
            }
            StopAction::Kill => self.kill(state),
        }
        LOOK
    }

    fn kill(&mut self, state: GuardState) {
        self.child.kill();
        self.killed = true;
        (self.told)(News::Stops);
        let what = match state {
            GuardState::Lost => "is lost",
            _ => "is about to be lost",
        };
        let why = self.lock.lost_reason().map(|why| format!(" because {why}"));
        let why = why.unwrap_or_default();
        let path = &self.name;
        say(&format!("the lock {path} {what}{why}: killed the command"));
    }

    fn warn(&mut self, state: GuardState) {
        if self.warned == state {
            return;
        }
        self.warned = state;
        let what = match state {
            GuardState::Held => return,
            GuardState::Suspect => "is in doubt: no server confirms it",
            GuardState::Lost => {
                (self.told)(News::Stops);
                "is lost: another may run now"
            }
        };
        say(&format!("the lock {} {what}", self.name));
    }

    /// Stops the command if it has had its time; returns when to look again.
    pub(super) fn look_at_time(&mut self) -> Duration {
        let was_over = self.limit.is_over();
        let grace = self.policy.grace();
        let wait = self.limit.look(&self.child, grace, &self.name);
        if self.limit.is_over() && !was_over {
            (self.told)(News::Stops);
        }
        wait
    }

    pub(super) fn revoked(&mut self) {
        self.by_lock = true;
        (self.told)(News::Stops);
        self.child.signal(Signal::TERM);
        self.child.signal(Signal::CONT);
        say(&format!(
            "somebody asks for the lock {}, stopping the command",
            self.name
        ));
    }
}
