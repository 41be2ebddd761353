//! How a lock is taken: the caller waits here, the workers ask the database.
//!
//! An attempt that got no answer is repeated under the same owner: if the first was
//! carried out after all, the unique key makes the second find our own row, and if it is
//! still on its way it fails. So nothing has to be known about it.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ::mysql::{Conn, Result as SqlResult};
use crossbeam_channel::{Receiver, RecvError, at, bounded, never, select};
use log::warn;
use serde_json::json;

use crate::error::{Error, Result};
use crate::guard::GuardState;
use crate::mysql::connection::{Kind, Link, Trouble};
use crate::mysql::held::Held;
use crate::mysql::lease::Lease;
use crate::mysql::place::{Fate, Place};
use crate::mysql::renewal::Command;
use crate::mysql::shared::Shared;
use crate::mysql::statement::{self, Key, Row};
use crate::time::clock::Moment;

/// How long to wait for the lock.
#[derive(Clone, Copy, Debug)]
pub(super) enum Until {
    /// Not at all, but for the answer of the database.
    Now,
    At(Instant),
    Never,
}

/// What one attempt came to.
#[derive(Debug)]
enum Outcome {
    Ours(Arc<Lease>),
    Taken { left: Option<Duration> },
    Failed(Trouble),
}

impl Until {
    /// A limit that the clock cannot reach is none.
    pub(super) fn after(limit: Duration) -> Self {
        Instant::now()
            .checked_add(limit)
            .map_or(Self::Never, Self::At)
    }

    fn for_turn(self) -> Option<Instant> {
        match self {
            Self::Now => Some(Instant::now()),
            Self::At(deadline) => Some(deadline),
            Self::Never => None,
        }
    }

    fn for_answer(self, limit: Duration) -> Option<Instant> {
        match self {
            Self::Now => Some(Instant::now() + limit),
            other => other.for_turn(),
        }
    }
}

/// Takes the lock, or returns `None` if somebody else has it until then.
pub(super) fn acquire(shared: &Arc<Shared>, name: &Arc<str>, until: Until) -> Result<Option<Held>> {
    let Some(turn) = shared.local().enter(name, until.for_turn())? else {
        return Ok(None);
    };
    let place = Arc::new(Place::new(shared.clone(), name.clone()));
    let Some(lease) = Acquisition::new(&place, until).run()? else {
        return Ok(None);
    };
    place.set_turn(turn);
    Ok(Some(Held { lease, place }))
}

struct Acquisition<'a> {
    place: &'a Arc<Place>,
    until: Until,
    deadline: Option<Instant>,
    pause: Duration,
    /// The database said that somebody has it.
    taken: bool,
    /// Ask whose it is before trying to take it.
    look_first: bool,
    /// The last attempts failed, and that was logged.
    failing: bool,
}

impl<'a> Acquisition<'a> {
    fn new(place: &'a Arc<Place>, until: Until) -> Self {
        let shared = &place.shared;
        Self {
            place,
            until,
            deadline: until.for_answer(shared.answer_limit()),
            pause: shared.poll().0,
            taken: false,
            look_first: matches!(until, Until::Now),
            failing: false,
        }
    }

    fn run(mut self) -> Result<Option<Arc<Lease>>> {
        loop {
            let Some(outcome) = self.attempt()? else {
                return self.give_up("no answer from the database in time");
            };
            match outcome {
                Outcome::Ours(lease) => {
                    if lease.state(Moment::now()) != GuardState::Lost {
                        self.place.shared.tell(Command::Watch(lease.clone()));
                        return Ok(Some(lease));
                    }
                    // The answer was too slow to be of use.
                    self.place.set_fate(Fate::Doubt(lease.confirmed()));
                }
                Outcome::Taken { left } => {
                    self.taken = true;
                    self.failing = false;
                    self.look_first = true;
                    if matches!(self.until, Until::Now) || !self.sleep(left)? {
                        return Ok(None);
                    }
                }
                Outcome::Failed(trouble) => {
                    if !trouble.kind.passes() {
                        return Err(error("take the lock", trouble));
                    }
                    if !std::mem::replace(&mut self.failing, true) {
                        warn!(
                            "cannot ask for {}, trying again: {trouble}",
                            self.place.name
                        );
                    }
                    if !self.sleep(None)? {
                        return self.give_up(&trouble.said);
                    }
                }
            }
        }
    }

