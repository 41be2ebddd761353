//! Carries an attempt out on the caller's thread.
//!
//! The protocol decides, this file does: it sends what [`Attempt::action`] asks for,
//! waits for the answer, the limit or a change of the connection, and reports. However
//! it ends, by a panic of the caller's closure too, what the attempt leaves in the
//! directory is handed to the leftovers.

mod steps;
mod wait;
mod watch;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::watch::Watched;
use super::Session;
use super::ask::{Answered, Asker, Ticket, over, refused};
use super::fresh_id;
use super::hub::{Awake, Link, SessionState};
use super::limit::{GaveUp, Limit};
use super::mailbox::Mailbox;
use super::overdue::Overdue;
use super::queries::Lasting;
use super::transport::{Failure, Fired};
use super::vigil::Vigil;
use crate::error::{Error, Result};
use crate::proto::{Request, Stat};
use crate::protocol::attempt::{Action, Attempt, Born, Event, Mine, Outcome, Patience};
use crate::protocol::last_grant::LastGrant;
use crate::protocol::queue::{Behind, Contest};
use crate::protocol::validity::Stamp;

/// What somebody wants of a queue.
pub(crate) struct Quest<'a> {
    /// The lock, for messages.
    pub(crate) path: &'a str,
    /// The queue's directory.
    pub(crate) dir: &'a str,
    pub(crate) contest: Contest,
    pub(crate) patience: Patience,
    pub(crate) note: Option<&'a str>,
    pub(crate) on_wait: Option<Box<OnWait<'a>>>,
    pub(crate) overdue: Option<Overdue>,
    /// What becomes of the directory when it is empty.
    pub(crate) lasting: Lasting<'a>,
    /// Another lock: it is of no use to go on when that is lost.
    pub(crate) under: Option<&'a Vigil>,
    /// The last grant to whoever asks, until an attempt was made on the strength of it.
    pub(crate) last: Option<LastGrant>,
}

/// Told what is ahead, at first and then when it changes.
pub(crate) type OnWait<'a> = dyn FnMut(&Ahead) + 'a;

/// Who is ahead of a waiting thread.
pub(crate) struct Ahead {
    pub(crate) since: Duration,
    pub(crate) count: usize,
    pub(crate) nearest: String,
    /// Whether the nearest holds.
    pub(crate) holds: bool,
    pub(crate) data: Vec<u8>,
    pub(crate) stat: Stat,
}

/// The head of a queue, reached.
pub(crate) struct Reached {
    pub(crate) vigil: Arc<Vigil>,
    pub(crate) mine: Mine,
}

impl Quest<'_> {
    fn is_pointless(&self) -> bool {
        self.under.is_some_and(|under| under.check().is_err())
    }
}

impl Session {
    /// Goes through a queue; `None` if the lock is taken or the limit was reached.
    pub(crate) fn acquire(&self, quest: &mut Quest<'_>, limit: &Limit) -> Result<Option<Reached>> {
        let since = Instant::now();
        let mut asker = self.asker();
        loop {
            let Ok(link) = asker.connected(limit)? else {
                return Ok(None);
            };
            if quest.is_pointless() {
                return Ok(None);
            }
            let id = fresh_id();
            let known = self.transport.abilities().resumes.then_some(link.session);
            let attempt = Attempt::enter(quest.contest, &id, known, quest.patience);
            let attempt = attempt.after(quest.last.take());
            let drive = Drive::new(self, quest, attempt, &mut asker, link, since);
            match drive.run(limit)? {
                Progress::Reached(reached) => return Ok(Some(reached)),
                Progress::GaveUp => return Ok(None),
                Progress::Restart => {}
            }
        }
    }
}

impl Session {
    /// Waits in a queue where a node of ours stands already, since a moment and a
    /// connection that are given.
    pub(crate) fn stand(
        &self,
        quest: &mut Quest<'_>,
        (mine, link, stamp): (Mine, Link, Stamp),
        limit: &Limit,
    ) -> Result<Progress> {
        let mut asker = self.asker();
        let attempt = Attempt::queued(quest.contest, mine, quest.patience);
        let mut drive = Drive::new(self, quest, attempt, &mut asker, link, Instant::now());
        drive.proven = Some(stamp);
        drive.run(limit)
    }
}

