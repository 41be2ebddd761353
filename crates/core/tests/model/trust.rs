//! One guard and its trust in its lock, with time, a leader, a follower and a connection.
//!
//! Time is counted in steps of a sixth of the session timeout. The leader computes a session's end
//! from the last message that it has heard of. It hears of a handshake at once, and of a message
//! that a follower has answered when the follower reports it soon after; a commit may come first. A
//! follower that is cut off from the leader goes on answering pings.
//!
//! The guard knows its last proof, and [`Lifetime`] says what that is worth.

use std::mem;
use std::time::Duration;

use zklock_core::lifetime::Lifetime;
use zklock_core::validity::GuardState;
use zklock_core::validity::{LEAST_TIMEOUT, Stamp, Terms};

use super::explore::Model;
use super::property::{Property, Violation};

/// The session timeout, in steps.
const TIMEOUT: u8 = 6;
/// The timeout that another server grants.
const SHORTER: u8 = 4;
/// The length of a step.
const STEP: Duration = Duration::from_secs(4);
/// The session, and the next.
const SESSIONS: [i64; 2] = [1, 2];

/// Wrong ways to trust.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Doubt {
    /// The right way.
    None,
    TakesPingsForProofs,
    TakesACommitForATouch,
    CountsFromTheAnswer,
    ReturnsFromLost,
    KeepsTheLongerTimeout,
    ForgivesAReconnect,
    SleepsPastTheChange,
    OverlooksABreak,
}

/// How much may happen.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Allowance {
    /// Steps of time.
    pub(crate) time: u8,
    pub(crate) pings: u8,
    pub(crate) proofs: u8,
    pub(crate) breaks: u8,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Trust {
    doubt: Doubt,
    now: u8,
    left: Allowance,

    // The state of the servers.
    /// When the leader last heard of a message of the session. The session ends, or has ended, one
    /// timeout later.
    touched: u8,
    timeout: u8,
    cut: bool,
    /// Whether the node exists.
    there: bool,
    /// The shortest timeout that was granted; reports are as frequent as it demands.
    least: u8,

    // The state of the connection.
    connected: bool,
    letters: Vec<Letter>,

    // The state of the client.
    lifetime: Lifetime,
    /// The last proof, until the lock is lost.
    stamp: Option<Stamp>,
    session: i64,
    /// Whether a quorum has confirmed the node since the connection broke.
    proven: bool,
    told: GuardState,
    /// Whether its events have said that the lock is lost.
    lost: bool,
    wakes_at: Option<Duration>,
    violations: Vec<Violation>,
}

/// A message of the client's, on its way.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Letter {
    sent: u8,
    /// The stamp of a proof.
    stamp: Option<Stamp>,
    /// When the client had the answer.
    answered: Option<u8>,
    /// Whether the leader has heard of the message, or has committed it.
    arrived: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Step {
    Tick,
    Ping,
    Prove,
    /// The leader hears of this letter.
    Arrive(usize),
    /// The client has its answer.
    Answer(usize),
    /// The follower loses its leader.
    Cut,
    /// The connection breaks.
    Break,
    /// Another server takes the session over, and may grant less time.
    Reconnect {
        shorter: bool,
    },
    /// The server says that the session has ended; there is another one.
    Renew,
    /// Somebody deletes the node.
    Evict,
}

impl Trust {
    pub(crate) fn new(left: Allowance, doubt: Doubt) -> Self {
        let lifetime = Lifetime::new(u32::from(TIMEOUT) * STEP, at(1), at(1));
        let stamp = lifetime.stamp(at(1));
        let mut trust = Self {
            doubt,
            now: 1,
            left,
            touched: 1,
            timeout: TIMEOUT,
            cut: false,
            there: true,
            least: TIMEOUT,
            connected: true,
            letters: Vec::new(),
            stamp: Some(stamp),
            lifetime,
            session: SESSIONS[0],
            proven: true,
            told: GuardState::Held,
            lost: false,
            wakes_at: None,
            violations: Vec::new(),
        };
        trust.tell();
        trust
    }

    /// Returns whether another client may hold the lock.
    fn is_free(&self) -> bool {
        !self.there || self.session != SESSIONS[0] || self.has_ended()
    }

    fn has_ended(&self) -> bool {
        self.touched + self.timeout <= self.now
    }

    /// Returns whether the follower must report this letter by `time`: it answered the letter long
    /// before.
    fn is_due(&self, letter: &Letter, time: Duration) -> bool {
        let after = u32::from(self.least) * STEP * 35 / 100;
        let due = letter
            .answered
            .is_some_and(|answered| at(answered) + after <= time);
        due && !letter.arrived
    }

