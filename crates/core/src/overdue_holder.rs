//! When a waiting thread asks the head of the queue to release, and when it evicts the head.
//!
//! ```text
//!         the time has passed     a head that is not ours
//!  Sleep ───────────────────► List ─────────────────────► Look
//!    ▲                                                     │ held for too long
//!    ├────────────────────────── Ask ◄─────────────────────┤
//!    └────────────────────────── Evict ◄───────────────────┘ and did not let go in its grace
//!
//!  Anything else leads back to Sleep.
//! ```
//!
//! Off unless asked for. A holder's time counts from when this thread first saw it at the head, by this
//! thread's clock, so no holder is hurried because clocks differ. A look comes soon at first and when the
//! queue moves, and when a holder's time is up, whatever the pause between two looks.

use alloc::borrow::ToOwned;
use alloc::string::String;
use core::time::Duration;

use super::name::NodeName;
use super::queue::Contest;
use zklock_jute::Names;

/// The shortest and the longest pause between two looks.
const PERIODS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(5));

/// How long a holder may hold, and how long it may go on after it was asked to release.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Rule {
    /// How long a holder may hold.
    pub held_longer_than: Duration,
    /// How long a holder may go on after it was asked to release.
    pub grace: Duration,
}

/// The state machine of one waiting thread.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Overdue {
    rule: Rule,
    head: Option<Head>,
    /// How long to sleep before the next look.
    pause: Duration,
    /// A time is up then, if the head is the same.
    is_up: bool,
    state: State,
}

/// The head of a queue, as it has been seen.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Head {
    /// The transaction that created the head's node, because a name may recur.
    born: i64,
    since: Duration,
    asked: Option<Duration>,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum State {
    Sleep,
    List,
    Look(String, bool),
    Ask(String),
    Evict(String),
}

/// The next step for the driver.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Action {
    /// Let this time pass.
    Sleep(Duration),
    /// List the queue.
    List,
    /// Ask for this node's birth; if the answer may have consequences, ask a server that has caught up.
    Look(String, bool),
    /// Ask the holder of this node to release.
    Ask(String),
    /// Delete this node.
    Evict(String),
}

/// A report from the driver.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// The time has passed.
    Elapsed,
    /// The queue of this contest holds these names, among them our node, if we have one, and the
    /// nodes that the same call holds already.
    Children(Contest, &'a Names, Option<&'a str>, &'a [String]),
    /// The node was created by this transaction; the second field is the time since a fixed moment.
    Born(i64, Duration),
    /// The holder has been asked, or cannot be: its grace begins at this time since a fixed moment.
    Asked(Duration),
    /// Another answer arrived, or none.
    Failed,
}

impl Overdue {
    /// Creates the machine of a waiting thread with this rule.
    pub fn new(rule: Rule) -> Self {
        Self {
            rule,
            head: None,
            // A short wait costs nothing.
            pause: PERIODS.0,
            is_up: false,
            state: State::Sleep,
        }
    }

    /// Returns the next step for the driver.
    pub fn action(&self) -> Action {
        match &self.state {
            State::Sleep => Action::Sleep(self.pause),
            State::List => Action::List,
            State::Look(node, caught_up) => Action::Look(node.clone(), *caught_up),
            State::Ask(node) => Action::Ask(node.clone()),
            State::Evict(node) => Action::Evict(node.clone()),
        }
    }

    /// Makes the next look soon: the queue has moved, and its head may be another.
    pub fn stir(&mut self) {
        self.pause = PERIODS.0;
    }

