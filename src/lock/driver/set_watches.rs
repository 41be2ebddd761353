//! What a waiting thread watches, and what is sent when a watched node goes.
//!
//! The requests are prepared beforehand: the thread that hears of the event sends them, and the
//! waiting thread is woken once, with the answers. Two watches may see the queue move, on the
//! nearest node and on the one beyond it; the first one to fire sends. A grant rests on a proof
//! of the session and on a listing that are both younger than a sixth of the session timeout.

use std::sync::Arc;

use super::watched::{Listing, Watched};
use super::{Driver, Step};
use crate::error::Result;
use crate::time::limit::LimitReached;
use crate::transport::{Answered, CallId, Failure, Fired, Prefetch, Prefetched, Watch, WatchId};
use zklock_core::attempt::Event;
use zklock_core::proof::{self, Proof};
use zklock_core::queue::Blocked;
use zklock_jute::{ErrorCode, EventKind, Reply, Request};

impl Driver<'_, '_> {
    pub(super) fn watch(&mut self, blocked: &Blocked) -> Result<Step> {
        self.caller.forget();
        let path = self.full(&blocked.nearest);
        let mut watch = self.watch_instead(&path);
        self.prefetch(false);
        watch.prefetch = Some(self.watched.prefetch.clone());
        let call_id = self.caller.post([(read(path), Some(watch))]);
        self.watching(blocked, call_id)
    }

