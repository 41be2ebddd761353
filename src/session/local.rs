//! The threads of one client queue here first, so that the server sees one of them.
//!
//! A line is first come, first served. A thread that stands at its head would wait for
//! itself if it came again, and is told so instead.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::thread::{self, ThreadId};

use crossbeam_channel::{Receiver, Sender, bounded, select};
use parking_lot::Mutex;

use super::hub::Hub;
use super::limit::Limit;

/// The lines of one client, one for each path that somebody wants.
#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<HashMap<String, Line>>>);

struct Line {
    /// Whose turn it is; nobody's in particular if the guard may change threads.
    owner: Option<ThreadId>,
    waiting: VecDeque<(ThreadId, Sender<()>)>,
}

/// Somebody's turn; dropping it lets the next one in.
pub(crate) struct Turn {
    lines: Lines,
    path: String,
}

/// What came of asking for a turn.
pub(crate) enum Entry {
    /// It is our turn.
    Turn(Turn),
    /// The caller gave up, or would have had to wait.
    Taken,
    /// The calling thread has the turn.
    OwnTurn,
    /// The client is closed.
    Closed,
}

impl Lines {
    /// Stands in line until it is our turn, the limit is reached, or the client is closed.
    pub(crate) fn enter(&self, path: &str, limit: &Limit, hub: &Hub) -> Entry {
        let called = {
            let mut lines = self.0.lock();
            let Some(line) = lines.get_mut(path) else {
                return Entry::Turn(self.open(&mut lines, path));
            };
            if line.owner == Some(thread::current().id()) {
                return Entry::OwnTurn;
            }
            let (next, called) = bounded(1);
            line.waiting.push_back((thread::current().id(), next));
            called
        };
        self.wait(path, &called, limit, hub)
    }

    fn wait(&self, path: &str, called: &Receiver<()>, limit: &Limit, hub: &Hub) -> Entry {
        let changes = hub.changes();
        let entry = loop {
            // At first, too: there are no changes after the end.
            if hub.link().is_over() {
                break Entry::Closed;
            }
            select! {
                recv(called) -> _ => break Entry::Turn(self.turn(path)),
                recv(limit.timer()) -> _ => break Entry::Taken,
                recv(limit.cancel) -> _ => {
                    limit.cancelled();
                    break Entry::Taken;
                }
                // The place in the line outlives disconnects and expiries.
                recv(changes) -> _ => {}
            }
        };
        if !matches!(entry, Entry::Turn(_)) {
            self.give_up(path, called);
        }
        entry
    }

    /// Takes the turn if nobody has it.
    pub(crate) fn try_enter(&self, path: &str) -> Entry {
        let mut lines = self.0.lock();
        match lines.get(path) {
            None => Entry::Turn(self.open(&mut lines, path)),
            Some(line) if line.owner == Some(thread::current().id()) => Entry::OwnTurn,
            Some(_) => Entry::Taken,
        }
    }

    fn open(&self, lines: &mut HashMap<String, Line>, path: &str) -> Turn {
        let line = Line {
            owner: Some(thread::current().id()),
            waiting: VecDeque::new(),
        };
        lines.insert(path.to_owned(), line);
        self.turn(path)
    }

    fn turn(&self, path: &str) -> Turn {
        Turn {
            lines: self.clone(),
            path: path.to_owned(),
        }
    }

    /// Leaves the line; a turn that came meanwhile goes on to the next.
    fn give_up(&self, path: &str, called: &Receiver<()>) {
        let mut lines = self.0.lock();
        if called.try_recv().is_ok() {
            drop(lines);
            drop(self.turn(path));
            return;
        }
        if let Some(line) = lines.get_mut(path) {
            let me = thread::current().id();
            line.waiting.retain(|(thread, _)| *thread != me);
        }
    }
}

impl Turn {
    /// Lets other threads than this one use the turn.
    pub(crate) fn detach(&self) {
        if let Some(line) = self.lines.0.lock().get_mut(&self.path) {
            line.owner = None;
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut lines = self.lines.0.lock();
        let Some(line) = lines.get_mut(&self.path) else {
            return;
        };
        match line.waiting.pop_front() {
            Some((thread, next)) => {
                line.owner = Some(thread);
                // The receiver leaves the line under this lock before it goes away.
                let _ = next.try_send(());
            }
            None => {
                lines.remove(&self.path);
            }
        }
    }
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines").finish_non_exhaustive()
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}