    /// Takes in the result of the last action.
    pub fn handle(&mut self, event: Event<'_>) {
        // After an eviction the head is another.
        self.pause = match self.state {
            State::Evict(_) => PERIODS.0,
            _ => self.period(),
        };
        self.state = match (&self.state, event) {
            (State::Sleep, Event::Elapsed) => State::List,
            (State::List, Event::Children(contest, names, own, held)) => {
                let contenders = contest.contenders(names);
                // Numbers that are used up do not tell who came first.
                let ordered = !contenders.iter().any(NodeName::is_exhausted);
                let is_held = |name: &&NodeName<'_>| held.iter().any(|held| held == name.text);
                match contenders.iter().find(|name| !is_held(name)) {
                    // The node ahead of us belongs to no contender, or has just gone.
                    Some(head) if own == Some(head.text) => State::Sleep,
                    Some(head) if ordered => State::Look(head.text.to_owned(), self.is_up),
                    _ => State::Sleep,
                }
            }
            (State::Ask(_), Event::Asked(now)) => {
                if let Some(head) = &mut self.head {
                    head.asked = Some(now);
                }
                State::Sleep
            }
            (State::Look(node, caught_up), Event::Born(born, now)) => {
                let (node, caught_up) = (node.clone(), *caught_up);
                self.saw(node, born, now, caught_up)
            }
            _ => State::Sleep,
        };
    }

    /// Returns how long to sleep between two looks, unless a time is up before.
    fn period(&self) -> Duration {
        let shorter = self.rule.held_longer_than.min(self.rule.grace);
        (shorter / 2).clamp(PERIODS.0, PERIODS.1)
    }

