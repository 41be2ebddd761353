//! One client: a session, and all that happens in it to its mutexes, read-write locks and semaphores, in one value.
//!
//! It puts the machines of [`zklock_core`] together without threads: `tests/play` plays several of it against simulated
//! servers, and `tests/shell` has real threads and sockets around one. It is not the client that ships, which drives
//! the same machines from the threads that want locks.
//!
//! ```text
//!     what happened                                        what to do about it
//!
//!  greets, connected ──┐                               ┌──► next_request   to write, in order
//!  broke, expired      │    ┌─────────────────────┐    │
//!  answer, pong, event ├───►│        Core         │────┼──► next_wake      whom to wake, with what
//!  tick, ends          │    │                     │    │
//!                      │    │ line per path       │    ├──► next_news      whom a thread waits for
//!     what users want  │    │   └ acquisition     │    ├──► next_notice    what guards may believe
//!                      │    │ leases   writes     │    ├──► hangs_up       leave the server
//!  ask, follow, cancel │    │ releases orderly    │    │
//!  release             ├───►│ link (calls)        ├────┴──► next_tick      come again by then
//!                           └─────────────────────┘
//! ```
//!
//! A [`Core`] is a value. It performs no I/O, starts no thread and reads no clock: every input says what
//! time it is. The shell around it decides nothing. It passes in what happens, in the order in which it
//! happens, and after each input does what the core says until nothing is left to do: that is a *turn*. All
//! requests of a turn leave in one write.
//!
//! ```
//! use std::time::Duration;
//! use zklock_core::attempt::Patience;
//! use zklock_core::dialect::Role;
//! use zklock_play::{Ask, Core, Outcome, Settings, Thread};
//!
//! let settings = Settings::new(zklock_core::dialect::Dialect::Curator, 0x5eed);
//! let mut core = Core::new(settings);
//! let ask = Ask::Lock {
//!     path: "/locks/a".into(),
//!     role: Role::Exclusive,
//!     patience: Patience::Waits,
//!     until: Some(Duration::from_secs(100)),
//! };
//! let ticket = core.ask(Duration::from_secs(90), Thread(1), ask);
//! // There is no connection yet: the only thing to do is to come back at the limit.
//! assert_eq!(core.next_request(), None);
//! assert_eq!(core.next_tick(), Some(Duration::from_secs(100)));
//! core.tick(Duration::from_secs(100));
//! assert_eq!(core.next_wake(), Some((ticket, Outcome::GaveUp { taken: false })));
//! ```
//!
//! # What happened
//!
//! - [`greets`](Core::greets): a connect request is about to be sent. Its answer may be lost, and the
//!   request may have made the session shorter.
//! - [`connected`](Core::connected): a server serves, the same session as before or another one.
//! - [`broke`](Core::broke): the connection is gone. [`expired`](Core::expired): so is the session.
//!   [`ends`](Core::ends): there will be neither again.
//! - [`answer`](Core::answer) and [`event`](Core::event): what the server sends, in its order; an answer
//!   is for the oldest request that has none. [`pong`](Core::pong) answers the oldest ping.
//! - [`tick`](Core::tick): the time has come that [`next_tick`](Core::next_tick) has named. A tick may be late, as
//!   when the process was stopped, and may come for no reason. What has arrived by then must be passed in first.
//!
//! # What users want
//!
//! Each [`ask`](Core::ask) has a [`Ticket`], and each ticket is woken once, with its [`Outcome`]; the
//! thread behind it sleeps in between. [`cancel`](Core::cancel) wakes it now. [`release`](Core::release) is
//! a guard's drop: nobody waits for it. The thread of a [followed](Core::follow) ticket is told which
//! contenders it waits for, at first and when that changes: other clients' nodes, by what its watches read
//! anyway, or threads of its own client. [`Counts`] are there to be read.
//!
//! # What guards believe
//!
//! A guard holds the last [`Validity`](zklock_core::validity::Validity) it was told, first by its [`Grant`], then
//! by [`Notice`]s. It compares that with its own clock, and asks nobody. A lock is lost from `until` on,
//! whether or not the core has had its turn by then, and stays lost: a shell that has seen that moment pass
//! disregards later notices. A lost lock has a [`Loss`], and the first reason stays.
//!
//! # A contended lock, turn by turn
//!
//! ```text
//!  ask                 ──► create, list                     no watch yet: who is ahead is not known
//!  answer, answer      ──► exists mine, get theirs          both leave a watch
//!  event: theirs went  ──► (wake: held)                     if the proof is young; it is kept so
//!  release             ──► delete mine and create, list     with the next thread's create
//! ```
//!
//! `turns` says whose turn it is at a path, and `acquisition` leads one thread to the head of the queue,
//! past holds that are over. `permits` leads one through the line in front of a semaphore to a permit.
//! `leases`, `writes` under a lock and `releases` are what follows, `orderly` is the note that a release
//! leaves, and `link` is what all of them send through.
//!
//! # What stays out
//!
//! Every other kind of lock, and several permits at once; what connects, logs in and picks a server (in
//! [`connection`](zklock_core::connection)); the creation of holds, and marks; circles of waiters; servers
//! without transactions or `create2`.