    fn send(&mut self, stamp: Option<Stamp>) {
        self.letters.push(Letter {
            sent: self.now,
            stamp,
            answered: None,
            arrived: false,
        });
    }

    fn arrive(&mut self, nth: usize) {
        let letter = &mut self.letters[nth];
        letter.arrived = true;
        let touches = letter.stamp.is_none();
        if touches && self.touched + self.timeout > self.now {
            self.touched = self.now.min(self.touched.max(letter.sent));
        }
        self.forget();
    }

    fn answer(&mut self, nth: usize) {
        let now = at(self.now);
        let letter = &mut self.letters[nth];
        letter.answered = Some(self.now);
        let (sent, stamp) = (letter.sent, letter.stamp.take());
        // The follower reports of a proof, too, that it came from a client.
        letter.arrived &= stamp.is_none();
        self.lifetime.answered(at(sent), now);
        if stamp.is_some() && self.there {
            self.lifetime.committed(at(sent), 0);
        }
        match stamp {
            Some(stamp) if self.there => self.confirm(stamp),
            Some(_) => self.stamp = None,
            None if self.doubt == Doubt::TakesPingsForProofs => {
                self.confirm(Stamp {
                    sent: at(sent),
                    touched: at(sent),
                });
            }
            None => {}
        }
        self.forget();
    }

    fn confirm(&mut self, mut stamp: Stamp) {
        self.proven = true;
        let now = at(self.now);
        match self.doubt {
            Doubt::TakesACommitForATouch => stamp.touched = stamp.sent,
            Doubt::CountsFromTheAnswer => {
                stamp = Stamp {
                    sent: now,
                    touched: stamp.touched + (now - stamp.sent),
                };
            }
            Doubt::ReturnsFromLost => self.stamp = self.stamp.or(Some(stamp)),
            _ => {}
        }
        self.look();
        self.stamp = self.stamp.map(|old| old.or_newer(stamp));
    }

    /// Returns what the guard knows of its session and its connection.
    fn terms(&self) -> Terms {
        let terms = Terms {
            over: self.session != SESSIONS[0],
            ..self.lifetime.terms()
        };
        match self.doubt {
            Doubt::ForgivesAReconnect if self.connected => Terms {
                connected: Duration::ZERO,
                ..terms
            },
            _ => terms,
        }
    }

    /// Loses the lock when its time is over.
    fn look(&mut self) {
        let (terms, now) = (self.terms(), at(self.now));
        self.stamp = self.stamp.filter(|stamp| now < terms.until(*stamp));
    }

    fn state(&self) -> GuardState {
        let validity = self.stamp.map(|stamp| self.terms().validity(stamp));
        validity.map_or(GuardState::Lost, |validity| validity.state(at(self.now)))
    }

    /// Forgets the letters that were answered and of which the leader has heard.
    fn forget(&mut self) {
        self.letters
            .retain(|letter| !(letter.arrived && letter.answered.is_some()));
    }

    fn break_connection(&mut self) {
        self.connected = false;
        self.proven = false;
        // Letters without an answer never get one; those that were answered, the follower may still
        // report.
        self.letters.retain(|letter| letter.answered.is_some());
        if self.doubt != Doubt::OverlooksABreak {
            self.lifetime.broke();
        }
    }

    fn reconnect(&mut self, shorter: bool) {
        let now = at(self.now);
        let granted = match shorter {
            true => SHORTER,
            false => TIMEOUT,
        };
        self.touched = self.now;
        self.timeout = granted;
        self.least = self.least.min(granted);
        self.cut = false;
        self.connected = true;
        self.letters.clear();
        let believed = match self.doubt {
            Doubt::KeepsTheLongerTimeout => TIMEOUT,
            _ => granted,
        };
        self.lifetime.greets(now, Some(LEAST_TIMEOUT));
        // What was sent before the connection broke was sent before this answer, if in the same step.
        let answered = now + Duration::from_nanos(1);
        self.lifetime
            .greeted(u32::from(believed) * STEP, now, answered);
    }

    fn renew(&mut self) {
        let now = at(self.now);
        self.session = SESSIONS[1];
        self.there = false;
        self.touched = self.now;
        self.timeout = TIMEOUT;
        self.cut = false;
        self.connected = true;
        self.letters.clear();
        self.lifetime = Lifetime::new(u32::from(TIMEOUT) * STEP, now, now);
    }