    /// Lets a worker try; returns `None` if it is not through by the deadline.
    fn attempt(&self) -> Result<Option<Outcome>> {
        let (to, outcome) = bounded(1);
        let (place, deadline, look_first) = (self.place.clone(), self.deadline, self.look_first);
        self.place.shared.workers().submit(move |link| {
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return;
            }
            let outcome = attempt(link, &place, look_first);
            // Before the answer, so that the caller's is the last one. If there is no
            // caller any more, ours is, and what is in the table is cleaned up.
            drop(place);
            let _ = to.send(outcome);
        });
        self.wait(&outcome)
    }

    /// Waits for the pause that is due, or for as long as the lease lasts; returns `false`
    /// at the deadline.
    fn sleep(&mut self, left: Option<Duration>) -> Result<bool> {
        // Around the pause, so that those who began together do not go on together.
        let jitter = self.pause.mul_f64(0.75 + 0.5 * fastrand::f64());
        let end = left.map_or(Duration::MAX, |left| left + Duration::from_millis(1));
        let wake = Instant::now() + jitter.min(end.max(self.place.shared.poll().0));
        self.pause = self.pause.mul_f64(1.5).min(self.place.shared.poll().1);
        let wake = self.deadline.map_or(wake, |deadline| deadline.min(wake));
        select! {
            recv(self.place.shared.closed()) -> _ => return Err(Error::Closed),
            recv(at(wake)) -> _ => {}
        }
        Ok(self.deadline.is_none_or(|deadline| wake < deadline))
    }

    fn wait(&self, outcome: &Receiver<Outcome>) -> Result<Option<Outcome>> {
        let timeout = self.deadline.map_or_else(never, at);
        select! {
            recv(outcome) -> outcome => Ok(outcome.map_err(|RecvError| ()).ok()),
            recv(timeout) -> _ => Ok(None),
            recv(self.place.shared.closed()) -> _ => Err(Error::Closed),
        }
    }

    /// `None` says that somebody has the lock; it must be known.
    fn give_up(&self, said: &str) -> Result<Option<Arc<Lease>>> {
        if self.taken {
            return Ok(None);
        }
        Err(Error::Database {
            what: "take the lock",
            message: said.to_owned(),
        })
    }
}

/// Runs on a worker. What it leaves in the table is noted in the place.
fn attempt(link: &mut Link, place: &Place, look_first: bool) -> Outcome {
    let doubt = matches!(place.fate(), Fate::Doubt(_));
    let (mut begun, mut sent) = (None, Moment::now());
    let done = link.run(|conn| {
        sent = Moment::now();
        begun = Some(sent);
        take(conn, place, look_first, doubt, &mut sent)
    });
    match done {
        Ok(Ok(token)) => {
            let shared = &place.shared;
            let (name, owner) = (place.name.clone(), place.owner.clone());
            let lease = Arc::new(Lease::new(name, owner, token, shared.lease(), sent));
            place.set_fate(Fate::Ours(lease.clone()));
            Outcome::Ours(lease)
        }
        Ok(Err(left)) => {
            // The row is another's, so that no earlier statement of ours has taken it; but
            // one that is still on its way might yet.
            Outcome::Taken { left }
        }
        // Some other transaction has made the row, and has not committed yet.
        Err(trouble) if trouble.kind == Kind::Locked => Outcome::Taken { left: None },
        Err(trouble) => {
            if let (Some(sent), true) = (begun, trouble.kind.may_be_done()) {
                place.set_fate(Fate::Doubt(sent));
            }
            Outcome::Failed(trouble)
        }
    }
}

/// Returns our token, or how long the lease of whoever has it lasts.
///
/// `sent` becomes the moment before the statement that took it was sent.
fn take(
    conn: &mut Conn,
    place: &Place,
    look_first: bool,
    doubt: bool,
    sent: &mut Moment,
) -> SqlResult<std::result::Result<i64, Option<Duration>>> {
    let key = Key {
        name: &place.name,
        owner: &place.owner,
    };
    let lease = place.shared.lease();
    if doubt {
        let (ours, done) = statement::renew(conn, &[key], lease);
        done?;
        if ours == [true]
            && let Some(token) = statement::token(conn, key)?
        {
            return Ok(Ok(token));
        }
    }
    if !look_first {
        *sent = Moment::now();
        if let Some(token) = statement::insert(conn, key, &card(), lease)? {
            return Ok(Ok(token));
        }
    }
    let row = statement::look(conn, key.name)?;
    *sent = Moment::now();
    let token = match row {
        Row::Taken { left } => return Ok(Err(left)),
        Row::Free => statement::insert(conn, key, &card(), lease)?,
        Row::Expired => statement::take_over(conn, key, &card(), lease)?,
    };
    // Somebody was faster.
    Ok(token.ok_or(None))
}

/// Says who we are to those who look into the table.
fn card() -> String {
    /// The column has room for it however much of it has to be escaped.
    const LONGEST: usize = 50;
    let short = |text: String| text.chars().take(LONGEST).collect::<String>();
    let program = std::env::current_exe().ok();
    let program = program.as_ref().and_then(|path| path.file_name());
    json!({
        "host": host().map(short),
        "pid": std::process::id(),
        "program": program.map(|name| short(name.to_string_lossy().into_owned())),
        "thread": thread::current().name().map(|name| short(name.to_owned())),
    })
    .to_string()
}

#[cfg(unix)]
fn host() -> Option<String> {
    let host = rustix::system::uname();
    Some(host.nodename().to_string_lossy().into_owned())
}

#[cfg(not(unix))]
fn host() -> Option<String> {
    std::env::var("COMPUTERNAME").ok()
}

/// Says in our words what the database said.
pub(super) fn error(what: &'static str, trouble: Trouble) -> Error {
    let hint = match trouble.kind {
        Kind::Denied => {
            warn!("{trouble}");
            return Error::AuthFailed;
        }
        Kind::ReadOnly => "; this server takes no writes: connect to the primary",
        Kind::NoTable => "; create the tables with Client::create_table or mysql::CREATE_TABLE",
        _ => "",
    };
    Error::Database {
        what,
        message: format!("{}{hint}", trouble.said),
    }
}
