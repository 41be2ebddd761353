//! The connection to ZooKeeper, as the session sees it.
//!
//! ```text
//!   send(calls) ──► Transport ──► the answer of each Call, the event of each Watch
//!                    │     │
//!               native     zookeeper_crate
//!                    │     │
//!                    └──┬──┘
//!                       ▼
//!                    Status ──► Snapshot, Changes, SessionEvent
//! ```
//!
//! `native` is our own client; `zookeeper_crate` wraps a handle of that crate. A transport
//! carries requests and reports what became of each. It reports to the
//! [`Status`](status::Status) when the connection is made, breaks or ends. It repeats no
//! request and decides nothing about locks.

pub(crate) mod handover;
#[cfg(test)]
pub(crate) mod mute;
pub(crate) mod native;
pub(crate) mod session_state;
pub(crate) mod status;
#[cfg(feature = "zookeeper")]
pub(crate) mod zookeeper_crate;

use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::handover::SessionKey;
use self::native::who_reads::{Errand, LeaderFollowers, park};
use crate::system::channel::{Receiver, Sender, unbounded};
use crate::system::clock;
use crate::system::sync::Mutex;
use crate::system::thread::{self, Thread};
use crate::time::limit::{Limit, LimitReached, Waits};
pub(crate) use zklock_core::acquisition::CallId;
pub(crate) use zklock_core::answer::{Answered, Failure, TooLong};
use zklock_jute::{EventKind, Request};

/// A connection that is made again when it breaks.
pub(crate) trait Transport: Send + Sync {
    /// Sends the calls in this order, in one write where possible.
    ///
    /// Does not wait for the network. Every call is answered exactly once, from any thread,
    /// possibly before this returns.
    fn send(&self, calls: Vec<Call>);

    /// Removes the watch `id` on `path`, at the server too where possible.
    fn unwatch(&self, path: &str, id: WatchId);

    /// Returns how many watches this client keeps.
    #[cfg(all(test, not(zklock_sim)))]
    fn watches(&self) -> usize {
        0
    }

    /// Returns whether the server carries out transactions, as far as is known.
    fn transacts(&self) -> bool;

    /// Blocks the calling thread until `awake` holds or the deadline passes; may return earlier.
    /// The thread is unparked once `awake` holds, and may do the transport's work meanwhile.
    fn rest(&self, awake: &dyn Fn() -> bool, until: Option<Instant>) {
        // A call that cannot be sent is answered by its own thread, which unparks nobody.
        if !awake() {
            park(until);
        }
    }

    /// Returns who reads for the threads that wait; `None` if none of these ever does.
    fn reading(&self) -> Option<&LeaderFollowers> {
        None
    }

    /// Returns the session's id and password, if there is a session and the transport knows them.
    fn key(&self) -> Option<SessionKey> {
        None
    }

    /// Returns the prefix of every path, which users do not see.
    fn chroot(&self) -> &str {
        ""
    }

    /// Sets whether this session is kept for another process when the transport closes, instead of ended.
    fn keep_session(&self, _kept: bool) {}

    /// Goes on with another server, because this one shows a node that its leader lacks. The session stays.
    fn move_on(&self, _node: &str) {}

    /// Ends the session; waits at most `limit`. Returns whether a server has confirmed the end, or
    /// there is no session.
    ///
    /// Every open call and every later one is answered with [`Failure::Closed`].
    fn close(&self, limit: Duration) -> bool;

    /// Like `close`, but does not wait: the transport's threads do the rest.
    fn leave(&self) {
        let _ = self.close(Duration::ZERO);
    }
}

/// While this lives, the calling thread reads for the transport again and again, and does nothing
/// slow in between.
pub(crate) struct Reading<'a>(&'a dyn Transport);

impl<'a> Reading<'a> {
    pub(crate) fn of(transport: &'a dyn Transport) -> Self {
        transport.reading().inspect(|reading| reading.returns());
        Self(transport)
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.reading().inspect(|reading| reading.returned());
    }
}

