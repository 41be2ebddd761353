//! The line in which the threads of one client wait for a path; the server sees one of them at a
//! time.
//!
//! The line is first come, first served. A thread that has the turn and came again would wait for
//! itself, so it gets an error instead. If the lock allows it, the lock itself comes with the turn,
//! up to a given number of times in a row; then it goes back to the server, so that other processes
//! get their turn.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::mem;
use std::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Weak};
use std::thread::{self, ThreadId};

use super::owning_process::Process;
use crate::system::channel::{Receiver, Sender, bounded};
use crate::system::sync::Mutex;
use crate::time::limit::Waits;

/// The lines of one client, one for each path that a thread wants.
///
/// `T` is the lock, which may come with a turn. `S` is what the thread that has the turn gets back
/// when it comes again. `W` is what a waiting thread asks of the thread ahead of it.
pub(crate) struct Turnstile<T, S, W = ()> {
    lines: Arc<Mutex<Lines<T, S, W>>>,
    /// In a forked child, a thread that does not exist there may have the mutex locked.
    process: Process,
}

struct Lines<T, S, W> {
    open: HashMap<Arc<str>, Line<T, S, W>>,
    closed: bool,
}

impl<T, S, W> UnwindSafe for Turnstile<T, S, W> {}
impl<T, S, W> RefUnwindSafe for Turnstile<T, S, W> {}

struct Line<T, S, W> {
    /// The thread that has the turn; `None` if the guard can be sent to another thread.
    owner: Option<ThreadId>,
    shared: Weak<S>,
    waiting: VecDeque<Waiter<T, W>>,
    /// The lock, on its way to the next thread in line.
    handed: Option<T>,
    /// How many times in a row the lock went from thread to thread.
    streak: u32,
    /// Whether no server has told the last thread with the turn anything about the lock.
    unanswered: bool,
}

struct Waiter<T, W> {
    thread: ThreadId,
    /// Disconnected when the client is closed.
    called: Sender<Option<T>>,
    /// Whether the lock may come with the turn.
    inherits: bool,
    wish: W,
}

/// A thread's turn; dropping it calls the next thread.
pub(crate) struct Turn<T, S, W = ()> {
    turnstile: Turnstile<T, S, W>,
    path: Arc<str>,
    stood_in_line: bool,
}

/// The outcome of asking for a turn.
pub(crate) enum Entry<T, S, W = ()> {
    /// The calling thread has the turn, and perhaps the lock.
    Turn(Turn<T, S, W>, Option<T>),
    /// The limit was reached.
    Taken,
    /// The calling thread has the turn already, or stands in line for it.
    OwnTurn,
    /// The client is closed.
    Closed,
}

impl<T, S, W> Turnstile<T, S, W> {
    /// Waits in line until the turn comes, the limit is reached or the client is closed; does not
    /// wait if no thread has the turn. Before a wait, asks whether the lock may come with the turn,
    /// and for the wish; once in line, calls `told` with the number of threads ahead.
    pub(crate) fn enter(
        &self,
        path: &Arc<str>,
        limit: &impl Waits,
        wish: impl FnOnce() -> (bool, W),
        told: impl FnOnce(usize),
    ) -> Entry<T, S, W> {
        match self.try_enter(path) {
            Entry::Taken => {}
            entry => return entry,
        }
        let (inherits, wish) = wish();
        let thread = thread::current().id();
        let (to, called) = bounded(1);
        let mut ahead = 0;
        if let Some(entry) = self.enter_at_once(path, |line| {
            line.waiting.push_back(Waiter {
                thread,
                called: to,
                inherits,
                wish,
            });
            // This thread is among those that wait, and the one with the turn is not.
            ahead = line.waiting.len();
            None
        }) {
            return entry;
        }
        self.tell(path, &called, || told(ahead));
        match limit.recv(&called) {
            Ok(handed) => Entry::Turn(self.turn(path, true), handed),
            Err(_) => self.give_up(path, &called),
        }
    }

