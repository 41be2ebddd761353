//! Carries out the acquisition of a permit; [`Permit`] decides.

mod look;

use std::mem;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Semaphore;
use crate::error::{Error, Result};
use crate::lock::raw_guard::{RawGuard, Turn};
use crate::lock::request::{Ahead, LockRequest, Queue};
use crate::path;
use crate::session::Session;
use crate::session::call_error::{CallError, refused};
use crate::session::queries::Seen;
use crate::system::clock;
use zklock_core::attempt::Patience;
use zklock_core::dialect::Role;
use zklock_core::overdue_holder::Overdue;
use zklock_core::permit_attempt::{Action, Event, Layout, Others, Outcome, Permit, Wish, written};
use zklock_core::seen_ahead::SeenAhead;
use zklock_jute::{ErrorCode, Request};

/// One acquisition of permits.
struct PermitDriver<'a, 'q> {
    semaphore: &'a Semaphore,
    layout: Layout<'a>,
    request: LockRequest<'q>,
    permit: Permit,
    patience: Patience,
    overdue: Option<Overdue>,
    /// The holders of the permits that were taken, if the call is to find out how they left.
    seen: Option<SeenAhead>,
    /// The number of permits, as it is stored.
    number: String,
    /// The holder of the oldest permit that was granted under another number.
    holder: Option<Ahead>,
    // Fields drop in this order: leave the server's queue first, then call the next thread.
    held: Vec<RawGuard>,
    first: Option<RawGuard>,
    turn: Option<Turn>,
}

impl Semaphore {
    /// Acquires this many permits; returns `None` if they are not free, or at the limit.
    pub(super) fn take(&self, count: u32, request: LockRequest<'_>) -> Result<Option<RawGuard>> {
        PermitDriver::new(self, count, request).run()
    }
}

impl<'a, 'q> PermitDriver<'a, 'q> {
    fn new(semaphore: &'a Semaphore, count: u32, mut request: LockRequest<'q>) -> Self {
        let patience = mem::replace(&mut request.patience, Patience::Waits);
        request.hold_at_least = None;
        request.circles = None;
        let agreed = semaphore.known.permits.load(Ordering::Relaxed);
        let wish = Wish {
            patience,
            limited: request.limit.deadline().is_some(),
            agreed: agreed == semaphore.permits,
            count: count as usize,
        };
        let layout = semaphore.layout();
        Self {
            permit: Permit::new(layout.dialect, semaphore.permits as usize, wish),
            layout,
            patience,
            // The queue must not evict: its first contender has no permit yet, but waits for one.
            overdue: request.overdue.take(),
            // Contenders ahead in the queue have no permit yet either.
            seen: request.seen.take(),
            number: semaphore.permits.to_string(),
            holder: None,
            held: Vec::new(),
            first: None,
            turn: None,
            semaphore,
            request,
        }
    }

    fn run(mut self) -> Result<Option<RawGuard>> {
        let mut looked = false;
        loop {
            let event = match self.permit.action() {
                Action::Finish(outcome) => {
                    self.request.taken |= looked;
                    return self.finish(outcome);
                }
                Action::Look => self.look(false)?,
                Action::LookAgain => self.look_again()?,
                Action::Line => self.line()?,
                Action::Make => self.make()?,
                Action::Read(others) => {
                    self.request.note_taken();
                    self.read(&others)?
                }
                Action::Await(others) => {
                    self.request.note_taken();
                    self.wait_for(&others)?
                }
                Action::Write(_, version, before) => self.write(version, before)?,
                Action::Permit(has_room) => self.queue(has_room)?,
                Action::Check => self.check(),
                Action::Inspect(_) => self.inspect()?,
            };
            looked = matches!(event, Event::Looked(_));
            self.permit.handle(event);
        }
    }

