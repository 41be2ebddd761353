//! What a call asks for: which queue to go through, and how to wait in it.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::path;
use crate::session::Session;
use crate::session::caller::Replies;
use crate::session::lease::Lease;
use crate::system::channel::Receiver;
use crate::system::clock;
use crate::system::sync::Mutex;
use crate::time::limit::{Limit, LimitReached, Waits, from_now};
use zklock_core::attempt::Patience;
use zklock_core::dialect::{Dialect, Role};
use zklock_core::directories::Lasting;
use zklock_core::overdue_holder::Overdue;
use zklock_core::permit_attempt::{PASSING, next_look, passing};
use zklock_core::queue::Contest;
use zklock_core::seen_ahead::SeenAhead;
use zklock_core::skip_listing::LastGrant;
use zklock_jute::{CreateMode, Request, Stat};

/// A lock is granted late or never if a round trip takes this fraction of the session timeout.
const SLOW: u32 = 6;

/// A queue, and what its contender asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue<'a> {
    /// The path of the lock, for messages.
    pub(crate) path: &'a str,
    /// The directory of the queue's nodes.
    pub(crate) dir: &'a str,
    pub(crate) role: Role,
    /// The dialect of the names; `None` for that of the client.
    pub(crate) dialect: Option<Dialect>,
    /// How many may hold at once, for permits.
    pub(crate) permits: u32,
    /// Whether the caller has seen room for a permit, which nobody takes before it.
    pub(crate) has_room: bool,
    /// Nodes in this directory that the same call holds.
    pub(crate) held: &'a [String],
    /// What becomes of the directory once it is empty.
    pub(crate) lasting: Lasting<'a>,
    /// The reads of the caller that must be as new as the grant.
    pub(crate) reads: &'a [Request],
    /// Another lock, which must be held all the while.
    pub(crate) under: Option<&'a Lease>,
    /// The last grant to the threads that take turns here.
    pub(crate) last: Option<&'a Mutex<Option<LastGrant>>>,
}

/// How a call waits: the options of its user, always with a limit.
pub(crate) struct LockRequest<'a> {
    pub(crate) patience: Patience,
    pub(crate) limit: Limit,
    /// Whether a server has said that others are ahead.
    pub(crate) taken: bool,
    /// Whether the queue's directory is missing, and its contenders do not create it.
    pub(crate) lacks_directory: bool,
    /// When to give up once a server has said that others are ahead, if that is before the limit.
    pub(crate) until_if_taken: Option<Instant>,
    /// How the call lets those pass that are ahead, if it gives up where they do not.
    pub(crate) lets_pass: Option<LetsPass>,
    /// The answers to the queue's reads, if they came with the lock.
    pub(crate) read: Option<Replies>,
    /// The contenders that the call has seen ahead, if it is to find out how they left.
    pub(crate) seen: Option<SeenAhead>,
    /// The text that others are shown instead of the client's own.
    pub(crate) note: Option<String>,
    pub(crate) on_wait: Option<Box<OnWait<'a>>>,
    /// Fails if this thread is in a circle of waiters.
    pub(crate) circles: Option<Box<Circles>>,
    /// Whether the call stands in several queues at a time, and may be first in some.
    pub(crate) several: bool,
    pub(crate) overdue: Option<Overdue>,
    /// How long the nodes must stay at least.
    pub(crate) hold_at_least: Option<Duration>,
    /// Set if a mutex is to mark its path while it is held: how long to wait before entering after a predecessor
    /// that left without releasing.
    pub(crate) tracking: Option<Duration>,
    /// Whether a hold is to replace the lock.
    pub(crate) for_a_hold: bool,
}

/// How a call lets those pass that are ahead of it in a semaphore's line, although it does not wait for a permit.
pub(crate) struct LetsPass {
    /// Whether there may still be a permit for this call, according to a server that has caught up.
    pub(crate) is_of_use: Box<dyn Fn(&Limit) -> bool>,
    /// Since when others have been ahead, how many were then, and when to look at the permits again.
    pub(crate) ahead: Option<(Duration, usize, Duration)>,
}

impl LetsPass {
    /// Looks whether to let those pass for longer that have been ahead since then. Returns when to look again.
    fn goes_on(&self, limit: &Limit, (since, ahead): (Duration, usize)) -> Option<Duration> {
        let asked = clock::since_boot();
        let is_of_use = !limit.is_over() && (self.is_of_use)(limit);
        let now = clock::since_boot();
        // The look waits for a write, which takes as long as theirs.
        let write = now.saturating_sub(asked);
        let goes_on = is_of_use && now < since.saturating_add(passing(ahead, write));
        goes_on.then(|| now + next_look(ahead, write))
    }
}