    /// Watches our own node too, and the one beyond the nearest, if there is one.
    pub(super) fn watch_around(&mut self, blocked: &Blocked, mine: &str) -> Result<Step> {
        let looked = self.looked.take().filter(|looked| looked.0 == *blocked);
        let is_new = looked.is_none();
        let call_id = match looked {
            Some((_, call_id)) => call_id,
            None => self.look_around(blocked, mine),
        };
        let step = self.watching(blocked, call_id.next())?;
        // Any other report, above all a new session, must not be lost over the other answers,
        // which may have failed with the same connection.
        if !matches!(step, Step::Report(Event::Watching)) {
            return Ok(step);
        }
        let answered = match is_new {
            true => self.answer(call_id),
            // `inspect` has read the answer to the first request.
            false => Ok(Ok(Reply::Nothing)),
        };
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

    /// Asks for our own node, the nearest one and the one beyond it, in this order.
    pub(super) fn look_around(&mut self, blocked: &Blocked, mine: &str) -> CallId {
        self.caller.forget();
        let nearest = self.full(&blocked.nearest);
        let mut watch = self.watch_instead(&nearest);
        self.prefetch(blocked.last);
        watch.prefetch = Some(self.watched.prefetch.clone());
        // A watch that was set before stands until the node goes. If its answer did not come,
        // it is unknown whether it was set.
        if !self.watched.own_is_set {
            self.unwatch_own(&self.full(mine));
        }
        let own = self.watched.own.is_none().then(|| self.new_watch());
        if let Some(own) = &own {
            self.watched.own = Some(own.id);
        }
        // Unlike a read, this needs no permission.
        let look = Request::Exists {
            path: self.full(mine),
            watch: own.is_some(),
        };
        let mut calls = vec![(look, own), (read(nearest), Some(watch))];
        if let Some(beyond) = &blocked.beyond {
            let path = self.full(beyond);
            let mut watch = self.new_watch();
            watch.prefetch = Some(self.watched.prefetch.clone());
            self.watched.beyond = Some((path.clone(), watch.id));
            calls.push((read(path), Some(watch)));
        }
        self.caller.post(calls)
    }

    /// What the read of the nearest node, which leaves a watch on it, has brought.
    fn watching(&mut self, blocked: &Blocked, call_id: CallId) -> Result<Step> {
        match self.answer(call_id) {
            Err(LimitReached) => Ok(Step::Report(Event::Cancel)),
            Ok(Ok(Reply::Data { data, stat })) => {
                self.seen = (data.into(), stat);
                Ok(Step::Report(Event::Watching))
            }
            // A client that may not read a node is told nothing of it, not even that it goes.
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
            // The queue is listed when the nearest goes.
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

    /// Makes a watch on `path`, in place of the previous ones.
    fn watch_instead(&mut self, path: &str) -> Watch {
        self.unwatch();
        self.watched.prefetch = Arc::default();
        self.watched.relisting = None;
        let watch = self.new_watch();
        self.watched.nearest = Some((path.to_owned(), watch.id));
        watch
    }

    pub(super) fn new_watch(&self) -> Watch {
        Watch::new(self.session.next_watch(), self.fired.slot())
    }

    /// Drops the watches except the one on our own node, which goes with the node.
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

    /// Has a listing prefetched when the queue moves, and a proof of our session if that is
    /// due by then; if the queue was `listed`, both only if they are due.
    fn prefetch(&mut self, listed: bool) {
        let node = self.attempt.node().map(|name| self.full(name));
        let proof = proof::requests(self.session.transport.capabilities(), node.as_slice());
        self.prefetches += 1;
        let number = self.prefetches;
        self.watched.relisting = (!listed).then_some(number);
        *self.watched.prefetch.lock() = Some(Prefetch {
            number,
            listing: Request::list(self.queue.dir),
            listed,
            proof,
            proven: self.proof.stamp,
        });
    }

    /// As [`prefetch`](Self::prefetch), for when the last node ahead goes; the queue was listed
    /// for this.
    pub(super) fn prefetch_again(&mut self) {
        let last = self.attempt.blocked().is_some_and(|blocked| blocked.last);
        if last && self.watched.prefetch.lock().is_none() {
            self.prefetch(true);
        }
    }

    /// What an event of a watch says to the attempt; `ordered` if events come in order.
    pub(super) fn heard(&mut self, fired: Fired, ordered: bool) -> Step {
        let is = |watch: &mut (String, WatchId)| watch.1 == fired.id;
        // A server that closes our session sends the event of our own node before we hear of
        // the close: the next listing tells whether it was that.
        if self.watched.own.take_if(|id| *id == fired.id).is_some() {
            self.watched.own_is_set = false;
            return Step::Report(Event::Woken);
        }
        let event = if self.watched.nearest.take_if(is).is_some() {
            match fired.prefetched {
                None if self.is_proven() => Event::Deleted,
                // The queue is listed, whatever was known of it.
                _ => Event::Woken,
            }
        } else if self.watched.beyond.take_if(is).is_some() {
            Event::BeyondDeleted
        } else {
            // From a watch that was given up, or a change of the connection.
            return Step::Again;
        };
        if fired.kind != EventKind::Deleted || !ordered {
            return Step::Report(Event::Woken);
        }
        self.take_in(fired.prefetched);
        Step::Report(event)
    }

    /// Takes in what was prefetched when the queue moved; if nothing, the other watch's event may
    /// have it, or bring it yet.
    fn take_in(&mut self, prefetched: Option<Prefetched>) {
        let relisting = self.watched.relisting.take();
        match prefetched {
            Some(prefetched) => {
                let listing = self.proven_by(prefetched);
                self.listing = Some(Listing::Read(listing));
            }
            None => {
                let sent = self.watched.prefetch.lock().take().is_none();
                self.listing = relisting.filter(|_| sent).map(Listing::Prefetching);
            }
        }
    }

    /// Waits for the prefetch of this number; what else is heard meanwhile is kept.
    pub(super) fn prefetched(
        &mut self,
        number: u64,
    ) -> std::result::Result<Answered, LimitReached> {
        loop {
            let fired = self
                .fired
                .recv(&*self.session.transport, &self.request.limit)?;
            match fired.prefetched {
                Some(prefetched) if prefetched.number == number => {
                    return Ok(self.proven_by(prefetched));
                }
                _ => self.heard_early.push_back(fired),
            }
        }
    }

    /// Takes in the proof of a prefetch; the listing is returned.
    fn proven_by(&mut self, prefetched: Prefetched) -> Answered {
        // If it is no proof, the next one finds out why.
        let capabilities = self.session.transport.capabilities();
        let Prefetched { stamp, proof, .. } = &prefetched;
        if !proof.is_empty() && proof::judge(capabilities, proof) == Proof::Confirmed {
            self.proof.stamp = Some(*stamp);
        }
        prefetched.listing.map_err(Failure::sorted)
    }
}

/// Reads a node, leaving a watch on it if it is there.
fn read(path: String) -> Request {
    Request::GetData { path, watch: true }
}