/// One attempt on its way.
struct Drive<'a, 'q> {
    session: &'a Session,
    quest: &'a mut Quest<'q>,
    attempt: Attempt,
    asker: &'a mut Asker,
    link: Link,
    since: Instant,
    /// The last request that a quorum committed in this session.
    proven: Option<Stamp>,
    /// How many proofs were asked for when it was our turn.
    proofs: u32,
    /// The listing that was sent in the same write as the create, or when the queue moved.
    listing: Option<Ticket>,
    watched: Watched,
    /// What the nearest node told when it was read.
    seen: (Vec<u8>, Stat),
    fired: Mailbox<Fired>,
    /// Changes of the connection are told in the same place.
    listening: Option<Awake>,
    told: Option<(String, usize)>,
}

/// How an attempt ended.
pub(crate) enum Progress {
    Reached(Reached),
    GaveUp,
    Restart,
}

/// What became of a step.
enum Step {
    /// The attempt takes this in.
    Report(Event),
    /// Nothing: the same step again.
    Again,
}

impl<'a, 'q> Drive<'a, 'q> {
    fn new(
        session: &'a Session,
        quest: &'a mut Quest<'q>,
        attempt: Attempt,
        asker: &'a mut Asker,
        link: Link,
        since: Instant,
    ) -> Self {
        Self {
            session,
            quest,
            attempt,
            asker,
            link,
            since,
            proven: None,
            proofs: 0,
            listing: None,
            watched: Watched::default(),
            seen: Default::default(),
            fired: Mailbox::new(),
            listening: None,
            told: None,
        }
    }

    fn run(mut self, limit: &Limit) -> Result<Progress> {
        loop {
            let action = self.attempt.action();
            if let Action::Finish(outcome) = action {
                return self.finish(outcome, limit);
            }
            if let Step::Report(event) = self.step(action, limit)? {
                let event = self.in_session(event);
                self.attempt.handle(event);
            }
        }
    }

    /// An answer that came through another session says nothing about our node.
    fn in_session(&self, event: Event) -> Event {
        match event {
            // These tell the owner, or end the attempt.
            Event::Cancel | Event::Created(..) | Event::NewSession | Event::ReplyLost => event,
            _ if self.session.hub.link().session != self.link.session => Event::NewSession,
            event => event,
        }
    }

    fn finish(self, outcome: Outcome, limit: &Limit) -> Result<Progress> {
        match outcome {
            Outcome::Held(mine) => Ok(Progress::Reached(self.reached(mine))),
            Outcome::Gone => Ok(Progress::GaveUp),
            Outcome::Restart => Ok(Progress::Restart),
            Outcome::Evicted(name) => self.evicted(&name, limit),
            Outcome::Foreign(foreign) => Err(self.session.foreign(self.quest.dir, foreign)),
        }
    }

    /// Tells a node that somebody deleted from one that went with its session.
    ///
    /// The server tells of the node first, and ends the connection then: who gets an
    /// answer in the same session after it still has the session.
    fn evicted(mut self, name: &str, limit: &Limit) -> Result<Progress> {
        let node = self.full(name);
        self.unwatch_own(&node);
        let look = Request::Exists {
            path: node.clone(),
            watch: false,
        };
        match self.asker.insist(&look, limit)? {
            Err(GaveUp) => Ok(Progress::GaveUp),
            Ok(Err(Failure::Closed)) => Err(over(&self.session.hub.link())),
            Ok(_) if self.session.hub.link().session != self.link.session => Ok(Progress::Restart),
            Ok(_) => Err(Error::Evicted { node }),
        }
    }

    fn reached(&self, mine: Mine) -> Reached {
        if self.listening.is_some() {
            self.session.counters.waited();
        }
        let nodes = vec![self.full(&mine.name)];
        let session = self.link.session;
        let bounds = self.session.hub.bounds(session);
        let stamp = self.proven.unwrap_or(Stamp::NEVER);
        let vigil = Vigil::new(self.quest.path, nodes, session, bounds, stamp);
        Reached {
            vigil: Arc::new(vigil),
            mine,
        }
    }

