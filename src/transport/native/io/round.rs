//! A round of attempts to connect, and the reports of those that fail or succeed.

use std::mem;
use std::time::Duration;

use super::Io;
use crate::error::{NO_QUORUM, NO_TLS, TLS_PORT};
use crate::system::clock::since_boot;
use crate::system::contained;
use crate::transport::native::channel::Failed;
use crate::transport::native::hosts::{Candidate, Target};
use crate::transport::native::resolver::{Found, Unresolved};
use crate::transport::native::shared::jittered;
use zklock_core::connection::rotation::{Refusal, Resumption, Round};

impl Io {
    /// Tries every address once, or until one has served, and pauses after each attempt.
    pub(super) fn round(&mut self) -> Round {
        let before = self.session.id;
        let forgotten = self.outage.may_be_forgotten(since_boot());
        // A client that ends its session asks for no new one.
        let forgotten = forgotten && self.has_past() && !self.is_away();
        let candidates = self.candidates();
        let addresses = candidates.len();
        if candidates.is_empty() && !self.pause_after_attempt(true, Duration::ZERO) {
            return Round::Over;
        }
        for (number, mut candidate) in (1..).zip(candidates) {
            let began = since_boot();
            let away = self.outage.away(began);
            let is_hurried = self.rotation.hurry(&mut candidate, away);
            if let Some(round) = self.tries(candidate, forgotten) {
                return round;
            }
            if before != 0 && self.session.id != before {
                // It was given up: at the other addresses, a client without a session may get one of another ensemble.
                return Round::Expired;
            }
            let hurried = match is_hurried {
                true => since_boot().saturating_sub(began),
                false => Duration::ZERO,
            };
            if !self.pause_after_attempt(number == addresses, hurried) {
                return Round::Over;
            }
        }
        self.rotation.next_round();
        Round::Refused
    }

    /// Tries one address; returns `None` if it did not serve.
    fn tries(&mut self, mut candidate: Candidate, forgotten: bool) -> Option<Round> {
        let mut attempted = self.attempt(&candidate);
        let hung_up = matches!(attempted, Err(Failed(Some(Refusal::HungUp), _)));
        if forgotten && hung_up && candidate.wish == Resumption::Resume {
            candidate.wish = Resumption::Anew;
            attempted = self.attempt(&candidate);
        }
        let target = candidate.target.to_string();
        self.rotation
            .leave(candidate.target, attempted.as_ref().ok());
        let Failed(refusal, reason) = match attempted {
            Ok(Round::Expired) if self.has_come_too_late() => return Some(Round::Over),
            Ok(round) => return Some(round),
            // The client itself ended the connection.
            Err(_) if !self.shared.rest(Duration::ZERO) => return Some(Round::Over),
            Err(failed) => failed,
        };
        if let Some(refusal) = hung_up.then_some(Refusal::HungUp).or(refusal) {
            self.rotation.refused(refusal);
            self.outage.refused(refusal);
        }
        match self
            .likely_cause()
            .filter(|_| hung_up && !reason.ends_with(NO_TLS))
        {
            Some(cause) => self.turned_away(&target, &format!("{reason}, {cause}")),
            None => self.turned_away(&target, &reason),
        }
        None
    }

    /// Returns whether the session of another process had ended before it was continued. Another one is of no use.
    fn has_come_too_late(&self) -> bool {
        let inherited = self.shared.config.inherited.as_ref();
        !self.has_served && inherited.is_some_and(|session| session.is_kept)
    }

    /// Pauses before the next attempt. Returns `false` if the transport must end.
    fn pause_after_attempt(&self, last: bool, hurried: Duration) -> bool {
        let now = since_boot();
        let pause = self.rotation.pause_after_attempt(last, hurried, now);
        self.shared.rest(jittered(pause))
    }

    /// Returns why a server may hang up on a client that none has given a session yet.
    fn likely_cause(&self) -> Option<&'static str> {
        let cause = self
            .shared
            .config
            .tls
            .as_ref()
            .map_or(TLS_PORT, |_| NO_QUORUM);
        (!self.has_past()).then_some(cause)
    }

    fn turned_away(&self, host: &str, reason: &str) {
        contained(|| log::debug!("{host}: {reason}"));
        self.shared.status.turned_away(host, reason);
    }

    fn candidates(&mut self) -> Vec<Candidate> {
        let Found {
            targets,
            kept,
            unresolved,
        } = self.shared.look_up(self.session.id != 0);
        let timeout = self.shared.status.snapshot().timeout;
        let first = (!self.has_past()).then_some(self.shared.config.connect_timeout);
        for Unresolved { server, .. } in &self.unresolved {
            self.shared.status.note_resolved(&server.to_string());
        }
        for name in &unresolved {
            let Unresolved { server, reason, .. } = name;
            self.turned_away(&server.to_string(), reason);
            if !name.failed || self.unresolved.contains(name) {
                continue;
            }
            if name.has_addresses && !kept.is_empty() {
                contained(|| {
                    log::warn!("{server}: {reason}; the addresses that it had are used");
                });
            } else if !targets.is_empty() {
                contained(|| log::warn!("{server}: {reason}; the other servers are used"));
            }
        }
        self.unresolved = unresolved;
        let away = self.outage.away(since_boot());
        self.rotation.begin((targets, kept), timeout, first, away)
    }

    pub(super) fn tell_connected(&mut self, target: &Target, timeout: Duration) {
        let level = match mem::replace(&mut self.has_served, true) {
            true => log::Level::Info,
            false => log::Level::Debug,
        };
        let session = self.session.id;
        contained(|| {
            log::log!(
                level,
                "{target}: connected, session {session:#x}, timeout {timeout:?}"
            );
        });
    }

    /// Logs a warning if a server grants an unexpected timeout. A resumed session `had` a timeout before.
    pub(super) fn tell_granted(&self, target: &Target, granted: Duration, had: Option<Duration>) {
        let asked = self.shared.config.session_timeout;
        contained(|| match had {
            // If this answer had been lost, guards would have been trusted for too long.
            Some(had) if granted < had => log::warn!(
                "{target} grants the session {granted:?}, and it had {had:?}: give all servers the same \
                 limits, or state ClientBuilder::granted_at_least (--granted-at-least)"
            ),
            None if granted != asked => {
                log::info!(
                    "{target} grants a session timeout of {granted:?}; {asked:?} was asked for"
                );
            }
            _ => {}
        });
    }
}
