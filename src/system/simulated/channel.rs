//! Channels at which the scheduler decides which thread is first, with crossbeam's errors.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{fmt, iter};

pub use crossbeam_channel::{RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError};

use super::clock;
use super::scheduler::{here, new_key, try_here};
use super::state::Key;

struct Shared<T> {
    key: Key,
    inner: Mutex<Inner<T>>,
}

struct Inner<T> {
    messages: VecDeque<T>,
    room: Option<usize>,
    senders: usize,
    receivers: usize,
}

/// The sending side.
pub struct Sender<T>(Arc<Shared<T>>);

/// The receiving side.
pub struct Receiver<T>(Arc<Shared<T>>);

/// Creates a channel with room for `room` messages.
pub fn bounded<T>(room: usize) -> (Sender<T>, Receiver<T>) {
    channel(Some(room))
}

/// Creates a channel with room for any number of messages.
pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    channel(None)
}

fn channel<T>(room: Option<usize>) -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Shared {
        key: new_key(),
        inner: Mutex::new(Inner {
            messages: VecDeque::new(),
            room,
            senders: 1,
            receivers: 1,
        }),
    });
    (Sender(Arc::clone(&shared)), Receiver(shared))
}

impl<T> Shared<T> {
    fn inner(&self) -> MutexGuard<'_, Inner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        if let Some(here) = try_here() {
            here.state().wake(self.key);
        }
    }

    fn step(&self) {
        if let Some(here) = try_here() {
            here.step();
        }
    }
}

impl<T> Sender<T> {
    /// Sends a message if there is room.
    pub fn try_send(&self, message: T) -> Result<(), TrySendError<T>> {
        self.0.step();
        {
            let mut inner = self.0.inner();
            if inner.receivers == 0 {
                return Err(TrySendError::Disconnected(message));
            }
            if inner.room.is_some_and(|room| room <= inner.messages.len()) {
                return Err(TrySendError::Full(message));
            }
            inner.messages.push_back(message);
        }
        self.0.wake();
        self.0.step();
        Ok(())
    }

    /// How many messages nobody has received yet.
    pub fn len(&self) -> usize {
        self.0.inner().messages.len()
    }

    /// Sends a message, and waits for room.
    pub fn send(&self, message: T) -> Result<(), SendError<T>> {
        let mut message = Some(message);
        loop {
            match self.try_send(message.take().expect("not sent yet")) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Disconnected(message)) => return Err(SendError(message)),
                Err(TrySendError::Full(back)) => {
                    message = Some(back);
                    here().block(vec![self.0.key], None, "for room in a channel");
                }
            }
        }
    }
}

impl<T> Receiver<T> {
    /// Takes a message if there is one.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        self.0.step();
        self.take()
    }

    fn take(&self) -> Result<T, TryRecvError> {
        let taken = {
            let mut inner = self.0.inner();
            match inner.messages.pop_front() {
                Some(message) => message,
                None if inner.senders == 0 => return Err(TryRecvError::Disconnected),
                None => return Err(TryRecvError::Empty),
            }
        };
        self.0.wake();
        Ok(taken)
    }

    /// Waits for a message.
    pub fn recv(&self) -> Result<T, RecvError> {
        self.take_until(None).map_err(|_| RecvError)
    }

    /// Waits for a message, for at most `time`.
    pub fn recv_timeout(&self, time: Duration) -> Result<T, RecvTimeoutError> {
        self.take_until(Some(clock::after(&here(), time)))
    }

    /// Waits for a message, until `time` at most.
    pub fn recv_deadline(&self, time: Instant) -> Result<T, RecvTimeoutError> {
        self.take_until(Some(clock::at(&here(), time)))
    }

    fn take_until(&self, until: Option<u64>) -> Result<T, RecvTimeoutError> {
        let here = here();
        here.step();
        let taken = here.wait(&[self.0.key], until, "for a message", || {
            match self.take() {
                Err(TryRecvError::Empty) => None,
                received => Some(received),
            }
        });
        match taken {
            Some(Ok(message)) => Ok(message),
            Some(Err(_)) => Err(RecvTimeoutError::Disconnected),
            None => Err(RecvTimeoutError::Timeout),
        }
    }

    /// Returns whether there is no message.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of messages.
    pub fn len(&self) -> usize {
        self.0.inner().messages.len()
    }

    /// Returns an iterator over the messages that have arrived.
    pub fn try_iter(&self) -> impl Iterator<Item = T> {
        iter::from_fn(|| self.try_recv().ok())
    }

    /// Returns an iterator over the messages, until there is no sender.
    pub fn iter(&self) -> impl Iterator<Item = T> {
        iter::from_fn(|| self.recv().ok())
    }
}

/// A channel that a thread can wait for.
pub(crate) trait Waitable {
    fn key(&self) -> u64;

    fn is_ready(&self) -> bool;
}

impl<T> Waitable for Receiver<T> {
    fn key(&self) -> u64 {
        self.0.key
    }

    fn is_ready(&self) -> bool {
        let inner = self.0.inner();
        !inner.messages.is_empty() || inner.senders == 0
    }
}

/// See the real side.
pub(crate) fn wait_any(channels: &[&dyn Waitable], until: Option<Instant>) -> Option<usize> {
    let here = here();
    here.step();
    let keys: Vec<_> = channels.iter().map(|channel| channel.key()).collect();
    let until = until.map(|until| clock::at(&here, until));
    here.wait(&keys, until, "for one of several messages", || {
        let ready = channels
            .iter()
            .enumerate()
            .filter(|(_, one)| one.is_ready());
        let ready: Vec<_> = ready.map(|(place, _)| place).collect();
        ready.get(fastrand::usize(..ready.len().max(1))).copied()
    })
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.inner().senders += 1;
        Self(Arc::clone(&self.0))
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        self.0.inner().receivers += 1;
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.inner().senders -= 1;
        self.0.wake();
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let left = {
            let mut inner = self.0.inner();
            inner.receivers -= 1;
            match inner.receivers {
                0 => std::mem::take(&mut inner.messages),
                _ => VecDeque::new(),
            }
        };
        drop(left);
        self.0.wake();
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sender { .. }")
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Receiver { .. }")
    }
}
