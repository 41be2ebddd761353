//! Which servers were tried already, so that the others are tried first.

use alloc::vec::Vec;
use core::time::Duration;

use super::backoff::Service;

/// The outcome of a round of attempts.
#[derive(Debug)]
pub enum Round {
    /// A server served the session.
    Served(Service),
    /// No server has given a session.
    Refused,
    /// The session expired: the next round starts at once.
    Expired,
    /// The client has ended.
    Over,
}

/// What the earlier rounds tell of the time that a dial takes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Past {
    /// The rounds without a server since one served.
    pub rounds: u32,
    /// How long the last greeting took.
    pub greeted: Option<Duration>,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Rotation<Address> {
    /// The server whose connection lasted, and those that were tried since, in this order.
    left: Vec<Address>,
    /// The addresses of the last round.
    offered: Vec<Address>,
    past: Past,
    /// The connections in a row that were useless.
    useless: usize,
}

impl<Address> Default for Rotation<Address> {
    fn default() -> Self {
        Self {
            left: Vec::new(),
            offered: Vec::new(),
            past: Past::default(),
            useless: 0,
        }
    }
}

impl<Address: Clone + Eq> Rotation<Address> {
    /// A round begins with these addresses.
    pub fn offer(&mut self, targets: &[Address], kept: &[Address]) {
        self.offered = targets.to_vec();
        self.left
            .retain(|left| targets.contains(left) || kept.contains(left));
    }

    /// A server was tried, with this outcome.
    pub fn leave(&mut self, target: Address, outcome: Option<&Round>) {
        if let Some(Round::Served(service)) = outcome {
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
    pub fn next_round(&mut self) {
        self.past.rounds = self.past.rounds.saturating_add(1);
    }

    /// The servers that were left, in this order.
    pub fn left(&self) -> &[Address] {
        &self.left
    }

    /// Whether an address of the last round is left to try.
    pub fn has_others(&self) -> bool {
        self.offered.iter().any(|one| !self.left.contains(one))
    }

    /// How long the last greeting took, unless servers that greet promptly do not answer promptly: moving
    /// on gains nothing then.
    pub fn trusted_greeting(&self) -> Option<Duration> {
        let is_trusted = self.useless < self.offered.len();
        self.past.greeted.filter(|_| is_trusted)
    }

    /// A server has greeted, which took this long.
    pub fn greeted(&mut self, took: Duration) {
        self.past.greeted = Some(took);
    }

    /// What to expect of a dial.
    pub fn past(&self) -> Past {
        self.past
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(millis: u64, unanswered: bool) -> Round {
        Round::Served(Service {
            lived: Duration::from_millis(millis),
            answered: false,
            unanswered,
        })
    }

    #[test]
    fn the_others_are_tried_first_until_a_connection_lasts() {
        let all = [1, 2, 3];
        let mut rotation = Rotation::default();
        rotation.offer(&all, &[]);
        rotation.next_round();
        let served = |millis| served(millis, false);
        let short = || served(0);
        for (port, others) in [(1, true), (2, true), (3, false), (1, false)] {
            rotation.leave(port, Some(&short()));
            assert_eq!(rotation.has_others(), others, "{port}");
        }
        assert_eq!(rotation.left(), [2, 3, 1]);
        assert_eq!(rotation.past().rounds, 0);
        rotation.leave(2, Some(&served(1000)));
        assert_eq!(rotation.left(), [2]);
        assert!(rotation.has_others());
        rotation.offer(&all[..1], &[]);
        assert!(rotation.left().is_empty(), "its address is gone");
    }

    #[test]
    fn servers_that_answer_nothing_are_left_soon_once_each() {
        let all = [1, 2];
        let mut rotation = Rotation::default();
        rotation.offer(&all, &[]);
        rotation.greeted(Duration::ZERO);
        for port in [1, 2] {
            assert!(rotation.trusted_greeting().is_some());
            rotation.leave(port, Some(&served(1000, true)));
        }
        assert!(rotation.trusted_greeting().is_none());
        assert_eq!(rotation.left(), all, "neither was worthwhile");
        rotation.leave(1, Some(&served(1000, false)));
        assert!(rotation.trusted_greeting().is_none(), "nothing was asked");
        let answered = Service {
            lived: Duration::ZERO,
            answered: true,
            unanswered: true,
        };
        rotation.leave(1, Some(&Round::Served(answered)));
        assert!(rotation.trusted_greeting().is_some());
    }
}
