//! Goes through several queues at once; [`Multi`] decides.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::driver::{self, Reached};
use super::fresh_id::fresh_id;
use super::raw_guard::RawGuard;
use super::request::{LockRequest, Queue};
use crate::error::{Error, Result};
use crate::path;
use crate::session::Session;
use crate::session::call_error::CallError;
use crate::session::caller::Caller;
use crate::session::confirm_grant::{Proven, hidden};
use crate::session::lease::Lease;
use crate::time::limit::Limit;
use crate::token::FencingToken;
use crate::transport::status::Snapshot;
use zklock_core::attempt::{Origin, OwnNode, Patience};
use zklock_core::connection::sync;
use zklock_core::dialect::Role;
use zklock_core::directories::Lasting;
use zklock_core::multi::{Action, Event, Multi, Outcome};
use zklock_core::validity::Stamp;
use zklock_jute::{CreateMode, ErrorCode, Names, Reply, Request};

/// One guard over all locks, and the token of each.
type Taken = (RawGuard, Vec<FencingToken>);

/// A queue to go through together with others.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) path: String,
    pub(crate) role: Role,
}

impl RawGuard {
    /// Goes through the queues of all `parts`, which are sorted by path; gets all locks or none.
    pub(crate) fn acquire_all(
        session: &Arc<Session>,
        parts: &[Part],
        request: &mut LockRequest<'_>,
    ) -> Result<Option<Taken>> {
        request.hold_at_least = None;
        request.several = true;
        let limit = request.limit.clone();
        loop {
            let mut caller = session.caller();
            let Some(snapshot) = caller.connected(&limit)? else {
                return Ok(None);
            };
            // A server may have shown since the last attempt that it has none.
            session.needs_transactions("several locks at once")?;
            for part in parts {
                let cleaner = &session.cleaner;
                if !cleaner.await_backlog(&part.path, &mut caller, &limit)? {
                    return Ok(None);
                }
            }
            let multi = begin(session, parts, request.patience, &snapshot);
            let driver = MultiDriver {
                session,
                parts,
                request,
                multi,
                caller,
                snapshot,
                limit: limit.clone(),
                stamp: Stamp::NEVER,
            };
            match driver.run()? {
                ControlFlow::Break(taken) => return Ok(taken),
                ControlFlow::Continue(()) if limit.is_over() => return Ok(None),
                ControlFlow::Continue(()) => request.loses_sight(),
            }
        }
    }
}

fn begin(session: &Session, parts: &[Part], patience: Patience, snapshot: &Snapshot) -> Multi {
    let roles: Vec<_> = parts.iter().map(|part| part.role).collect();
    let (dialect, known) = (session.settings.dialect, snapshot.known_session());
    Multi::new(&roles, dialect, &fresh_id(), known, patience)
}

/// One attempt to get through the queues.
struct MultiDriver<'a, 'q> {
    session: &'a Arc<Session>,
    parts: &'a [Part],
    request: &'a mut LockRequest<'q>,
    multi: Multi,
    caller: Caller,
    snapshot: Snapshot,
    limit: Limit,
    /// The stamp of the last request that proved anything.
    stamp: Stamp,
}

impl MultiDriver<'_, '_> {
    /// Breaks with the locks or without; continues if the caller must start over.
    fn run(mut self) -> Result<ControlFlow<Option<Taken>>> {
        loop {
            let event = match self.multi.action() {
                Action::Finish(outcome) => return self.finish(outcome),
                Action::Look(at) => self.look(at)?,
                Action::Place(prefixes) => self.place(&prefixes)?,
                Action::MakeParents => self.make_parents()?,
                Action::Births(names) => self.births(&names)?,
                Action::Lists(queues, catches_up) => self.lists(&queues, catches_up)?,
                Action::Queue(at, mine) => self.queue(at, &mine)?,
                Action::Prove(names) => self.prove(&names)?,
            };
            let event = self.in_session(event);
            self.multi.handle(event);
        }
    }

    /// Replaces an answer that came through another session: it says nothing about our nodes.
    fn in_session(&self, event: Event) -> Event {
        let same = self.session.status.snapshot().session == self.snapshot.session;
        match event {
            // `Created` passes: the births, which are read next, tell whose the nodes are.
            Event::Free | Event::Queues(_) | Event::NoNode | Event::ParentsMade if !same => {
                Event::NewSession
            }
            Event::Proved | Event::Gone(_) if !same => Event::NewSession,
            event => event,
        }
    }