    /// Tells that the calling thread stands in line, which it leaves if that panics.
    fn tell(&self, path: &Arc<str>, called: &Receiver<Option<T>>, told: impl FnOnce()) {
        let told = catch_unwind(AssertUnwindSafe(|| {
            log::debug!("waiting for the lock {path}, which another thread of this client has");
            told();
        }));
        if let Err(panic) = told {
            // Nobody would take the turn.
            drop(self.give_up(path, called));
            resume_unwind(panic);
        }
    }

    /// Takes the turn if no thread has it.
    pub(crate) fn try_enter(&self, path: &Arc<str>) -> Entry<T, S, W> {
        let taken = |_: &mut Line<T, S, W>| Some(Entry::Taken);
        self.enter_at_once(path, taken).unwrap_or(Entry::Taken)
    }

    /// Returns whether the calling thread has the turn, or stands in line for it.
    pub(crate) fn has_me(&self, path: &str) -> bool {
        let lines = self.lines.lock();
        let has_me = lines.open.get(path).is_some_and(Line::has_me);
        // Last, because it is a system call.
        has_me && !self.process.is_another()
    }

    /// Returns what the calling thread shares with itself, if it has the turn.
    pub(crate) fn shared(&self, path: &str) -> Option<Arc<S>> {
        if self.process.is_another() {
            return None;
        }
        let lines = self.lines.lock();
        let line = lines.open.get(path).filter(|_| !lines.closed)?;
        line.is_mine().then(|| line.shared.upgrade())?
    }

    /// Returns how many threads wait for a turn.
    pub(crate) fn waiting(&self) -> usize {
        let lines = self.lines.lock();
        lines.open.values().map(|line| line.waiting.len()).sum()
    }

    /// Closes the lines: all waiters leave, and no thread can enter.
    pub(crate) fn close(&self) {
        let mut lines = self.lines.lock();
        lines.closed = true;
        for line in lines.open.values_mut() {
            line.waiting.clear();
        }
    }

    /// Hands a lock to the next thread in line, which gets it with the turn.
    ///
    /// Calls `cede` for the lock only if the next thread takes it and it has been handed on fewer
    /// than `most` times in a row. Returns whether it was handed on.
    pub(crate) fn hand_off(&self, path: &str, most: u32, cede: impl FnOnce() -> Option<T>) -> bool {
        let mut lines = self.lines.lock();
        let Some(line) = lines.open.get_mut(path) else {
            return false;
        };
        if !line.next_inherits() || line.streak >= most {
            return false;
        }
        line.handed = cede();
        line.handed.is_some()
    }

    /// Returns what the next thread in line asks for.
    pub(crate) fn next_wish(&self, path: &str) -> Option<W>
    where
        W: Clone,
    {
        let lines = self.lines.lock();
        let next = lines.open.get(path)?.waiting.front()?;
        Some(next.wish.clone())
    }

    /// Returns the outcome if no wait is needed; otherwise that of `taken`.
    fn enter_at_once(
        &self,
        path: &Arc<str>,
        taken: impl FnOnce(&mut Line<T, S, W>) -> Option<Entry<T, S, W>>,
    ) -> Option<Entry<T, S, W>> {
        if self.process.is_another() {
            return Some(Entry::Closed);
        }
        let mut lines = self.lines.lock();
        if lines.closed {
            return Some(Entry::Closed);
        }
        let Some(line) = lines.open.get_mut(path) else {
            lines.open.insert(path.clone(), Line::new());
            return Some(Entry::Turn(self.turn(path, false), None));
        };
        if line.has_me() {
            return Some(Entry::OwnTurn);
        }
        taken(line)
    }

    /// Leaves the line; a turn that came meanwhile passes to the next thread.
    fn give_up(&self, path: &Arc<str>, called: &Receiver<Option<T>>) -> Entry<T, S, W> {
        let mut lines = self.lines.lock();
        if let Some(line) = lines.open.get_mut(path) {
            let me = thread::current().id();
            line.waiting.retain(|waiter| waiter.thread != me);
        }
        let closed = lines.closed;
        drop(lines);
        if let Ok(handed) = called.try_recv() {
            let turn = self.turn(path, true);
            // The lock passes on, or back to the server, while this thread has the turn.
            drop(handed);
            drop(turn);
        }
        match closed {
            true => Entry::Closed,
            false => Entry::Taken,
        }
    }

