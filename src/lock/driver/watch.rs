//! What is watched by who waits, and what is sent when it goes.
//!
//! What is to be sent is made ready beforehand, so that whatever thread hears of the event
//! sends it, and the waiting thread is woken once, with the answers. Two watches may see the
//! queue move, on the nearest node and on the one beyond it; the first one that does sends.
//! A grant rests on a proof of the session, and on a listing, that are both younger than a
//! sixth of the session timeout.

use std::sync::Arc;

use super::watched::{Prefetch, Watched};
use super::{Driver, Step};
use crate::error::Result;
use crate::jute::{ErrorCode, EventKind, Reply, Request};
use crate::recipe::attempt::Event;
use crate::recipe::queue::Blocked;
use crate::session::proof::{self, Proof};
use crate::time::limit::LimitReached;
use crate::transport::{Answered, CallId};
use crate::transport::{Failure, Fired, Prefetched, Then, Watch, WatchId};

impl Driver<'_, '_> {
    pub(super) fn watch(&mut self, blocked: &Blocked) -> Result<Step> {
        self.caller.forget();
        let path = self.full(&blocked.nearest);
        let mut watch = self.watch_instead(&path);
        self.prefetch(false);
        watch.then = Some(self.then(&watch));
        let call_id = self.caller.post([(read(path), Some(watch))]);
        self.watching(blocked, call_id)
    }

    /// Watches our own node, too, and the one beyond the nearest, if there is one.
    pub(super) fn watch_around(&mut self, blocked: &Blocked, mine: &str) -> Result<Step> {
        self.caller.forget();
        let calls = self.looks_around(blocked, mine);
        let call_id = self.caller.post(calls);
        let step = self.watching(blocked, call_id.next())?;
        // Whatever else there is to report, a new session first of all, must not be lost
        // over the other answers, which may have failed with the same connection.
        if !matches!(step, Step::Report(Event::Watching)) {
            return Ok(step);
        }
        let answered = self.answer(call_id);
        if matches!(answered, Ok(Ok(_))) {
            self.watched.own_is_set = true;
        }
        match answered {
            Err(LimitReached) => Ok(Step::Report(Event::Cancel)),
            Ok(Ok(_)) if blocked.beyond.is_some() => self.watching_beyond(call_id.next().next()),
            Ok(Ok(_)) => Ok(step),
            Ok(Err(Failure::Refused(ErrorCode::NO_NODE))) => Ok(Step::Report(Event::Evicted)),
            Ok(answered) => self.trouble(answered),
        }
    }

    /// A look at our own node, one at the nearest, and one at that beyond it.
    fn looks_around(&mut self, blocked: &Blocked, mine: &str) -> Vec<(Request, Option<Watch>)> {
        let nearest = self.full(&blocked.nearest);
        let mut watch = self.watch_instead(&nearest);
        self.prefetch(blocked.last);
        watch.then = Some(self.then(&watch));
        // One that was set before stands until the node goes; of one whose answer did not
        // come nobody knows.
        if !self.watched.own_is_set {
            self.unwatch_own(&self.full(mine));
        }
        let own = self.watched.own.is_none().then(|| self.new_watch());
        if let Some(own) = &own {
            self.watched.own = Some(own.id);
        }
        // This asks for no permission, unlike reading.
        let look = Request::Exists {
            path: self.full(mine),
            watch: own.is_some(),
        };
        let mut calls = vec![(look, own), (read(nearest), Some(watch))];
        if let Some(beyond) = &blocked.beyond {
            let path = self.full(beyond);
            let mut watch = self.new_watch();
            watch.then = Some(self.then(&watch));
            self.watched.beyond = Some((path.clone(), watch.id));
            calls.push((read(path), Some(watch)));
        }
        calls
    }

    /// What the read of the nearest node, which leaves a watch on it, has brought.
    fn watching(&mut self, blocked: &Blocked, call_id: CallId) -> Result<Step> {
        match self.answer(call_id) {
            Err(LimitReached) => Ok(Step::Report(Event::Cancel)),
            Ok(Ok(Reply::Data { data, stat })) => {
                self.seen = (data.into(), stat);
                Ok(Step::Report(Event::Watching))
            }
            // Who may not read a node is told nothing of it, not even that it goes.
            Ok(Err(Failure::Refused(ErrorCode::NO_AUTH))) => self.watch_directory(blocked),
            Ok(answered) => {
                self.watched.nearest = None;
                self.not_watching(answered)
            }
        }
    }

    fn watching_beyond(&mut self, call_id: CallId) -> Result<Step> {
        let refusal = match self.answer(call_id) {
            Err(LimitReached) => return Ok(Step::Report(Event::Cancel)),
            Ok(Ok(_)) => return Ok(Step::Report(Event::Watching)),
            Ok(Err(Failure::Refused(code))) => code,
            Ok(answered) => return self.trouble(answered),
        };
        self.watched.beyond = None;
        Ok(Step::Report(match refusal {
            ErrorCode::NO_NODE => {
                self.take_in(None);
                Event::BeyondDeleted
            }
            // Then the queue is looked at when the nearest goes.
            _ => Event::Watching,
        }))
    }

    /// Waits for any change of the queue.
    fn watch_directory(&mut self, blocked: &Blocked) -> Result<Step> {
        match self.list_watching() {
            Err(LimitReached) => Ok(Step::Report(Event::Cancel)),
            Ok(Ok(Reply::Children { names, .. })) if names.contains(&blocked.nearest) => {
                self.seen = Default::default();
                Ok(Step::Report(Event::Watching))
            }
            Ok(Ok(_)) => Ok(Step::Report(Event::NoNode)),
            Ok(answered) => self.not_watching(answered),
        }
    }