    fn make_parents(&mut self) -> Result<Event> {
        let paths: Vec<_> = self.parts.iter().map(|part| part.path.clone()).collect();
        let (session, lasting) = (self.session, Lasting::WhileUsed);
        let made = session.make_directories(&paths, lasting, &self.limit)?;
        Ok(made.map_or(Event::Cancel, |()| Event::ParentsMade))
    }

    /// Creates a node in every queue.
    fn place(&mut self, prefixes: &[String]) -> Result<Event> {
        let (session, note) = (self.session, self.request.note.as_deref());
        let create = |(part, prefix): (&Part, &String)| {
            let node = format!("{}/{prefix}", part.path);
            let data = session.settings.card.text(note);
            Request::create(node, data, session.acl(), CreateMode::EphemeralSequential)
        };
        let creates = self.parts.iter().zip(prefixes).map(create).collect();
        if self.caller.connected(&self.limit)?.is_none() {
            return Ok(Event::Cancel);
        }
        self.stamp = self.session.status.stamp();
        let (creates, paths) = (Request::Multi(creates), self.all_paths());
        match self.caller.call_once(&creates, &paths, &self.limit) {
            Ok(Some(Reply::Multi(results))) => {
                let name = |result: &Result<Reply, ErrorCode>| match result {
                    Ok(Reply::Created { path, .. }) => Some(path::name(path).to_owned()),
                    _ => None,
                };
                let names: Option<_> = results.iter().map(name).collect();
                Ok(names.map_or(Event::ReplyLost, Event::Created))
            }
            Err(CallError::Refused(ErrorCode::NO_NODE)) => Ok(Event::NoNode),
            Ok(_) => Ok(Event::ReplyLost),
            Err(error) => error.or(&paths, Event::ReplyLost),
        }
    }

    /// Reads the birth of each node, which the answer to a transaction does not tell, and lists the queues.
    fn births(&mut self, names: &[String]) -> Result<Event> {
        let nodes = self.full(names);
        let looks = nodes.iter().map(|node| Request::exists(node));
        let lists = self.parts.iter().map(|part| Request::list(&part.path));
        let (asked, about) = (looks.chain(lists).collect::<Vec<_>>(), self.all_paths());
        let mut answers = match self.caller.call_all(&asked, &about, &self.limit) {
            Ok(answers) => answers,
            Err(error) => return error.or(&about, Event::Cancel),
        };
        let queues = answers.split_off(names.len());
        // Since ZooKeeper 3.8.4, only readers may ask for a birth. Nothing would ever confirm this lock.
        let is_hidden = |answer: &_| *answer == Err(ErrorCode::NO_AUTH);
        if let Some(at) = answers.iter().position(is_hidden) {
            return Err(hidden(&nodes, at));
        }
        let birth = |answer| match answer {
            Ok(Reply::Stat(stat)) => Some(Origin {
                owner: stat.ephemeral_owner,
                czxid: stat.czxid,
            }),
            _ => None,
        };
        Ok(Event::Births(
            answers.into_iter().map(birth).collect(),
            queues.into_iter().map(held_by).collect(),
        ))
    }

    /// Lists these queues, at a server that `catches_up` if asked for.
    fn lists(&mut self, queues: &[usize], catches_up: bool) -> Result<Event> {
        let sync = catches_up.then(|| sync(&self.parts[0].path));
        let lists = queues.iter().map(|at| Request::list(&self.parts[*at].path));
        let requests: Vec<_> = sync.into_iter().chain(lists).collect();
        let about = self.all_paths();
        let mut answers = match self.caller.call_all(&requests, &about, &self.limit) {
            Ok(answers) => answers,
            Err(error) => return error.or(&about, Event::Cancel),
        };
        let lists = answers.split_off(usize::from(catches_up)).into_iter();
        Ok(Event::Queues(lists.map(held_by).collect()))
    }

    /// Looks whether a queue is taken.
    fn look(&mut self, at: usize) -> Result<Event> {
        self.looks_at(at);
        let (queue, listing) = (queue_of(&self.parts[at]), self.multi.listing());
        let looked = driver::look(self.session, &queue, self.request, self.snapshot, listing)?;
        Ok(match looked {
            ControlFlow::Continue(()) => Event::Free,
            ControlFlow::Break(_) => Event::Cancel,
        })
    }

