//! The threads of one client queue here first, so that the server sees one of them.
//!
//! A line is first come, first served. A thread that stands at its head would wait for
//! itself if it came again, and is told so instead. Where the client allows it, the turn
//! comes with the lock itself, so many times in a row; then the lock goes to the server,
//! and other processes have their chance.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::thread::{self, ThreadId};

use crossbeam_channel::{Receiver, Sender, unbounded};
use parking_lot::Mutex;

use crate::local::process::Process;
use crate::lock::raw_guard::RawGuard;
use crate::time::limit::Limit;
use crate::transport::status::Status;

/// The lines of one client, one for each path that somebody wants.
#[derive(Clone, Default)]
pub(crate) struct Turnstile {
    lines: Arc<Mutex<HashMap<Arc<str>, Line>>>,
    /// In a forked child a thread that does not exist there may hold the lock.
    process: Process,
}

struct Line {
    /// Whose turn it is; nobody's in particular if the guard may change threads.
    owner: Option<ThreadId>,
    waiting: VecDeque<Waiter>,
    /// The lock, on its way to the next in line.
    estate: Option<RawGuard>,
    /// How many times in a row it went that way.
    streak: u32,
}

struct Waiter {
    thread: ThreadId,
    to: Sender<Word>,
    /// Whether the lock may come along with the turn.
    inherits: bool,
}

/// What somebody in line is told.
enum Word {
    /// It is your turn; perhaps you have the lock already.
    Turn(Option<Box<RawGuard>>),
    /// Something happened to the connection.
    Look,
}

/// Somebody's turn; dropping it lets the next one in.
pub(crate) struct Turn {
    lines: Turnstile,
    path: Arc<str>,
}

/// What came of asking for a turn.
pub(crate) enum Entry {
    /// It is our turn; the lock may have come along.
    Turn(Turn, Option<Box<RawGuard>>),
    /// The caller gave up, or would have had to wait.
    Taken,
    /// The calling thread has the turn.
    OwnTurn,
    /// The client is closed.
    Closed,
}

impl Turnstile {
    /// Stands in line until it is our turn, the limit is reached, or the client is closed.
    pub(crate) fn enter(
        &self,
        path: &Arc<str>,
        inherits: bool,
        limit: &Limit,
        status: &Status,
    ) -> Entry {
        if self.process.is_another() {
            return Entry::Closed;
        }
        let thread = thread::current().id();
        let (to, words) = unbounded();
        {
            let mut lines = self.lines.lock();
            let Some(line) = lines.get_mut(path) else {
                return Entry::Turn(self.open(&mut lines, path), None);
            };
            if line.owner == Some(thread) {
                return Entry::OwnTurn;
            }
            let to = to.clone();
            line.waiting.push_back(Waiter {
                thread,
                to,
                inherits,
            });
        }
        let _awake = status.on_change(move || {
            let _ = to.send(Word::Look);
        });
        self.wait(path, &words, limit, status)
    }

    fn wait(
        &self,
        path: &Arc<str>,
        words: &Receiver<Word>,
        limit: &Limit,
        status: &Status,
    ) -> Entry {
        let entry = loop {
            // At first, too: there are no changes after the end.
            if status.snapshot().is_over() {
                break Entry::Closed;
            }
            match limit.recv(words) {
                Ok(Word::Turn(raw)) => return Entry::Turn(self.turn(path), raw),
                // The place in the line outlives disconnects and expiries.
                Ok(Word::Look) => {}
                Err(_) => break Entry::Taken,
            }
        };
        self.give_up(path, words);
        entry
    }

    /// Takes the turn if nobody has it.
    pub(crate) fn try_enter(&self, path: &Arc<str>) -> Entry {
        if self.process.is_another() {
            return Entry::Closed;
        }
        let mut lines = self.lines.lock();
        match lines.get(path) {
            None => Entry::Turn(self.open(&mut lines, path), None),
            Some(line) if line.owner == Some(thread::current().id()) => Entry::OwnTurn,
            Some(_) => Entry::Taken,
        }
    }

    /// Leaves a lock to the next in line, who gets it with the turn.
    ///
    /// `cede` is asked for it only if there is somebody who takes it, and no more than
    /// `most` have had it in a row. Returns whether it was left.
    pub(crate) fn hand_off(
        &self,
        path: &str,
        most: u32,
        cede: impl FnOnce() -> Option<RawGuard>,
    ) -> bool {
        let mut lines = self.lines.lock();
        let Some(line) = lines.get_mut(path) else {
            return false;
        };
        let heir = line.waiting.front().is_some_and(|next| next.inherits);
        if !heir || line.streak >= most {
            return false;
        }
        line.estate = cede();
        line.estate.is_some()
    }

    fn open(&self, lines: &mut HashMap<Arc<str>, Line>, path: &Arc<str>) -> Turn {
        let line = Line {
            owner: Some(thread::current().id()),
            waiting: VecDeque::new(),
            estate: None,
            streak: 0,
        };
        lines.insert(path.clone(), line);
        self.turn(path)
    }

    fn turn(&self, path: &Arc<str>) -> Turn {
        Turn {
            lines: self.clone(),
            path: path.clone(),
        }
    }

    /// Leaves the line; a turn that came meanwhile goes on to the next.
    fn give_up(&self, path: &Arc<str>, words: &Receiver<Word>) {
        let mut lines = self.lines.lock();
        let called = words.try_iter().find_map(|word| match word {
            Word::Turn(raw) => Some(raw),
            Word::Look => None,
        });
        if let Some(raw) = called {
            drop(lines);
            let turn = self.turn(path);
            // It goes on, or back to the server, while we still have the turn.
            drop(raw);
            drop(turn);
            return;
        }
        if let Some(line) = lines.get_mut(path) {
            let me = thread::current().id();
            line.waiting.retain(|waiter| waiter.thread != me);
        }
    }
}

impl Line {
    /// The lock, if who is next cannot take it.
    fn orphan(&mut self) -> Option<RawGuard> {
        let heir = self.waiting.front().is_some_and(|next| next.inherits);
        if heir { None } else { self.estate.take() }
    }

    /// Calls the next in line; `false` if there is nobody.
    fn call(&mut self) -> bool {
        let Some(next) = self.waiting.pop_front() else {
            return false;
        };
        self.owner = Some(next.thread);
        let estate = self.estate.take().map(Box::new);
        self.streak = match estate {
            Some(_) => self.streak.saturating_add(1),
            None => 0,
        };
        // The receiver leaves the line under the lock before it goes away.
        let _ = next.to.send(Word::Turn(estate));
        true
    }
}

impl Turn {
    /// Lets other threads than this one use the turn.
    pub(crate) fn detach(&self) {
        if let Some(line) = self.lines.lines.lock().get_mut(&self.path) {
            line.owner = None;
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.lines.process.is_another() {
            return;
        }
        let mut lines = self.lines.lines.lock();
        if let Some(orphan) = lines.get_mut(&self.path).and_then(Line::orphan) {
            // The heir has left. To give the lock up takes other locks than this one.
            drop(lines);
            orphan.abandon();
            lines = self.lines.lines.lock();
        }
        let called = lines.get_mut(&self.path).is_some_and(Line::call);
        if !called {
            lines.remove(&self.path);
        }
    }
}

impl fmt::Debug for Turnstile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self
            .lines
            .lock()
            .values()
            .map(|line| line.waiting.len())
            .sum::<usize>();
        f.debug_struct("Turnstile")
            .field("waiting", &waiting)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}