    pub(super) fn not_watching(&mut self, answered: Answered) -> Result<Step> {
        self.unwatch();
        match answered {
            Err(Failure::Refused(ErrorCode::NO_NODE)) => Ok(Step::Report(Event::NoNode)),
            answered => self.trouble(answered),
        }
    }

    /// Lists the queue, leaving a watch on its directory.
    pub(super) fn list_watching(&mut self) -> std::result::Result<Answered, LimitReached> {
        let path = self.queue.dir.to_owned();
        let watch = self.watch_instead(&path);
        let read = Request::GetChildren {
            path,
            watch: true,
            stat: false,
        };
        let call_id = self.caller.post([(read, Some(watch))]);
        self.caller.wait(call_id, &self.request.limit)
    }

    /// Takes a watch on `path` in the place of those there were.
    fn watch_instead(&mut self, path: &str) -> Watch {
        self.unwatch();
        self.watched.prefetch = Arc::default();
        let watch = self.new_watch();
        self.watched.nearest = Some((path.to_owned(), watch.id));
        watch
    }

    pub(super) fn new_watch(&self) -> Watch {
        Watch::new(self.session.next_watch(), self.fired.slot())
    }

    /// Drops the watches but for that on our own node, which goes with the node.
    pub(super) fn unwatch(&mut self) {
        let Watched {
            nearest, beyond, ..
        } = &mut self.watched;
        for (path, id) in nearest.take().into_iter().chain(beyond.take()) {
            self.session.transport.unwatch(&path, id);
        }
    }

    /// Drops the watch on our own node, which is not there.
    pub(super) fn unwatch_own(&mut self, node: &str) {
        self.watched.own_is_set = false;
        if let Some(id) = self.watched.own.take() {
            self.session.transport.unwatch(node, id);
        }
    }

    /// Makes ready what is to be sent when the queue moves: a listing, and a proof of our
    /// session if that is due by then; if the queue was `listed`, both only if they are due.
    fn prefetch(&mut self, listed: bool) {
        let node = self.attempt.node().map(|name| self.full(name));
        let proof = proof::requests(self.session.transport.capabilities(), node.as_slice());
        let call_ids = self.caller.reserve(1 + proof.len());
        self.watched.relisting = (!listed).then_some(call_ids.first);
        *self.watched.prefetch.lock() = Some(Prefetch {
            listing: Request::list(self.queue.dir),
            listed,
            proof,
            proven: self.proven,
            status: self.session.status.clone(),
            call_ids,
        });
    }

    /// Makes ready what is to be sent when the last one ahead goes, for which the queue was
    /// listed.
    pub(super) fn prefetch_again(&mut self) {
        let last = self.attempt.blocked().is_some_and(|blocked| blocked.last);
        if last && self.watched.prefetch.lock().is_none() {
            self.prefetch(true);
        }
    }

    fn then(&self, watch: &Watch) -> Then {
        let (prefetch, id, to) = (self.watched.prefetch.clone(), watch.id, watch.to.clone());
        let kind = EventKind::Deleted;
        Box::new(move || {
            let tell = move |asked| to.put(Fired { id, kind, asked });
            let prefetch = prefetch.lock().take();
            match prefetch {
                Some(prefetch) => prefetch.calls(tell),
                None => {
                    tell(None);
                    Vec::new()
                }
            }
        })
    }

    /// What an event of a watch says to the attempt; `ordered` if it came in its turn.
    pub(super) fn heard(&mut self, fired: Fired, ordered: bool) -> Step {
        let is = |watch: &mut (String, WatchId)| watch.1 == fired.id;
        // A server that closes our session tells of our own node, too, before we hear of
        // that: the next listing tells the one from the other.
        if self.watched.own.take_if(|id| *id == fired.id).is_some() {
            self.watched.own_is_set = false;
            return Step::Report(Event::Woken);
        }
        let event = if self.watched.nearest.take_if(is).is_some() {
            match fired.asked {
                None if self.is_proven() => Event::Deleted,
                // The queue is looked at, whatever was known of it.
                _ => Event::Woken,
            }
        } else if self.watched.beyond.take_if(is).is_some() {
            Event::BeyondDeleted
        } else {
            // Of a watch that was given up, or a change of the connection.
            return Step::Again;
        };
        if fired.kind != EventKind::Deleted || !ordered {
            return Step::Report(Event::Woken);
        }
        self.take_in(fired.asked);
        Step::Report(event)
    }

    /// Takes in what was asked for when the queue moved; perhaps the other watch had asked
    /// before.
    fn take_in(&mut self, asked: Option<Prefetched>) {
        let Some(asked) = asked else {
            let sent = self.watched.prefetch.lock().take().is_none();
            self.listing = self.watched.relisting.take().filter(|_| sent);
            return;
        };
        self.watched.relisting = None;
        self.listing = Some(asked.listing);
        if asked.proof == 0 {
            return;
        }
        let proof = asked.listing.next();
        let proof = self
            .caller
            .wait_for_all(proof, asked.proof, &self.request.limit);
        // Whatever else came of it is found out by the next proof.
        let capabilities = self.session.transport.capabilities();
        if proof.is_ok_and(|proof| proof::judge(capabilities, &proof) == Proof::Confirmed) {
            self.proven = Some(asked.stamp);
        }
    }
}

/// Reads a node, leaving a watch on it if it is there.
fn read(path: String) -> Request {
    Request::GetData { path, watch: true }
}