    /// Notes which of the locks is in the way.
    fn looks_at(&self, at: usize) {
        *self.session.taken.lock() = Some((self.parts[at].path.clone(), None));
    }

    /// Waits in a queue in which the caller's node stands, as the others do in theirs.
    fn queue(&mut self, at: usize, mine: &[OwnNode]) -> Result<Event> {
        self.looks_at(at);
        let queue = queue_of(&self.parts[at]);
        let start = (mine[at].clone(), self.snapshot, self.stamp);
        let mut elsewhere = self.nodes(mine);
        elsewhere.remove(at);
        let known = (self.multi.listing(), elsewhere);
        let ended = driver::stand(self.session, &queue, self.request, start, known)?;
        Ok(match ended {
            ControlFlow::Break(Some(Reached { lease, .. })) => {
                // The last proof is good for the next queue too.
                self.stamp = lease.stamp().unwrap_or(self.stamp);
                Event::First
            }
            ControlFlow::Break(None) => Event::Cancel,
            ControlFlow::Continue(()) => Event::NewSession,
        })
    }

    fn prove(&mut self, names: &[String]) -> Result<Event> {
        Ok(match self.session.prove(&self.full(names), &self.limit)? {
            Proven::By(stamp) => {
                self.stamp = stamp;
                Event::Proved
            }
            Proven::Gone(at) => Event::Gone(at),
            Proven::LimitReached => Event::Cancel,
        })
    }

    fn finish(mut self, outcome: Outcome) -> Result<ControlFlow<Option<Taken>>> {
        match outcome {
            Outcome::Held(mine) => Ok(ControlFlow::Break(Some(self.held(&mine)))),
            Outcome::Gone => Ok(ControlFlow::Break(None)),
            Outcome::Restart => Ok(ControlFlow::Continue(())),
            Outcome::Evicted(at, name) => Err(Error::Evicted {
                node: format!("{}/{name}", self.parts[at].path),
            }),
        }
    }

    /// Makes one guard of all nodes.
    fn held(&mut self, mine: &[OwnNode]) -> Taken {
        let owner = |mine: &OwnNode| mine.origin.owner;
        let session = mine.first().map_or(self.snapshot.session, owner);
        let (path, bounds) = (self.all_paths(), self.session.status.bounds(session));
        let lease = Lease::new(&path, self.nodes(mine), session, bounds, self.stamp);
        let token = |mine: &OwnNode| FencingToken::new(mine.origin.czxid);
        let tokens: Vec<_> = mine.iter().map(token).collect();
        let token = tokens.iter().max().copied();
        let token = token.unwrap_or_else(|| FencingToken::new(0));
        let mut all = RawGuard::new(self.session, lease, token);
        all.seen = self.request.seen.clone();
        (all, tokens)
    }

    fn nodes(&self, mine: &[OwnNode]) -> Vec<String> {
        let names: Vec<_> = mine.iter().map(|mine| mine.name.clone()).collect();
        self.full(&names)
    }

    fn full(&self, names: &[String]) -> Vec<String> {
        let nodes = self.parts.iter().zip(names);
        let full = |(part, name): (&Part, &String)| format!("{}/{name}", part.path);
        nodes.map(full).collect()
    }

    /// Joins the paths, for messages.
    fn all_paths(&self) -> String {
        let paths: Vec<_> = self.parts.iter().map(|part| part.path.as_str()).collect();
        paths.join(", ")
    }
}

/// Returns the names in a queue, if a server has listed it. A missing queue is empty.
fn held_by(answer: Result<Reply, ErrorCode>) -> Option<Names> {
    match answer {
        Ok(Reply::Children { names, .. }) => Some(names),
        Err(ErrorCode::NO_NODE) => Some(Names::default()),
        _ => None,
    }
}

fn queue_of(part: &Part) -> Queue<'_> {
    Queue::of(&part.path, part.role)
}

impl Drop for MultiDriver<'_, '_> {
    fn drop(&mut self) {
        // This changes nothing if the attempt has finished.
        self.multi.handle(Event::Cancel);
        for (at, orphan) in self.multi.orphans() {
            let session = self.snapshot.session;
            self.session
                .cleaner
                .add(&self.parts[at].path, session, vec![orphan]);
        }
    }
}
