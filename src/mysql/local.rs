//! Threads of one client queue here first, in order of arrival.
//!
//! So one thread per client and name asks the database, and a thread that would wait for
//! itself is told at once.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::Instant;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, at, bounded, never, select};
use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::mysql::reentrant_mutex::Entry;

/// The queues of one client.
#[derive(Debug, Default)]
pub(super) struct Local(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Names that nobody has or wants are not in it.
    queues: HashMap<Arc<str>, Queue>,
    tickets: u64,
    closed: bool,
}

#[derive(Debug)]
struct Queue {
    /// The thread that has the turn, as long as it may be said to wait for itself.
    holder: Option<ThreadId>,
    /// What a reentrant mutex shares among the guards of that thread.
    entry: Entry,
    waiting: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    ticket: u64,
    thread: ThreadId,
    called: Sender<()>,
}

/// The right to ask the database for a lock; passed on when dropped.
pub(super) struct Turn {
    local: Arc<Local>,
    name: Arc<str>,
}

impl Local {
    /// Waits for the turn until the deadline.
    pub(super) fn enter(
        self: &Arc<Self>,
        name: &Arc<str>,
        deadline: Option<Instant>,
    ) -> Result<Option<Turn>> {
        let (ticket, called) = {
            let mut inner = self.0.lock();
            if inner.closed {
                return Err(Error::Closed);
            }
            inner.tickets += 1;
            let ticket = inner.tickets;
            let me = thread::current().id();
            let Some(queue) = inner.queues.get_mut(name) else {
                inner.queues.insert(name.clone(), Queue::new(me));
                return Ok(Some(self.turn(name)));
            };
            if queue.holder == Some(me) {
                return Err(Error::WouldDeadlock {
                    path: name.to_string(),
                });
            }
            (ticket, queue.join(ticket, me))
        };
        self.wait(name, ticket, &called, deadline)
    }

    /// Returns what the calling thread has put down for the name, if it has the turn.
    pub(super) fn entry(&self, name: &str) -> Option<Entry> {
        let inner = self.0.lock();
        let queue = inner.queues.get(name)?;
        (queue.holder == Some(thread::current().id())).then(|| queue.entry.clone())
    }

    /// Puts down what the next call of [`entry`](Self::entry) returns.
    pub(super) fn set_entry(&self, name: &str, entry: Entry) {
        if let Some(queue) = self.0.lock().queues.get_mut(name) {
            queue.entry = entry;
        }
    }

    /// Sends everyone away who waits or will come.
    pub(super) fn close(&self) {
        let mut inner = self.0.lock();
        inner.closed = true;
        for queue in inner.queues.values_mut() {
            queue.waiting.clear();
        }
    }

    fn wait(
        self: &Arc<Self>,
        name: &Arc<str>,
        ticket: u64,
        called: &Receiver<()>,
        deadline: Option<Instant>,
    ) -> Result<Option<Turn>> {
        let timeout = deadline.map_or_else(never, at);
        let answer = select! {
            recv(called) -> call => call.map_err(|_| RecvTimeoutError::Disconnected),
            recv(timeout) -> _ => Err(RecvTimeoutError::Timeout),
        };
        match answer {
            Ok(()) => Ok(Some(self.turn(name))),
            Err(RecvTimeoutError::Disconnected) => Err(Error::Closed),
            Err(RecvTimeoutError::Timeout) => {
                self.leave(name, ticket, called);
                Ok(None)
            }
        }
    }

    /// Gives up waiting, and the turn if it came at the same time.
    fn leave(self: &Arc<Self>, name: &Arc<str>, ticket: u64, called: &Receiver<()>) {
        if let Some(queue) = self.0.lock().queues.get_mut(name) {
            queue.waiting.retain(|waiter| waiter.ticket != ticket);
        }
        if called.try_recv().is_ok() {
            drop(self.turn(name));
        }
    }

    fn turn(self: &Arc<Self>, name: &Arc<str>) -> Turn {
        Turn {
            local: self.clone(),
            name: name.clone(),
        }
    }
}

impl Queue {
    fn new(holder: ThreadId) -> Self {
        Self {
            holder: Some(holder),
            entry: Entry::default(),
            waiting: VecDeque::new(),
        }
    }

    fn join(&mut self, ticket: u64, thread: ThreadId) -> Receiver<()> {
        let (called, call) = bounded(1);
        self.waiting.push_back(Waiter {
            ticket,
            thread,
            called,
        });
        call
    }
}

impl Turn {
    /// The thread does not hold the lock any more, though the turn is not passed on yet.
    pub(super) fn disown(&self) {
        if let Some(queue) = self.local.0.lock().queues.get_mut(&self.name) {
            queue.holder = None;
            queue.entry = Entry::default();
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut inner = self.local.0.lock();
        let Some(queue) = inner.queues.get_mut(&self.name) else {
            return;
        };
        queue.entry = Entry::default();
        match queue.waiting.pop_front() {
            Some(next) => {
                queue.holder = Some(next.thread);
                // There is room for one, and it is the only one.
                let _ = next.called.send(());
            }
            None => {
                inner.queues.remove(&self.name);
            }
        }
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Turn").field(&self.name).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn name() -> Arc<str> {
        "a".into()
    }

    #[test]
    fn the_same_thread_would_deadlock_until_it_has_let_go() {
        let local = Arc::new(Local::default());
        let turn = local.enter(&name(), None).unwrap().unwrap();
        assert!(matches!(
            local.enter(&name(), None),
            Err(Error::WouldDeadlock { .. })
        ));
        turn.disown();
        assert!(
            local
                .enter(&name(), Some(Instant::now()))
                .unwrap()
                .is_none()
        );
        drop(turn);
        assert!(local.enter(&name(), None).unwrap().is_some());
        assert!(local.0.lock().queues.is_empty());
    }

    #[test]
    fn the_turn_goes_round_in_order_of_arrival_and_past_those_who_left() {
        let local = Arc::new(Local::default());
        let first = local.enter(&name(), None).unwrap().unwrap();
        let (to, order) = bounded(8);
        // How many wait once each has come; the second one does not stay.
        let threads: Vec<_> = [1, 1, 2, 3]
            .into_iter()
            .enumerate()
            .map(|(i, waiting)| {
                let (local, to) = (local.clone(), to.clone());
                let limit = (i == 1).then(Instant::now);
                let thread = thread::spawn(move || {
                    if let Some(_turn) = local.enter(&name(), limit).unwrap() {
                        to.send(i).unwrap();
                    }
                });
                while waiting_in(&first.local) != waiting || i == 1 && !thread.is_finished() {
                    thread::sleep(Duration::from_millis(1));
                }
                thread
            })
            .collect();
        drop(first);
        for thread in threads {
            thread.join().unwrap();
        }
        drop(to);
        assert_eq!(order.iter().collect::<Vec<_>>(), [0, 2, 3]);
    }

    fn waiting_in(local: &Local) -> usize {
        let inner = local.0.lock();
        inner.queues.values().map(|queue| queue.waiting.len()).sum()
    }
}