    /// Lets the guard's events say what has changed, and plans the next event.
    fn tell(&mut self) {
        self.look();
        self.told = self.state();
        self.lost |= self.told == GuardState::Lost;
        let late = match self.doubt {
            Doubt::SleepsPastTheChange => STEP,
            _ => Duration::ZERO,
        };
        let validity = self.stamp.map(|stamp| self.terms().validity(stamp));
        let next = validity.and_then(|validity| validity.next_change(self.told));
        self.wakes_at = next.map(|time| time + late);
    }
}

impl Model for Trust {
    type Step = Step;

    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        if self.left.time == 0 {
            return steps;
        }
        let alive = !self.has_ended();
        let next = at(self.now + 1) - Duration::from_nanos(1);
        let mut due = self
            .letters
            .iter()
            .filter(|letter| self.is_due(letter, next));
        let overdue = alive && !self.cut && due.next().is_some();
        steps.extend((!overdue).then_some(Step::Tick));
        if self.connected {
            steps.extend((0 < self.left.pings).then_some(Step::Ping));
            steps.extend((0 < self.left.proofs).then_some(Step::Prove));
            steps.extend((0 < self.left.breaks).then_some(Step::Break));
            steps.extend((0 < self.left.breaks && !self.cut).then_some(Step::Cut));
            let evicts = self.there && 0 < self.left.breaks;
            steps.extend(evicts.then_some(Step::Evict));
        } else if alive && self.session == SESSIONS[0] {
            steps.extend([false, true].map(|shorter| Step::Reconnect { shorter }));
        } else if !self.connected {
            steps.push(Step::Renew);
        }
        for (nth, letter) in self.letters.iter().enumerate() {
            let arrives = !letter.arrived && !self.cut && alive;
            // A report that was due before a proof was sent comes to the leader before the proof.
            let mut others = self.letters.iter();
            let proves = letter.stamp.is_some();
            let waits = proves && others.any(|other| self.is_due(other, at(letter.sent)));
            steps.extend((arrives && !waits).then_some(Step::Arrive(nth)));
            let answers = letter.answered.is_none() && self.connected;
            let served = letter.stamp.is_none() || letter.arrived;
            steps.extend((answers && served).then_some(Step::Answer(nth)));
        }
        steps
    }

    fn take(&self, step: Step) -> Self {
        let mut next = self.clone();
        match step {
            Step::Tick => {
                next.now += 1;
                next.left.time -= 1;
            }
            Step::Ping => {
                next.left.pings -= 1;
                next.send(None);
            }
            Step::Prove => {
                next.left.proofs -= 1;
                next.send(Some(next.lifetime.stamp(at(next.now))));
            }
            Step::Arrive(nth) => next.arrive(nth),
            Step::Answer(nth) => next.answer(nth),
            Step::Cut => {
                next.left.breaks -= 1;
                next.cut = true;
            }
            Step::Break => {
                next.left.breaks -= 1;
                next.break_connection();
            }
            Step::Reconnect { shorter } => next.reconnect(shorter),
            Step::Renew => next.renew(),
            Step::Evict => {
                next.left.breaks -= 1;
                next.there = false;
            }
        }
        let due = next.wakes_at.is_some_and(|time| time <= at(next.now));
        if due || step != Step::Tick {
            next.tell();
        }
        next
    }

    fn is_progress(_: Step) -> bool {
        true
    }

    fn is_finished(&self) -> bool {
        self.left.time == 0
    }

    fn check(&mut self, _: bool) {
        let state = self.state();
        let evicted = !self.there && self.session == SESSIONS[0] && !self.has_ended();
        // The guard hears of an eviction from the next proof.
        if state != GuardState::Lost && self.is_free() && !evicted {
            self.violations.push(Violation {
                property: Property::Exclusion,
                text: format!("the guard is {state:?} after the end of its session"),
            });
        }
        if state != self.told {
            self.violations.push(Violation {
                property: Property::Sleep,
                text: format!("the guard is {state:?}, and its events say {:?}", self.told),
            });
        }
        if state == GuardState::Held && !self.proven {
            self.violations.push(Violation {
                property: Property::Truth,
                text: "the guard is held, and nothing was confirmed since a break".to_owned(),
            });
        }
        if state != GuardState::Lost && self.lost {
            self.violations.push(Violation {
                property: Property::Truth,
                text: format!("the guard is {state:?}, and was lost before"),
            });
        }
    }

    fn violations(&mut self) -> Vec<Violation> {
        mem::take(&mut self.violations)
    }
}

fn at(step: u8) -> Duration {
    u32::from(step) * STEP
}
