//! Rows that are to go: deleted in the background, until it is certain.
//!
//! A deletion that got no answer is repeated until it gets one, or until the lease has
//! ended and the row stands in nobody's way.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::{Condvar, Mutex};

use crate::mysql::connection::{Link, Trouble};
use crate::mysql::local::Turn;
use crate::mysql::statement::{self, Key};
use crate::time::clock::Moment;

/// The pause before a deletion that failed is repeated, at first and at most.
const PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// One row that is to go.
#[derive(Debug)]
pub(super) struct Release {
    name: Arc<str>,
    owner: String,
    /// When the row is worth nothing any more.
    over: Moment,
    /// A statement of ours may be on its way and come after the deletion.
    doubt: bool,
    /// An earlier deletion got no answer.
    tried: bool,
    pause: Duration,
    /// Passed on when the row is gone, or cannot be deleted soon.
    turn: Option<Turn>,
    answer: Option<Sender<bool>>,
    pending: Option<Pending>,
}

/// What there is to do after a try.
#[derive(Debug)]
pub(super) enum Next {
    Done,
    /// Again, after the pause.
    Again(Release, Duration),
}

impl Release {
    pub(super) fn new(
        name: Arc<str>,
        owner: String,
        over: Moment,
        doubt: bool,
        turn: Option<Turn>,
        backlog: Arc<Backlog>,
    ) -> Self {
        Self {
            name,
            owner,
            over,
            doubt,
            tried: false,
            pause: PAUSE,
            turn,
            answer: None,
            pending: Some(Pending::new(backlog)),
        }
    }

    /// Returns the channel that will say whether the row was ours until now.
    pub(super) fn answer(&mut self) -> Receiver<bool> {
        let (to, answer) = bounded(1);
        self.answer = Some(to);
        answer
    }

    /// Deletes the row.
    pub(super) fn run(mut self, link: &mut Link) -> Next {
        let key = Key {
            name: &self.name,
            owner: &self.owner,
        };
        let done = link.run(|conn| statement::delete(conn, key));
        self.turn = None;
        match done {
            Ok(deleted) => self.deleted(deleted),
            Err(trouble) => self.failed(&trouble),
        }
    }

    fn deleted(mut self, deleted: bool) -> Next {
        if let Some(answer) = self.answer.take() {
            // Before its end nobody else can have taken it: an earlier try did it.
            let ours = deleted || self.tried && Moment::now() < self.over;
            let _ = answer.send(ours);
        }
        self.pending = None;
        if !self.doubt || deleted || Moment::now() >= self.over {
            return Next::Done;
        }
        let pause = LONGEST_PAUSE;
        Next::Again(self, pause)
    }

    fn failed(mut self, trouble: &Trouble) -> Next {
        if Moment::now() >= self.over {
            return Next::Done;
        }
        log::debug!("cannot delete the row of {} yet: {trouble}", self.name);
        self.tried = true;
        let pause = self.pause;
        self.pause = (2 * pause).min(LONGEST_PAUSE);
        Next::Again(self, pause)
    }
}

/// How many rows are still to go.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    rows: Mutex<usize>,
    fewer: Condvar,
}

impl Backlog {
    /// Waits until all are gone, or for `limit`.
    pub(super) fn wait(&self, limit: Duration) {
        let deadline = Instant::now() + limit;
        let mut rows = self.rows.lock();
        while *rows > 0 && !self.fewer.wait_until(&mut rows, deadline).timed_out() {}
    }
}

/// Counts one row of a backlog.
#[derive(Debug)]
struct Pending(Arc<Backlog>);

impl Pending {
    fn new(backlog: Arc<Backlog>) -> Self {
        *backlog.rows.lock() += 1;
        Self(backlog)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        *self.0.rows.lock() -= 1;
        self.0.fewer.notify_all();
    }
}