impl dyn Transport + '_ {
    /// Takes the next letter; rests until there is one. Only the thread that created the mailbox may
    /// call this.
    pub(crate) fn receive<T>(&self, from: &Mailbox<T>, limit: &Limit) -> Result<T, LimitReached> {
        let letters = from.letters();
        if limit.is_cancellable() {
            return self.while_attended(|| limit.recv(letters));
        }
        loop {
            if let Some(letter) = from.try_recv() {
                return Ok(letter);
            }
            if limit.deadline().is_some_and(|until| until <= clock::now()) {
                return Err(LimitReached);
            }
            // A sender unparks this thread after it has put the letter in.
            self.rest(&|| !letters.is_empty(), limit.deadline());
        }
    }

    /// Waits for an answer or a watch without `rest`, so that another thread must read.
    pub(crate) fn while_attended<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.reading().inspect(|reading| reading.attend());
        let waited = wait();
        self.reading().inspect(|reading| reading.attended());
        waited
    }

    /// Runs an errand within a moment if that takes no wake-up of its own, or at once.
    pub(crate) fn soon(&self, errand: Errand) {
        match self.reading() {
            Some(reading) => reading.soon(errand),
            None => errand(),
        }
    }
}

/// One request, and what to do with the answer.
pub(crate) struct Call {
    pub(crate) request: Request,
    /// Registered if the request sets a watch and succeeds.
    pub(crate) watch: Option<Watch>,
    pub(crate) answer: Answer,
}

/// A closure that runs on the thread that reads for the transport, and may only forward the answer.
pub(crate) type Answer = Box<dyn FnOnce(Answered) + Send>;

/// The number of a watch in its session.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct WatchId(pub(crate) u64);

/// Where the event of a one-shot watch goes.
#[derive(Clone)]
pub(crate) struct Watch {
    pub(crate) id: WatchId,
    pub(crate) to: Slot<Fired>,
}

impl Watch {
    pub(crate) fn new(id: WatchId, to: impl Into<Slot<Fired>>) -> Self {
        Self { id, to: to.into() }
    }
}

/// The event of a watch.
#[derive(Clone, Debug)]
pub(crate) struct Fired {
    pub(crate) id: WatchId,
    pub(crate) kind: EventKind,
}

/// The receiving end of a channel for the answers that one thread waits for, by the `receive` of its transport.
///
/// Its reader blocks at once. crossbeam's own wait spins for about ten microseconds first, which pays off
/// if another thread answers, but keeps a processor busy if a server does.
#[derive(Debug)]
pub(crate) struct Mailbox<T> {
    slot: Slot<T>,
    letters: Receiver<T>,
}

impl<T> Mailbox<T> {
    /// Creates a mailbox for the calling thread.
    pub(crate) fn new() -> Self {
        let (to, letters) = unbounded();
        let reader = Some(thread::current());
        Self {
            slot: Slot { to, reader },
            letters,
        }
    }

    pub(crate) fn slot(&self) -> Slot<T> {
        self.slot.clone()
    }

    /// Takes the next letter if there is one.
    pub(crate) fn try_recv(&self) -> Option<T> {
        self.letters.try_recv().ok()
    }

    /// Returns the channel, for a `select!`.
    pub(crate) fn letters(&self) -> &Receiver<T> {
        &self.letters
    }
}

/// The sending end of a mailbox or a channel.
#[derive(Debug)]
pub(crate) struct Slot<T> {
    to: Sender<T>,
    /// The thread to unpark; absent if the reader blocks on the channel.
    reader: Option<Thread>,
}

impl<T> Slot<T> {
    /// Puts a letter in; does nothing if there is no reader left, or if a bounded channel is full.
    pub(crate) fn put(&self, letter: T) {
        if self.to.try_send(letter).is_err() {
            return;
        }
        // The reader may be the calling thread, while it reads for others.
        let me = || thread::current().id();
        if let Some(reader) = self.reader.as_ref().filter(|reader| reader.id() != me()) {
            reader.unpark();
        }
    }
}