    fn finish(self, outcome: Outcome) -> Result<Option<RawGuard>> {
        let path = &*self.semaphore.path;
        if !outcome.leaves_agreed() {
            self.semaphore.known.permits.store(0, Ordering::Relaxed);
        }
        match outcome {
            Outcome::Held => Ok(RawGuard::join(self.held)),
            Outcome::Gone => self.semaphore.locks.refused(&self.request, &self.turn),
            Outcome::Evicted(_) => Err(Error::Evicted {
                node: self.first().to_owned(),
            }),
            Outcome::Foreign(foreign) => Err(self.session().foreign(path, foreign)),
            Outcome::NoAuth => Err(refused(path, ErrorCode::NO_AUTH)),
            Outcome::Unmarked => Err(Error::Unmarked {
                path: path.to_string(),
                what: "a semaphore",
            }),
            Outcome::Disagrees(others) => Err(self.disagreement(&others)),
        }
    }

    /// Waits in the queue, as the thread that has the turn.
    fn line(&mut self) -> Result<Event> {
        let locks = self.layout.line();
        self.held.clear();
        if self.has_lost_its_place() && self.request.limit.is_over() {
            return Ok(Event::Cancel);
        }
        self.request.lets_pass = (self.patience == Patience::Tries).then(|| self.lets_pass());
        self.request.patience = Patience::Waits;
        self.request.overdue = None;
        if self.turn.is_none() && !self.takes_its_turn(&locks)? {
            return Ok(Event::Cancel);
        }
        let [lasting, _] = self.layout.lasting(self.number.as_bytes());
        let (look, _) = self.layout.looks(false);
        let line = Queue {
            dir: &locks,
            reads: &look,
            dialect: Some(self.layout.dialect_of_line()),
            lasting,
            ..Queue::of(&self.semaphore.path, Role::Exclusive)
        };
        let first = RawGuard::acquire(self.session(), &line, &mut self.request, None)?;
        self.request.lets_pass = None;
        let event = first.as_ref().map(|first| Event::First(first.own_node()));
        self.first = first;
        Ok(event.unwrap_or(Event::Cancel))
    }

    /// Waits for the threads of this client that are ahead; returns `false` at the limit.
    fn takes_its_turn(&mut self, locks: &str) -> Result<bool> {
        let turn = self.semaphore.locks.turn(locks, &mut self.request);
        self.turn = turn.map_err(|error| match error {
            // The user knows nothing of the line's directory.
            Error::WouldDeadlock { .. } => Error::WouldDeadlock {
                path: self.semaphore.path.to_string(),
            },
            error => error,
        })?;
        Ok(self.turn.is_some())
    }

    fn make(&self) -> Result<Event> {
        let (dirs, limit) = ([self.layout.permits()], &self.request.limit);
        let [_, lasting] = self.layout.lasting(self.number.as_bytes());
        let made = self.session().make_directories(&dirs, lasting, limit)?;
        Ok(made.map_or(Event::Cancel, |()| Event::IsMade))
    }

    /// Reads the holder of the oldest permit.
    fn read(&mut self, others: &Others) -> Result<Event> {
        let nearest = self.lease(&others.oldest);
        let (nodes, limit) = (slice::from_ref(&nearest), || self.request.limit.clone());
        let mut read = match self.session().describe_within(nodes, limit) {
            Ok(read) => read,
            Err(error) => return error.or(&nearest, Event::Cancel),
        };
        let seen = read.pop().flatten();
        self.holder = seen.map(|seen| self.ahead(others, seen));
        Ok(match self.holder {
            Some(_) => Event::IsThere,
            None => Event::NoNode,
        })
    }

    /// Waits until the last permit that was granted under another number is gone.
    fn wait_for(&mut self, others: &Others) -> Result<Event> {
        let since = self.request.limit.spent();
        if let (Some(told), Some(holder)) = (self.request.on_wait.as_mut(), &self.holder) {
            told(&Ahead {
                since,
                ..holder.clone()
            });
        }
        let Some(first) = self.first.as_ref().filter(|first| first.check().is_ok()) else {
            return Ok(Event::Lost);
        };
        let (last, limit) = (self.lease(&others.last), &self.request.limit);
        if self
            .session()
            .touched(&last, first.lease().events(), limit)?
        {
            return Ok(Event::Woken);
        }
        let late = |deadline| deadline <= clock::now();
        Ok(match limit.deadline().is_some_and(late) {
            true => Event::TimeOut,
            false => Event::Cancel,
        })
    }