#![cfg_attr(not(test), no_std)]
#![deny(clippy::disallowed_types)]
#[macro_use]
extern crate alloc;

mod ask;
mod asked;
mod calls;
mod commit;
mod counts;
mod dispatch;
mod end;
mod ids;
mod leases;
mod line;
mod link;
mod loss;
mod news;
mod orderly;
mod permit_call;
mod permit_nodes;
mod permit_requests;
mod permits;
mod refusal;
mod releases;
mod tells_news;
mod turns;
mod wants;
mod wired;
mod writes;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::fmt;

pub use self::ask::{
    Ahead, Answer, Ask, Counts, Grant, Greeting, GuardId, LOST, Loss, Nearest, Notice, Outcome,
    Settings, Thread, Ticket, Time,
};
use self::asked::{Alarm, Asked};
use self::commit::Commit;
use self::leases::Leases;
use self::line::{Line, LineId};
use self::link::Link;
use self::news::News;
use self::orderly::Orderly;
use self::permit_call::Permits;
use self::releases::Releases;
use zklock_core::path;
use zklock_jute::{Event, Request};

/// The locks of one client; see the page of this crate.
pub struct Core {
    link: Link,
    /// The threads that want a path or have it.
    lines: BTreeMap<LineId, Line>,
    leases: Leases,
    releases: Releases,
    permits: Permits,
    orderly: Orderly,
    /// The transactions that could not be sent yet.
    unsent: Vec<Commit>,
    asks: BTreeMap<Ticket, Asked>,
    last_ticket: u64,
    alarms: BTreeSet<(Time, Alarm)>,
    wakes: VecDeque<(Ticket, Outcome)>,
    news: News,
    counts: Counts,
}

impl Core {
    /// Creates a core without a connection.
    pub fn new(settings: Settings) -> Self {
        Self {
            link: Link::new(settings),
            lines: BTreeMap::new(),
            leases: Leases::default(),
            releases: Releases::default(),
            permits: Permits::default(),
            orderly: Orderly::default(),
            unsent: Vec::new(),
            asks: BTreeMap::new(),
            last_ticket: 0,
            alarms: BTreeSet::new(),
            wakes: VecDeque::new(),
            news: News::default(),
            counts: Counts::default(),
        }
    }

    /// Returns the session to ask for, or 0, and the last change that a server has shown.
    pub fn session(&self) -> (i64, i64) {
        (self.link.session, self.link.last_zxid())
    }

    /// Returns how many nodes this core still has to delete.
    pub fn leftovers(&self) -> usize {
        self.releases.len()
    }
}