    /// Takes in which node, identified by its birth, is at the head of the queue now.
    fn saw(&mut self, node: String, born: i64, now: Duration, caught_up: bool) -> State {
        self.is_up = false;
        let Some(head) = self.head.as_mut().filter(|head| head.born == born) else {
            self.head = Some(Head {
                born,
                since: now,
                asked: None,
            });
            return State::Sleep;
        };
        let (since, most) = match head.asked {
            None => (head.since, self.rule.held_longer_than),
            Some(asked) => (asked, self.rule.grace),
        };
        let left = most.saturating_sub(now.saturating_sub(since));
        if !left.is_zero() {
            self.is_up = left <= self.pause;
            self.pause = self.pause.min(left);
            return State::Sleep;
        }
        if !caught_up {
            return State::Look(node, true);
        }
        match head.asked {
            None => State::Ask(node),
            Some(_) => State::Evict(node),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::{Dialect, Role};

    #[test]
    fn a_holder_is_asked_before_it_is_evicted() {
        let second = Duration::from_secs(1);
        let rule = Rule {
            held_longer_than: 10 * second,
            grace: 3 * second,
        };
        let contest = Contest {
            dialect: Dialect::Curator,
            role: Role::Exclusive,
            permits: 0,
        };
        let mut overdue = Overdue::new(rule);
        let names: Names = ["a-lock-0000000002", "a-lock-0000000001"].iter().collect();
        let head = "a-lock-0000000001".to_owned();
        let long = Action::Sleep(3 * second / 2);
        // A look comes when a time is up.
        let short = Action::Sleep(second);
        let (ask, evict) = (Action::Ask(head.clone()), Action::Evict(head.clone()));
        #[rustfmt::skip]
        let story = [
            (0, 1, &long),
            (9, 1, &short),
            (10, 1, &ask),
            (12, 1, &short),
            (13, 1, &evict),
            (14, 2, &long),
            (23, 2, &short),
            (24, 2, &ask),
            (25, 1, &long),
        ];
        assert_eq!(overdue.action(), Action::Sleep(PERIODS.0), "soon at first");
        for (time, born, expected) in story {
            assert!(matches!(overdue.action(), Action::Sleep(_)));
            overdue.handle(Event::Elapsed);
            overdue.handle(Event::Children(
                contest,
                &names,
                Some("a-lock-0000000002"),
                &[],
            ));
            let caught_up = matches!(time, 10 | 13 | 24);
            assert_eq!(overdue.action(), Action::Look(head.clone(), caught_up));
            overdue.handle(Event::Born(born, time * second));
            assert_eq!(overdue.action(), *expected, "at {time}");
            overdue.handle(match overdue.action() {
                Action::Ask(_) => Event::Asked(time * second),
                _ => Event::Failed,
            });
        }
    }

    #[test]
    fn a_server_that_lags_has_nobody_asked_or_evicted_and_the_next_head_is_looked_at_soon() {
        let rule = Rule {
            held_longer_than: Duration::ZERO,
            grace: Duration::from_secs(60),
        };
        let contest = Contest {
            dialect: Dialect::Curator,
            role: Role::Exclusive,
            permits: 0,
        };
        let mut overdue = Overdue::new(rule);
        let names: Names = ["a-lock-0000000001"].iter().collect();
        let head = || "a-lock-0000000001".to_owned();
        let look = |overdue: &mut Overdue, seconds: u64| {
            overdue.handle(Event::Elapsed);
            overdue.handle(Event::Children(contest, &names, None, &[]));
            overdue.handle(Event::Born(1, Duration::from_secs(seconds)));
        };
        look(&mut overdue, 1);
        look(&mut overdue, 2);
        assert_eq!(overdue.action(), Action::Look(head(), true));
        overdue.handle(Event::Born(1, Duration::from_secs(2)));
        assert_eq!(overdue.action(), Action::Ask(head()));
        // The question was on its way for a while.
        overdue.handle(Event::Asked(Duration::from_secs(30)));
        look(&mut overdue, 89);
        assert!(matches!(overdue.action(), Action::Sleep(_)));
        look(&mut overdue, 90);
        overdue.handle(Event::Born(1, Duration::from_secs(90)));
        assert_eq!(overdue.action(), Action::Evict(head()));
        overdue.handle(Event::Failed);
        assert_eq!(overdue.action(), Action::Sleep(PERIODS.0));
    }

    #[test]
    fn the_time_of_a_new_head_counts_from_when_the_queue_moved() {
        let rule = Rule {
            held_longer_than: Duration::from_secs(10),
            grace: Duration::from_secs(10),
        };
        let mut overdue = Overdue::new(rule);
        overdue.handle(Event::Failed);
        assert_eq!(overdue.action(), Action::Sleep(PERIODS.1));
        overdue.stir();
        assert_eq!(overdue.action(), Action::Sleep(PERIODS.0));
        overdue.handle(Event::Elapsed);
        overdue.handle(Event::Failed);
        assert_eq!(overdue.action(), Action::Sleep(PERIODS.1), "once");
    }

    #[test]
    fn nobody_is_asked_for_a_lock_that_is_ours() {
        let contest = Contest {
            dialect: Dialect::Curator,
            role: Role::Exclusive,
            permits: 0,
        };
        let rule = Rule {
            held_longer_than: Duration::ZERO,
            grace: Duration::ZERO,
        };
        let mut overdue = Overdue::new(rule);
        overdue.handle(Event::Elapsed);
        let names: Names = ["a-lock-0000000001"].iter().collect();
        overdue.handle(Event::Children(
            contest,
            &names,
            Some("a-lock-0000000001"),
            &[],
        ));
        assert!(matches!(overdue.action(), Action::Sleep(_)));
    }

    #[test]
    fn permits_of_the_same_call_are_passed_over_and_numbers_that_are_used_up_tell_nothing() {
        let rule = Rule {
            held_longer_than: Duration::ZERO,
            grace: Duration::ZERO,
        };
        let kazoo = |names: [u32; 2], held: Option<u32>| {
            let contest = Contest {
                dialect: Dialect::Kazoo,
                role: Role::Permit,
                permits: 2,
            };
            let name = |number| format!("{number:032x}");
            let (names, held) = (names.map(name).iter().collect(), held.map(name));
            let mut overdue = Overdue::new(rule);
            overdue.handle(Event::Elapsed);
            overdue.handle(Event::Children(contest, &names, None, held.as_slice()));
            overdue.action()
        };
        let look = |number: u32| Action::Look(format!("{number:032x}"), false);
        assert_eq!(kazoo([1, 2], None), look(1));
        assert_eq!(
            kazoo([2, 1], None),
            look(1),
            "in whatever order they are listed"
        );
        assert_eq!(kazoo([1, 2], Some(1)), look(2));

        let contest = Contest {
            dialect: Dialect::Curator,
            role: Role::Exclusive,
            permits: 0,
        };
        let names: Names = ["b-lock-2147483647", "a-lock-2147483647"].iter().collect();
        let mut overdue = Overdue::new(rule);
        overdue.handle(Event::Elapsed);
        overdue.handle(Event::Children(contest, &names, None, &[]));
        assert!(matches!(overdue.action(), Action::Sleep(_)));
    }
}
