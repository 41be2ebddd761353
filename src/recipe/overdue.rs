//! When a waiting thread loses its patience with whoever is at the head of the queue.
//!
//! Off unless asked for. A holder's time is counted from when this thread first saw it at
//! the head, by this thread's clock, so nobody is hurried because clocks differ.

use std::time::{Duration, Instant};

/// How often to look at most, and at least.
const PERIODS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(5));

/// How long a holder may hold, and how long it may go on when asked to let go.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Rule {
    pub(crate) held_longer_than: Duration,
    pub(crate) grace: Duration,
}

/// What has been seen of the head of a queue.
#[derive(Clone, Debug)]
pub(crate) struct Overdue {
    rule: Rule,
    head: Option<Head>,
}

#[derive(Clone, Debug)]
struct Head {
    /// The transaction that created its node: a name may come again.
    born: i64,
    since: Instant,
    asked: Option<Instant>,
}

/// What is to be done about the head of the queue.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Verdict {
    Wait,
    Ask,
    Evict,
}

impl Overdue {
    pub(crate) fn new(rule: Rule) -> Self {
        Self { rule, head: None }
    }

    /// How long to wait before the next look.
    pub(crate) fn period(&self) -> Duration {
        let shorter = self.rule.held_longer_than.min(self.rule.grace);
        (shorter / 2).clamp(PERIODS.0, PERIODS.1)
    }

    /// Takes in whose node, by its birth, is at the head of the queue now.
    pub(crate) fn saw(&mut self, born: i64, now: Instant) -> Verdict {
        let Some(head) = self.head.as_mut().filter(|head| head.born == born) else {
            self.head = Some(Head {
                born,
                since: now,
                asked: None,
            });
            return Verdict::Wait;
        };
        let since = |time: Instant| now.saturating_duration_since(time);
        match head.asked {
            None if since(head.since) < self.rule.held_longer_than => Verdict::Wait,
            None => {
                head.asked = Some(now);
                Verdict::Ask
            }
            Some(asked) if since(asked) < self.rule.grace => Verdict::Wait,
            Some(_) => Verdict::Evict,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_asked_before_it_is_evicted() {
        let second = Duration::from_secs(1);
        let mut overdue = Overdue::new(Rule {
            held_longer_than: 10 * second,
            grace: 3 * second,
        });
        let start = Instant::now();
        #[rustfmt::skip]
        let story = [
            (0, 1, Verdict::Wait),
            (9, 1, Verdict::Wait),
            (10, 1, Verdict::Ask),
            (12, 1, Verdict::Wait),
            (13, 1, Verdict::Evict),
            (14, 2, Verdict::Wait),
            (23, 2, Verdict::Wait),
            (24, 2, Verdict::Ask),
            (25, 1, Verdict::Wait),
        ];
        for (time, head, expected) in story {
            assert_eq!(
                overdue.saw(head, start + time * second),
                expected,
                "at {time}"
            );
        }
    }
}