    /// Stores the number if the stored one is still the one that was read and this client is still
    /// first in the queue; the transaction that writes checks both.
    fn write(&self, version: i32, before: Option<u32>) -> Result<Event> {
        let (path, number) = (self.semaphore.path.to_string(), &self.number);
        if let Some(before) = before {
            log::warn!("the semaphore {path} had {before} permits, and has {number} from now on");
        }
        let session = self.session();
        let first = (self.first(), session.transport.transacts());
        let request = self.layout.write((number, version), first, &session.acl());
        match self.answer(&request, &path) {
            Ok(answer) => written(answer).map_err(|code| refused(&path, code)),
            Err(error) => error.or(&path, Event::Cancel),
        }
    }

    /// Returns what the server says to this request about `path`.
    fn answer(&self, request: &Request, path: &str) -> Result<Result<(), ErrorCode>, CallError> {
        let mut caller = self.session().caller();
        match caller.call(request, path, &self.request.limit) {
            Ok(_) => Ok(Ok(())),
            Err(CallError::Refused(code)) => Ok(Err(code)),
            Err(error) => Err(error),
        }
    }

    /// Acquires the permits, while the place in the queue is held.
    fn queue(&mut self, has_room: bool) -> Result<Event> {
        let (known, permits) = (&self.semaphore.known, self.semaphore.permits);
        known.permits.store(permits, Ordering::Relaxed);
        self.request.patience = self.patience;
        self.request.overdue.clone_from(&self.overdue);
        let leases = self.layout.permits();
        let [_, lasting] = self.layout.lasting(self.number.as_bytes());
        let names = self
            .held
            .iter()
            .map(|held| path::name(held.node()).to_owned());
        let held: Vec<_> = names.collect();
        let queue = Queue {
            dir: &leases,
            permits: self.semaphore.permits,
            has_room,
            lasting,
            held: &held,
            under: self.first.as_ref().map(RawGuard::lease),
            ..Queue::of(&self.semaphore.path, Role::Permit)
        };
        self.request.seen = self.seen.take();
        let held = RawGuard::acquire(self.session(), &queue, &mut self.request, None)?;
        self.seen = self.request.seen.take();
        let event = match mem::take(&mut self.request.lacks_directory) {
            true => Event::NoNode,
            false => Event::Permit(held.is_some()),
        };
        self.held.extend(held);
        Ok(event)
    }

    fn check(&self) -> Event {
        // The guard of the last permit reports whether that is held.
        let earlier = self
            .held
            .split_last()
            .map_or(&[][..], |(_, earlier)| earlier);
        let mut needed = self.first.iter().chain(earlier);
        match self.first.is_some() && needed.all(|raw| raw.check().is_ok()) {
            true => Event::IsFirst,
            false => Event::Lost,
        }
    }

    fn disagreement(&self, others: &Others) -> Error {
        let holder = self.holder.clone();
        let holder = holder.unwrap_or_else(|| self.ahead(others, Seen::default()));
        let holder = holder.contender(self.session());
        Error::PermitsDisagree {
            path: self.semaphore.path.to_string(),
            ours: self.semaphore.permits,
            theirs: others.number,
            holder: holder.named(),
            since: holder.since(),
        }
    }

    /// Returns the holder of the oldest permit, for people.
    fn ahead(&self, others: &Others, seen: Seen) -> Ahead {
        Ahead {
            since: Duration::ZERO,
            count: others.count,
            nearest: self.lease(&others.oldest),
            holds: true,
            data: seen.data,
            stat: seen.stat,
        }
    }

    /// Returns this client's node in the queue.
    fn first(&self) -> &str {
        self.first.as_ref().map_or("", RawGuard::node)
    }

    fn lease(&self, name: &str) -> String {
        format!("{}/{name}", self.layout.permits())
    }

    fn session(&self) -> &'a Arc<Session> {
        &self.semaphore.locks.session
    }
}