// What happened.
impl Core {
    /// Notes that a connect request is sent now, for the present session.
    pub fn greets(&mut self, now: Time) {
        self.pass(now);
        self.link.greets();
        self.leases.link_changed();
        self.settle();
    }

    /// Notes that a server serves.
    pub fn connected(&mut self, now: Time, greeting: Greeting) {
        self.pass(now);
        let resumed = self.link.greeted(greeting);
        if !resumed {
            self.serves(greeting.session);
        }
        // Others wait for what is to be deleted, so the deletions go first.
        self.releases.send_due(&mut self.link);
        self.leases.connected();
        self.send_unsent();
        self.settle();
        for line in self.line_ids() {
            self.dismiss_tries(&line);
            if let Some(acquisition) = self.lines.get_mut(&line).and_then(Line::acquisition) {
                acquisition.connected(resumed, &mut self.link.on(&line));
                self.advance(&line);
            }
        }
        self.resume_calls();
        self.settle();
    }

    /// Notes that the connection is gone.
    pub fn broke(&mut self, now: Time) {
        self.pass(now);
        for (call, failure) in self.link.broke() {
            self.answered(call, Err(failure));
        }
        for line in self.lines.values_mut() {
            if let Some(acquisition) = line.acquisition() {
                acquisition.broke();
            }
        }
        self.leases.link_changed();
        self.settle();
    }

    /// Notes that a server says that the session has expired. There is no connection.
    pub fn expired(&mut self, now: Time) {
        self.pass(now);
        self.link.expired();
        self.serves(0);
        self.leases.link_changed();
        self.settle();
    }

    /// Takes in the answer to the oldest request that has none.
    pub fn answer(&mut self, now: Time, answer: Answer) {
        self.pass(now);
        if let Some((call, answered)) = self.link.answered(answer) {
            self.answered(call, answered);
        }
        self.link.tick();
        self.settle();
    }

    /// Takes in the answer to the oldest ping.
    pub fn pong(&mut self, now: Time) {
        self.pass(now);
        self.link.pong();
        self.link.tick();
        self.settle();
    }

    /// Takes in that a watch has fired.
    pub fn event(&mut self, now: Time, event: &Event) {
        self.pass(now);
        self.link.heard();
        let (dir, name) = (path::parent(&event.path), path::name(&event.path));
        // The event of a node, or of a directory whose children are watched.
        self.happened(dir, (name, &event.path), event.kind);
        self.happened(&event.path, ("", &event.path), event.kind);
        self.settle();
    }

    /// Notes that time has passed.
    pub fn tick(&mut self, now: Time) {
        self.pass(now);
        self.link.tick();
        self.settle();
    }
}

// What to do about it.
impl Core {
    /// Returns the next request to write to the server.
    pub fn next_request(&mut self) -> Option<Request> {
        self.link.next_request()
    }

    /// Returns the next thread to wake.
    pub fn next_wake(&mut self) -> Option<(Ticket, Outcome)> {
        self.wakes.pop_front()
    }

    /// Returns the next guard to tell something.
    pub fn next_notice(&mut self) -> Option<(GuardId, Notice)> {
        self.leases.notices.pop_front()
    }

    /// Returns whether the connection is of no use any more.
    pub fn hangs_up(&self) -> bool {
        self.link.hangs_up
    }

    /// Returns when to [`tick`](Self::tick), at the latest.
    pub fn next_tick(&self) -> Option<Time> {
        if self.link.over.is_some() {
            return None;
        }
        let alarm = self.alarms.first().map(|(at, _)| *at);
        let rest = [self.leases.next, self.releases.next, self.link.next_tick()];
        rest.into_iter().fold(alarm, |first, other| match other {
            Some(other) => Some(first.map_or(other, |first| first.min(other))),
            None => first,
        })
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("session", &self.link.session)
            .field("lines", &self.lines)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