    fn step(&mut self, action: Action, limit: &Limit) -> Result<Step> {
        match action {
            Action::Create(prefix) => self.create(&prefix, limit),
            Action::MakeParents => self.make_parents(limit),
            Action::Sync => self.sync(limit),
            Action::List => self.list(limit),
            Action::ListAndWatch(queued) => self.list_and_watch(queued, limit),
            Action::Inspect(name) => self.inspect(&name, limit),
            Action::Births(names) => self.births(&names, limit),
            Action::Watch(behind) => self.watch(&behind, limit),
            Action::WatchAround(behind, mine) => self.watch_around(&behind, &mine, limit),
            Action::Wait => self.wait(limit),
            Action::Prove(name) => self.prove(&name, limit),
            // `run` does not come here with it.
            Action::Finish(_) => Ok(Step::Again),
        }
    }

    /// Deals with an answer that no step expects.
    fn trouble(&mut self, answered: Answered, limit: &Limit) -> Result<Step> {
        match answered {
            Err(Failure::Refused(code)) => Err(refused(self.quest.dir, code)),
            Err(Failure::TooLong(long)) => Err(long.about(self.quest.dir)),
            Err(Failure::Closed) => Err(over(&self.session.hub.link())),
            Ok(_) | Err(Failure::Lost | Failure::NotSent) => self.reconnect(limit),
        }
    }

    /// Waits for the connection to come back after a request that failed with it.
    fn reconnect(&mut self, limit: &Limit) -> Result<Step> {
        if self.asker.is_steady(&self.link) {
            self.asker.breathe();
        }
        if self.asker.connected(limit)?.is_err() {
            return Ok(Step::Report(Event::Cancel));
        }
        Ok(self.changed()?.unwrap_or(Step::Again))
    }

    /// Looks at the connection: what the attempt has to hear of it, if anything.
    fn changed(&mut self) -> Result<Option<Step>> {
        let link = self.session.hub.link();
        if link.is_over() {
            return Err(over(&link));
        }
        if link.state != SessionState::Connected || link.connects == self.link.connects {
            return Ok(None);
        }
        let resumed = link.session == self.link.session;
        self.link = link;
        self.listing = None;
        match resumed {
            true => {
                self.unwatch();
                Ok(Some(Step::Report(Event::Woken)))
            }
            false => {
                // At the server the watches of a session go with it.
                self.unwatch();
                self.watched = Watched::default();
                Ok(Some(Step::Report(Event::NewSession)))
            }
        }
    }

    fn tell(&mut self, behind: &Behind) {
        let place = (behind.nearest.clone(), behind.ahead);
        let news = self.told.as_ref() != Some(&place);
        if let (Some(on_wait), true) = (self.quest.on_wait.as_mut(), news) {
            on_wait(&Ahead {
                since: self.since.elapsed(),
                count: behind.ahead,
                nearest: format!("{}/{}", self.quest.dir, behind.nearest),
                holds: behind.holds,
                data: self.seen.0.clone(),
                stat: self.seen.1,
            });
        }
        self.told = Some(place);
    }

    fn ask(&mut self, request: Request, limit: &Limit) -> std::result::Result<Answered, GaveUp> {
        let ticket = self.post([request]);
        self.answer(ticket, limit)
    }

    fn post(&mut self, requests: impl IntoIterator<Item = Request>) -> Ticket {
        let requests = requests.into_iter().map(|request| (request, None));
        self.asker.post(requests)
    }

    fn answer(&mut self, ticket: Ticket, limit: &Limit) -> std::result::Result<Answered, GaveUp> {
        self.asker.wait(ticket, limit)
    }

    fn acl(&self) -> Vec<crate::proto::Access> {
        self.session.settings.acl.entries().to_vec()
    }

    fn full(&self, name: &str) -> String {
        format!("{}/{name}", self.quest.dir)
    }
}

impl Drop for Drive<'_, '_> {
    fn drop(&mut self) {
        self.unwatch();
        // Of no effect if the attempt is through.
        self.attempt.handle(Event::Cancel);
        let leftovers = self.attempt.leftovers();
        if !leftovers.is_empty() {
            self.session
                .leftovers
                .add(self.quest.dir, self.link.session, leftovers);
        }
    }
}

fn born(stat: Stat) -> Born {
    Born {
        owner: stat.ephemeral_owner,
        czxid: stat.czxid,
    }
}

impl fmt::Debug for Drive<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drive")
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}