    fn turn(&self, path: &Arc<str>, stood_in_line: bool) -> Turn<T, S, W> {
        Turn {
            turnstile: self.clone(),
            path: path.clone(),
            stood_in_line,
        }
    }
}

impl<T, S, W> Line<T, S, W> {
    fn new() -> Self {
        Self {
            owner: Some(thread::current().id()),
            shared: Weak::new(),
            waiting: VecDeque::new(),
            handed: None,
            streak: 0,
            unanswered: false,
        }
    }

    fn is_mine(&self) -> bool {
        self.owner == Some(thread::current().id())
    }

    /// Returns whether the calling thread has the turn, or stands in line, as while it is told of its wait.
    fn has_me(&self) -> bool {
        let me = thread::current().id();
        self.is_mine() || self.waiting.iter().any(|waiter| waiter.thread == me)
    }

    fn next_inherits(&self) -> bool {
        self.waiting.front().is_some_and(|next| next.inherits)
    }

    /// Takes the lock back if the next thread in line cannot inherit it.
    fn orphan(&mut self) -> Option<T> {
        match self.next_inherits() {
            true => None,
            false => self.handed.take(),
        }
    }

    /// Calls the next thread in line; returns `false` if there is none.
    fn call(&mut self) -> bool {
        let Some(next) = self.waiting.pop_front() else {
            return false;
        };
        self.owner = Some(next.thread);
        self.shared = Weak::new();
        self.streak = match self.handed {
            Some(_) => self.streak.saturating_add(1),
            None => 0,
        };
        // The receiver exists: a waiter leaves the line before it drops it.
        let _ = next.called.send(self.handed.take());
        true
    }
}

impl<T, S, W> Turn<T, S, W> {
    /// Lets threads other than the calling one use the turn.
    pub(crate) fn detach(&self) {
        self.change(|line| line.owner = None);
    }

    /// Assigns the turn to the calling thread.
    pub(crate) fn attach(&self) {
        self.change(|line| line.owner = Some(thread::current().id()));
    }

    /// Stores what the calling thread gets if it comes again.
    pub(crate) fn share(&self, shared: &Arc<S>) {
        self.change(|line| line.shared = Arc::downgrade(shared));
    }

    /// Tells the next thread that no server has said anything about the lock.
    pub(crate) fn unanswered(&self) {
        self.change(|line| line.unanswered = true);
    }

    /// Returns whether this thread has stood in line, and a server has told the thread ahead of it
    /// about the lock: there may be no time left to ask again.
    pub(crate) fn follows_an_answer(&self) -> bool {
        // Nobody is ahead in a new line, so the lines need not be locked for it.
        self.stood_in_line && self.change(|line| mem::take(&mut line.unanswered)) == Some(false)
    }

    fn change<R>(&self, change: impl FnOnce(&mut Line<T, S, W>) -> R) -> Option<R> {
        let mut lines = self.turnstile.lines.lock();
        lines.open.get_mut(&self.path).map(change)
    }
}

impl<T, S, W> Drop for Turn<T, S, W> {
    fn drop(&mut self) {
        if self.turnstile.process.is_another() {
            return;
        }
        loop {
            let mut lines = self.turnstile.lines.lock();
            let Some(line) = lines.open.get_mut(&self.path) else {
                return;
            };
            // The heir has left: the lock goes back to the server. The release takes other mutexes,
            // so it runs with the lines' mutex unlocked.
            match line.orphan() {
                Some(handed) => {
                    drop(lines);
                    drop(handed);
                }
                None => {
                    if !line.call() {
                        lines.open.remove(&self.path);
                    }
                    return;
                }
            }
        }
    }
}

impl<T, S, W> Default for Turnstile<T, S, W> {
    fn default() -> Self {
        let lines = Lines {
            open: HashMap::new(),
            closed: false,
        };
        Self {
            lines: Arc::new(Mutex::new(lines)),
            process: Process::default(),
        }
    }
}

impl<T, S, W> Clone for Turnstile<T, S, W> {
    fn clone(&self) -> Self {
        Self {
            lines: self.lines.clone(),
            process: self.process,
        }
    }
}

impl<T, S, W> fmt::Debug for Turn<T, S, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, zklock_sim))]
mod orders;

#[cfg(test)]
mod tests;