impl<T> Clone for Slot<T> {
    fn clone(&self) -> Self {
        Self {
            to: self.to.clone(),
            reader: self.reader.clone(),
        }
    }
}

impl<T> From<Sender<T>> for Slot<T> {
    fn from(to: Sender<T>) -> Self {
        Self { to, reader: None }
    }
}

/// Creates calls of these requests. Once all of them are answered, `done` runs with the answers in
/// the order of the requests.
///
/// It runs on the thread that reads for the transport, and may only forward the answers.
pub(crate) fn gather(
    requests: Vec<(Request, Option<Watch>)>,
    done: impl FnOnce(Vec<Answered>) + Send + 'static,
) -> Vec<Call> {
    if requests.len() == 1 {
        // Most requests are sent alone: a box is enough.
        let answer: Answer = Box::new(move |answered| done(vec![answered]));
        return requests
            .into_iter()
            .zip([answer])
            .map(|((request, watch), answer)| Call {
                request,
                watch,
                answer,
            })
            .collect();
    }
    let gathered = Arc::new(Mutex::new(Gathered {
        missing: requests.len(),
        answers: requests.iter().map(|_| Err(Failure::Lost)).collect(),
        done: Some(done),
    }));
    let call = |(at, (request, watch))| {
        let gathered = gathered.clone();
        Call {
            request,
            watch,
            answer: Box::new(move |answered| gathered.lock().put(at, answered)),
        }
    };
    requests.into_iter().enumerate().map(call).collect()
}

struct Gathered<D> {
    missing: usize,
    answers: Vec<Answered>,
    done: Option<D>,
}

impl<D: FnOnce(Vec<Answered>)> Gathered<D> {
    fn put(&mut self, at: usize, answered: Answered) {
        if let Some(place) = self.answers.get_mut(at) {
            *place = answered;
        }
        self.missing = self.missing.saturating_sub(1);
        if self.missing == 0 {
            if let Some(done) = self.done.take() {
                done(mem::take(&mut self.answers));
            }
        }
    }
}

#[cfg(all(test, zklock_sim))]
mod orders;

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::mute::Mute;
    use super::*;
    use crate::support::aside;
    use crate::time::limit::{Limit, LimitReached};

    /// Waits for the next letter.
    pub(super) fn recv<T>(mailbox: &Mailbox<T>, limit: &Limit) -> Result<T, LimitReached> {
        let transport: &dyn Transport = &Mute::default();
        transport.receive(mailbox, limit)
    }

    #[test]
    fn a_thread_that_has_put_a_letter_in_its_own_mailbox_does_not_rest() {
        let rested = aside(|| {
            let mailbox = Mailbox::new();
            mailbox.slot().put(7);
            Mute::default().rest(&|| !mailbox.letters().is_empty(), None);
            mailbox.try_recv()
        });
        let letter = rested.recv_timeout(Duration::from_secs(10));
        assert_eq!(letter, Ok(Some(7)), "it rests for ever");
    }

    #[test]
    fn letters_come_in_order_and_a_limit_ends_the_wait_for_more() {
        let mailbox = Mailbox::new();
        let slot = mailbox.slot();
        let forever = Limit::new(None, None);
        thread::scope(|scope| {
            scope.spawn(move || (0..1000).for_each(|letter| slot.put(letter)));
            for expected in 0..1000 {
                assert_eq!(recv(&mailbox, &forever), Ok(expected));
            }
        });
        let short = Limit::after(Duration::from_millis(1));
        assert_eq!(recv(&mailbox, &short), Err(LimitReached));
        mailbox.slot().put(7);
        assert_eq!(recv(&mailbox, &short), Ok(7), "what is there is taken");
    }
}