/// The request of a thread that stands in the line of its client, and how many threads are ahead there.
pub(super) struct InLine<'a, 'b>(pub(super) &'a LockRequest<'b>, pub(super) &'a Cell<usize>);

impl Waits for InLine<'_, '_> {
    fn recv<T>(&self, from: &Receiver<T>) -> Result<T, LimitReached> {
        let Self(
            LockRequest {
                limit, lets_pass, ..
            },
            ahead,
        ) = self;
        let Some(lets_pass) = lets_pass else {
            return limit.recv(from);
        };
        let since = clock::since_boot();
        let mut again = since + PASSING;
        loop {
            let pause = again.saturating_sub(clock::since_boot());
            let received = limit.clone().until(Some(from_now(pause))).recv(from);
            if received.is_ok() {
                return received;
            }
            again = lets_pass
                .goes_on(limit, (since, ahead.get()))
                .ok_or(LimitReached)?;
        }
    }
}

/// A callback that gets what is ahead, at first and whenever it changes.
pub(crate) type OnWait<'a> = dyn FnMut(&Ahead) + 'a;

/// A callback that gets the node that is nearest ahead, whether the caller stands in other queues
/// too, and until when it may look.
pub(crate) type Circles = dyn Fn(&str, bool, &Limit) -> Result<()>;

/// What is ahead of a waiting thread.
#[derive(Clone, Debug)]
pub(crate) struct Ahead {
    pub(crate) since: Duration,
    pub(crate) count: usize,
    pub(crate) nearest: String,
    /// Whether the nearest contender holds.
    pub(crate) holds: bool,
    pub(crate) data: Vec<u8>,
    /// Empty if a crowd is ahead, in which no contender is nearest, or a thread of this client.
    pub(crate) stat: Stat,
}

impl Ahead {
    /// Returns what is ahead of a thread that begins to stand in the line of its client.
    pub(super) fn in_line(count: usize) -> Self {
        Self {
            since: Duration::ZERO,
            count,
            nearest: String::new(),
            holds: false,
            data: Vec::new(),
            stat: Stat::default(),
        }
    }
}

impl<'a> Queue<'a> {
    /// Returns the queue in the lock's own directory.
    pub(crate) fn of(path: &'a str, role: Role) -> Self {
        Self {
            path,
            dir: path,
            role,
            dialect: None,
            permits: 0,
            has_room: false,
            held: &[],
            lasting: Lasting::WhileUsed,
            reads: &[],
            under: None,
            last: None,
        }
    }

    /// Returns the terms on which a client of this session queues here.
    pub(super) fn contest(&self, session: &Session) -> Contest {
        Contest {
            dialect: self.dialect.unwrap_or(session.settings.dialect),
            role: self.role,
            permits: self.permits as usize,
        }
    }

    /// Returns whether this path is the queue's directory, or a node in it.
    pub(super) fn has(&self, path: &str) -> bool {
        path == self.dir || path::parent(path) == self.dir
    }

    /// Returns whether a place in this queue is no longer of use.
    pub(super) fn is_pointless(&self) -> bool {
        self.under.is_some_and(|under| under.check().is_err())
    }
}

impl LockRequest<'_> {
    /// Returns whether any node of this client will do.
    pub(crate) fn is_plain(&self) -> bool {
        self.note.is_none() && self.hold_at_least.is_none() && self.tracking.is_none()
    }

    /// Notes that a server has said that others are ahead.
    pub(crate) fn note_taken(&mut self) {
        self.taken = true;
        self.limit = self.limit.clone().until(self.until_if_taken);
    }

    /// Returns when a call that lets others pass looks whether that is of use, once they are ahead.
    pub(super) fn looks_again(&self) -> Option<Duration> {
        Some(self.lets_pass.as_ref()?.ahead?.2)
    }

    /// Returns whether a call that has so many others ahead gives up, although it has not reached its limit.
    pub(super) fn has_let_pass(&mut self, ahead: usize) -> bool {
        let Some(lets_pass) = &mut self.lets_pass else {
            return false;
        };
        let now = clock::since_boot();
        let begun = (now, ahead, now + PASSING);
        let (since, ahead, again) = *lets_pass.ahead.get_or_insert(begun);
        if now < again {
            return false;
        }
        let again = lets_pass.goes_on(&self.limit, (since, ahead));
        lets_pass.ahead = again.map(|again| (since, ahead, again));
        again.is_none()
    }

    /// Notes that the call queues again: see [`SeenAhead::lose_sight`].
    pub(crate) fn loses_sight(&mut self) {
        if let Some(seen) = &mut self.seen {
            seen.lose_sight();
        }
    }

    /// Returns the result of a call that ends without the lock: `None` if the lock is taken or the
    /// caller cancelled, and an error if no server has said so.
    pub(crate) fn refused<T>(&self, session: &Session) -> Result<Option<T>> {
        if self.taken || self.limit.was_cancelled() {
            return Ok(None);
        }
        let (spent, timeout) = (self.limit.spent(), session.status.snapshot().timeout);
        let round_trip = session.status.round_trip_within(spent);
        Err(Error::ConnectTimeout {
            limit: Duration::from_millis(spent.as_millis() as u64),
            tried: session.status.trouble(),
            round_trip: round_trip.filter(|took| timeout / SLOW <= *took),
            held_back: session.status.holds_back_for(),
        })
    }
}

/// Returns the request that creates a contender's node.
pub(super) fn creation(
    session: &Session,
    queue: &Queue<'_>,
    note: Option<&str>,
    prefix: &str,
) -> Request {
    let contest = queue.contest(session);
    Request::Create {
        path: format!("{}/{prefix}", queue.dir),
        data: session.settings.card.text(note).into(),
        acl: session.acl(),
        mode: match contest.dialect.is_numbered(contest.role) {
            true => CreateMode::EphemeralSequential,
            false => CreateMode::Ephemeral,
        },
        stat: true,
    }
}
