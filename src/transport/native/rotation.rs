//! Which servers were tried already, so that the others are tried first.

use std::time::Duration;

use super::backoff::Service;
use super::hosts::Target;

/// The outcome of a round of attempts.
pub(super) enum Round {
    /// A server served the session.
    Served(Service),
    Refused,
    /// The session expired: the next round starts at once.
    Expired,
    Over,
}

/// What the earlier rounds tell of the time that a dial takes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Past {
    /// The rounds without a server since one served.
    pub(super) rounds: u32,
    /// How long the last greeting took.
    pub(super) greeted: Option<Duration>,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Rotation {
    /// The server whose connection lasted, and those that were tried since, in this order.
    left: Vec<Target>,
    /// The addresses of the last round.
    offered: Vec<Target>,
    past: Past,
    /// The connections in a row that were useless.
    useless: usize,
}

impl Rotation {
    /// A round begins with these addresses.
    pub(super) fn offer(&mut self, targets: &[Target], kept: &[Target]) {
        self.offered = targets.to_vec();
        self.left
            .retain(|left| targets.contains(left) || kept.contains(left));
    }

    /// A server was tried, with this outcome.
    pub(super) fn leave(&mut self, target: Target, outcome: &Result<Round, String>) {
        if let Ok(Round::Served(service)) = outcome {
            self.served(*service);
        }
        self.left.retain(|left| *left != target);
        self.left.push(target);
    }

    fn served(&mut self, service: Service) {
        self.past.rounds = 0;
        if service.is_useless() {
            self.useless += 1;
        } else if service.answered {
            self.useless = 0;
        }
        if service.is_worthwhile() {
            self.left.clear();
        }
    }

    /// No server of a round has served.
    pub(super) fn next_round(&mut self) {
        self.past.rounds = self.past.rounds.saturating_add(1);
    }

    pub(super) fn left(&self) -> &[Target] {
        &self.left
    }

    /// Whether an address of the last round is left to try.
    pub(super) fn has_others(&self) -> bool {
        self.offered.iter().any(|one| !self.left.contains(one))
    }

    /// How long the last greeting took, unless servers that greet promptly do not answer promptly: moving
    /// on gains nothing then.
    pub(super) fn trusted_greeting(&self) -> Option<Duration> {
        let is_trusted = self.useless < self.offered.len();
        self.past.greeted.filter(|_| is_trusted)
    }

    /// A server has greeted, which took this long.
    pub(super) fn greeted(&mut self, took: Duration) {
        self.past.greeted = Some(took);
    }

    pub(super) fn past(&self) -> Past {
        self.past
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(port: u16) -> Target {
        Target::of(([127, 0, 0, 1], port).into())
    }

    fn served(millis: u64, unanswered: bool) -> Result<Round, String> {
        Ok(Round::Served(Service {
            lived: Duration::from_millis(millis),
            answered: false,
            unanswered,
        }))
    }

    #[test]
    fn the_others_are_tried_first_until_a_connection_lasts() {
        let all = [1, 2, 3].map(target);
        let mut rotation = Rotation::default();
        rotation.offer(&all, &[]);
        rotation.next_round();
        let served = |millis| served(millis, false);
        let short = || served(0);
        for (port, others) in [(1, true), (2, true), (3, false), (1, false)] {
            rotation.leave(target(port), &short());
            assert_eq!(rotation.has_others(), others, "{port}");
        }
        assert_eq!(rotation.left(), [2, 3, 1].map(target));
        assert_eq!(rotation.past().rounds, 0);
        rotation.leave(target(2), &served(1000));
        assert_eq!(rotation.left(), [target(2)]);
        assert!(rotation.has_others());
        rotation.offer(&all[..1], &[]);
        assert!(rotation.left().is_empty(), "its address is gone");
    }

    #[test]
    fn servers_that_answer_nothing_are_left_soon_once_each() {
        let all = [1, 2].map(target);
        let mut rotation = Rotation::default();
        rotation.offer(&all, &[]);
        rotation.greeted(Duration::ZERO);
        for port in [1, 2] {
            assert!(rotation.trusted_greeting().is_some());
            rotation.leave(target(port), &served(1000, true));
        }
        assert!(rotation.trusted_greeting().is_none());
        assert_eq!(rotation.left(), all, "neither was worthwhile");
        rotation.leave(target(1), &served(1000, false));
        assert!(rotation.trusted_greeting().is_none(), "nothing was asked");
        let answered = Service {
            lived: Duration::ZERO,
            answered: true,
            unanswered: true,
        };
        rotation.leave(target(1), &Ok(Round::Served(answered)));
        assert!(rotation.trusted_greeting().is_some());
    }
}
