//! Carries an attempt out on the caller's thread.
//!
//! The protocol decides, this file does: it sends what [`Attempt::action`] asks for,
//! waits for the answer, the limit or a change of the connection, and reports. However
//! it ends, by a panic of the caller's closure too, what the attempt leaves in the
//! directory is handed to the leftovers.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, after, never, select, unbounded};
use uuid::Uuid;

use super::ask::{Answered, Asker, Ticket, over, refused};
use super::hub::{Link, SessionState};
use super::limit::{GaveUp, Limit};
use super::overdue::{Overdue, Verdict};
use super::proof::{self, Proof};
use super::queries::parent_trouble;
use super::transport::{Failure, Fired, Watch, WatchId};
use super::vigil::Vigil;
use super::{Session, list, sync};
use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::path;
use crate::proto::{CreateMode, ErrorCode, EventKind, Reply, Request, Stat};
use crate::protocol::attempt::{Action, Attempt, Born, Event, Mine, Outcome, Patience};
use crate::protocol::dialect::{Dialect, Role};
use crate::protocol::name::{LAST_SEQUENCE, NodeName};
use crate::protocol::queue::{Behind, Contest, Foreign, strangers};

/// From this number on a directory is worth a warning.
const HALF_WAY: i64 = LAST_SEQUENCE / 2;

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
    /// Whether the directory must not go when it is empty.
    pub(crate) lasting: bool,
}

/// Told what is ahead, at first and then when it changes.
pub(crate) type OnWait<'a> = dyn FnMut(&Ahead) + 'a;

/// Who is ahead of a waiting thread.
pub(crate) struct Ahead {
    pub(crate) since: Duration,
    pub(crate) count: usize,
    pub(crate) nearest: String,
    pub(crate) data: Vec<u8>,
    pub(crate) stat: Stat,
}

/// The head of a queue, reached.
pub(crate) struct Reached {
    pub(crate) vigil: Arc<Vigil>,
    pub(crate) mine: Mine,
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
            let id = Uuid::new_v4().to_string();
            let known = self.transport.abilities().resumes.then_some(link.session);
            let attempt = Attempt::enter(quest.contest, &id, known, quest.patience);
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
        (mine, link, sent): (Mine, Link, Moment),
        limit: &Limit,
    ) -> Result<Progress> {
        let mut asker = self.asker();
        let attempt = Attempt::queued(quest.contest, mine, quest.patience);
        let mut drive = Drive::new(self, quest, attempt, &mut asker, link, Instant::now());
        drive.proven = Some(sent);
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
    /// When the last request that a quorum committed in this session was sent.
    proven: Option<Moment>,
    /// The listing that was sent in the same write as the create.
    listing: Option<Ticket>,
    /// The watch on the nearest node.
    watching: Option<(String, WatchId)>,
    /// The watch on our own node.
    guarding: Option<WatchId>,
    fired: (Sender<Fired>, Receiver<Fired>),
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
            listing: None,
            watching: None,
            guarding: None,
            fired: unbounded(),
            told: None,
        }
    }

    fn run(mut self, limit: &Limit) -> Result<Progress> {
        loop {
            let action = self.attempt.action();
            if let Action::Finish(outcome) = action {
                return self.finish(outcome);
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

    fn finish(self, outcome: Outcome) -> Result<Progress> {
        match outcome {
            Outcome::Held(mine) => Ok(Progress::Reached(self.reached(mine))),
            Outcome::Gone => Ok(Progress::GaveUp),
            Outcome::Restart => Ok(Progress::Restart),
            Outcome::Evicted(name) => Err(Error::Evicted {
                node: self.full(&name),
            }),
            Outcome::Foreign(foreign) => Err(self.session.foreign(self.quest.dir, foreign)),
        }
    }

    fn reached(&self, mine: Mine) -> Reached {
        let nodes = vec![self.full(&mine.name)];
        let proven = self.proven.unwrap_or(Moment::from_nanos(0));
        let current = self.session.hub.session();
        let vigil = Vigil::new(self.quest.path, nodes, &self.link, current, proven);
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
            Action::ListAndWatch => self.list_and_watch(limit),
            Action::Inspect(name) => self.inspect(&name, limit),
            Action::Births(names) => self.births(&names, limit),
            Action::Watch(behind) => self.watch(&behind, limit),
            Action::WatchBoth(behind, mine) => self.watch_both(&behind, &mine, limit),
            Action::Wait => self.wait(limit),
            Action::Prove(name) => self.prove(&name, limit),
            // `run` does not come here with it.
            Action::Finish(_) => Ok(Step::Again),
        }
    }

    /// Creates the node and lists the directory in one write, so that a free lock costs
    /// one round trip.
    fn create(&mut self, prefix: &str, limit: &Limit) -> Result<Step> {
        let create = Request::Create {
            path: self.full(prefix),
            data: self.session.settings.card.text(self.quest.note),
            acl: self.acl(),
            mode: CreateMode::EphemeralSequential,
            stat: true,
        };
        let sent = Moment::now();
        // A permit lists with a watch, for which the node must be there already.
        let pipelined = self.quest.contest.role != Role::Permit;
        let listing = pipelined.then(|| list(self.quest.dir));
        let ticket = self.post([create].into_iter().chain(listing));
        self.listing = None;
        let answered = match self.answer(ticket, limit) {
            Ok(answered) => answered,
            Err(GaveUp) => {
                // The request is under way: what it makes must be looked for.
                self.attempt.handle(Event::ReplyLost);
                return Ok(Step::Report(Event::Cancel));
            }
        };
        match answered {
            Ok(Reply::Created { path, stat }) => {
                self.proven = Some(sent);
                self.listing = pipelined.then(|| ticket.next());
                let name = path::name(&path).to_owned();
                self.warn_half_way(&name);
                Ok(Step::Report(Event::Created(name, stat.map(born))))
            }
            Err(Failure::Lost) => {
                self.attempt.handle(Event::ReplyLost);
                self.reconnect(limit)
            }
            Err(Failure::Refused(ErrorCode::NO_NODE)) => Ok(Step::Report(Event::NoNode)),
            answered => self.trouble(answered, limit),
        }
    }

    fn make_parents(&mut self, limit: &Limit) -> Result<Step> {
        let requests = self.session.parents(self.quest.dir, self.quest.lasting);
        let count = requests.len();
        let mut ticket = self.post(requests);
        for at in 0..count {
            match self.answer(ticket, limit) {
                Err(GaveUp) => return Ok(Step::Report(Event::Cancel)),
                Ok(Ok(_)) => {}
                Ok(Err(Failure::Refused(code))) if !parent_trouble(at, count, code) => {}
                Ok(answered) => return self.trouble(answered, limit),
            }
            ticket = ticket.next();
        }
        Ok(Step::Report(Event::ParentsMade))
    }

    fn sync(&mut self, limit: &Limit) -> Result<Step> {
        let request = sync(self.quest.dir, self.session.transport.abilities().sync);
        match self.ask(request, limit) {
            Err(GaveUp) => Ok(Step::Report(Event::Cancel)),
            // A refusal comes through the quorum just as well.
            Ok(Ok(_) | Err(Failure::Refused(_))) => Ok(Step::Report(Event::Synced)),
            Ok(answered) => self.trouble(answered, limit),
        }
    }

    fn list(&mut self, limit: &Limit) -> Result<Step> {
        let answered = match self.listing.take() {
            Some(ticket) => self.answer(ticket, limit),
            None => self.ask(list(self.quest.dir), limit),
        };
        match answered {
            Err(GaveUp) => Ok(Step::Report(Event::Cancel)),
            Ok(Ok(Reply::Children { names, .. })) => {
                if log::log_enabled!(log::Level::Debug) {
                    for name in strangers(&names) {
                        log::debug!("{} is no contender of any dialect", self.full(name));
                    }
                }
                Ok(Step::Report(Event::Children(names)))
            }
            Ok(Err(Failure::Refused(ErrorCode::NO_NODE))) => Ok(Step::Report(Event::NoNode)),
            Ok(answered) => self.trouble(answered, limit),
        }
    }

    fn list_and_watch(&mut self, limit: &Limit) -> Result<Step> {
        let dir = self.quest.dir.to_owned();
        let read = Request::GetChildren {
            path: dir.clone(),
            watch: true,
            stat: false,
        };
        match self.ask_watching(read, &dir, limit) {
            Err(GaveUp) => Ok(Step::Report(Event::Cancel)),
            Ok(Ok(Reply::Children { names, .. })) => {
                let ahead = names.len().saturating_sub(self.quest.contest.permits);
                if ahead != 0 {
                    let behind = Behind {
                        nearest: String::new(),
                        ahead,
                        last: false,
                    };
                    self.tell(&behind, Vec::new(), Stat::default());
                }
                Ok(Step::Report(Event::Children(names)))
            }
            Ok(answered) => self.not_watching(answered, limit),
        }
    }

    fn inspect(&mut self, name: &str, limit: &Limit) -> Result<Step> {
        let request = Request::Exists {
            path: self.full(name),
            watch: false,
        };
        match self.ask(request, limit) {
            Err(GaveUp) => Ok(Step::Report(Event::Cancel)),
            Ok(Ok(Reply::Stat(stat))) => Ok(Step::Report(Event::Inspected(born(stat)))),
            Ok(Err(Failure::Refused(ErrorCode::NO_NODE))) => Ok(Step::Report(Event::NoNode)),
            Ok(answered) => self.trouble(answered, limit),
        }
    }

    fn births(&mut self, names: &[String], limit: &Limit) -> Result<Step> {
        let look = |name: &String| Request::Exists {
            path: self.full(name),
            watch: false,
        };
        let requests: Vec<_> = names.iter().map(look).collect();
        let mut ticket = self.post(requests);
        let mut births = HashMap::new();
        for name in names {
            match self.answer(ticket, limit) {
                Err(GaveUp) => return Ok(Step::Report(Event::Cancel)),
                Ok(Ok(Reply::Stat(stat))) => {
                    births.insert(name.clone(), stat.czxid);
                }
                Ok(Err(Failure::Refused(ErrorCode::NO_NODE))) => {}
                Ok(answered) => return self.trouble(answered, limit),
            }
            ticket = ticket.next();
        }
        Ok(Step::Report(Event::Births(births)))
    }

    fn watch(&mut self, behind: &Behind, limit: &Limit) -> Result<Step> {
        let path = self.full(&behind.nearest);
        let read = Request::GetData {
            path: path.clone(),
            watch: true,
        };
        let (data, stat) = match self.ask_watching(read, &path, limit) {
            Err(GaveUp) => return Ok(Step::Report(Event::Cancel)),
            Ok(Ok(Reply::Data { data, stat })) => (data, stat),
            // Who may not read a node is told nothing of it, not even that it goes.
            Ok(Err(Failure::Refused(ErrorCode::NO_AUTH))) => {
                return self.watch_directory(behind, limit);
            }
            Ok(answered) => {
                self.watching = None;
                return self.not_watching(answered, limit);
            }
        };
        self.tell(behind, data, stat);
        Ok(Step::Report(Event::Watching))
    }

    /// Waits for any change of the queue.
    fn watch_directory(&mut self, behind: &Behind, limit: &Limit) -> Result<Step> {
        let dir = self.quest.dir.to_owned();
        let read = Request::GetChildren {
            path: dir.clone(),
            watch: true,
            stat: false,
        };
        match self.ask_watching(read, &dir, limit) {
            Err(GaveUp) => Ok(Step::Report(Event::Cancel)),
            Ok(Ok(Reply::Children { names, .. })) if names.contains(&behind.nearest) => {
                self.tell(behind, Vec::new(), Stat::default());
                Ok(Step::Report(Event::Watching))
            }
            Ok(Ok(_)) => Ok(Step::Report(Event::NoNode)),
            Ok(answered) => self.not_watching(answered, limit),
        }
    }

    /// Watches our own node, too, for which a watch on the nearest need not be waited for.
    fn watch_both(&mut self, behind: &Behind, mine: &str, limit: &Limit) -> Result<Step> {
        let path = self.full(mine);
        let id = self.session.next_watch();
        self.guarding = Some(id);
        let watch = Watch {
            id,
            to: self.fired.0.clone(),
        };
        // This asks for no permission, unlike reading.
        let look = Request::Exists { path, watch: true };
        let ticket = self.asker.post([(look, Some(watch))]);
        let step = self.watch(behind, limit)?;
        match self.answer(ticket, limit) {
            Err(GaveUp) => Ok(Step::Report(Event::Cancel)),
            Ok(Ok(_)) => Ok(step),
            Ok(Err(Failure::Refused(ErrorCode::NO_NODE))) => Ok(Step::Report(Event::Evicted)),
            Ok(answered) => self.trouble(answered, limit),
        }
    }

    fn not_watching(&mut self, answered: Answered, limit: &Limit) -> Result<Step> {
        // An `exists` that finds nothing leaves a watch all the same.
        self.unwatch();
        match answered {
            Err(Failure::Refused(ErrorCode::NO_NODE)) => Ok(Step::Report(Event::NoNode)),
            answered => self.trouble(answered, limit),
        }
    }

    /// Sleeps until the watch fires, the connection changes or the limit is reached.
    fn wait(&mut self, limit: &Limit) -> Result<Step> {
        let changes = self.asker.changes().clone();
        if let Some(step) = self.changed()? {
            return Ok(step);
        }
        let ours = self.watching.as_ref().map(|(_, id)| *id);
        let own = self.guarding;
        let period = self.quest.overdue.as_ref().map(Overdue::period);
        select! {
            recv(period.map_or_else(never, after)) -> _ => self.hurry(limit),
            recv(self.fired.1) -> fired => match fired {
                Ok(fired) if Some(fired.id) == own => {
                    self.guarding = None;
                    Ok(Step::Report(match fired.kind {
                        EventKind::Deleted => Event::Evicted,
                        _ => Event::Woken,
                    }))
                }
                Ok(fired) if Some(fired.id) == ours => {
                    self.watching = None;
                    Ok(Step::Report(match fired.kind {
                        EventKind::Deleted => Event::Deleted,
                        _ => Event::Woken,
                    }))
                }
                _ => Ok(Step::Again),
            },
            recv(changes) -> _ => Ok(Step::Again),
            recv(limit.timer) -> _ => Ok(Step::Report(Event::Cancel)),
            recv(limit.cancel) -> _ => Ok(Step::Report(Event::Cancel)),
        }
    }

    /// Does something about a holder that has held for too long.
    fn hurry(&mut self, limit: &Limit) -> Result<Step> {
        let names = match self.ask(list(self.quest.dir), limit) {
            Err(GaveUp) => return Ok(Step::Report(Event::Cancel)),
            Ok(Ok(Reply::Children { names, .. })) => names,
            Ok(_) => return Ok(Step::Again),
        };
        let head = self.quest.contest.contenders(&names);
        let (Some(head), Some(overdue)) = (head.first(), self.quest.overdue.as_mut()) else {
            return Ok(Step::Again);
        };
        let verdict = overdue.saw(head.text, Instant::now());
        let head = self.full(head.text);
        match verdict {
            Verdict::Wait => {}
            Verdict::Ask => {
                log::warn!("{head} has held for too long: asking it to let go");
                self.session.revoke(&head)?;
            }
            Verdict::Evict => {
                log::warn!("{head} has not let go within its grace: evicting it");
                self.session.delete(&head)?;
            }
        }
        Ok(Step::Again)
    }

    /// Makes sure that a quorum confirmed the session a moment ago. A create has done so
    /// for those who did not wait for long.
    fn prove(&mut self, name: &str, limit: &Limit) -> Result<Step> {
        let fresh = self.link.timeout / 4;
        let now = Moment::now();
        if self.proven.is_some_and(|proven| now < proven + fresh) {
            return Ok(Step::Report(Event::Proved));
        }
        let abilities = self.session.transport.abilities();
        let sent = Moment::now();
        let Ok(answers) = self.asker.prove(&[self.full(name)], limit) else {
            return Ok(Step::Report(Event::Cancel));
        };
        match proof::judge(abilities, &answers) {
            Proof::Confirmed => {
                self.proven = Some(sent);
                Ok(Step::Again)
            }
            Proof::Gone(_) => Ok(Step::Report(Event::NoNode)),
            Proof::Unanswered => {
                let failed = answers.into_iter().find(|answered| answered.is_err());
                self.trouble(failed.unwrap_or(Err(Failure::Lost)), limit)
            }
        }
    }

    /// Deals with an answer that no step expects.
    fn trouble(&mut self, answered: Answered, limit: &Limit) -> Result<Step> {
        match answered {
            Err(Failure::Refused(code)) => Err(refused(self.quest.dir, code)),
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
                // The watches of a session go with it.
                self.watching = None;
                self.guarding = None;
                Ok(Some(Step::Report(Event::NewSession)))
            }
        }
    }

    fn tell(&mut self, behind: &Behind, data: Vec<u8>, stat: Stat) {
        let place = (behind.nearest.clone(), behind.ahead);
        let news = self.told.as_ref() != Some(&place);
        if let (Some(on_wait), true) = (self.quest.on_wait.as_mut(), news) {
            on_wait(&Ahead {
                since: self.since.elapsed(),
                count: behind.ahead,
                nearest: format!("{}/{}", self.quest.dir, behind.nearest),
                data,
                stat,
            });
        }
        self.told = Some(place);
    }

    fn warn_half_way(&self, name: &str) {
        if NodeName::parse(name).is_some_and(|name| HALF_WAY <= name.sequence) {
            log::warn!(
                "more than half of the sequence numbers under {} are used up: delete it when it is idle",
                self.quest.dir,
            );
        }
    }

    fn ask(&mut self, request: Request, limit: &Limit) -> std::result::Result<Answered, GaveUp> {
        let ticket = self.post([request]);
        self.answer(ticket, limit)
    }

    fn ask_watching(
        &mut self,
        request: Request,
        path: &str,
        limit: &Limit,
    ) -> std::result::Result<Answered, GaveUp> {
        self.unwatch();
        let id = self.session.next_watch();
        self.watching = Some((path.to_owned(), id));
        let watch = Watch {
            id,
            to: self.fired.0.clone(),
        };
        let ticket = self.asker.post([(request, Some(watch))]);
        self.asker.wait(ticket, limit)
    }

    fn post(&mut self, requests: impl IntoIterator<Item = Request>) -> Ticket {
        let requests = requests.into_iter().map(|request| (request, None));
        self.asker.post(requests)
    }

    fn answer(&mut self, ticket: Ticket, limit: &Limit) -> std::result::Result<Answered, GaveUp> {
        self.asker.wait(ticket, limit)
    }

    fn unwatch(&mut self) {
        // The watch on our own node needs none of this: it goes with the node.
        if let Some((path, id)) = self.watching.take() {
            self.session.transport.unwatch(&path, id);
        }
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
            // The session may have changed unnoticed before the create. A later one than the
            // node's does no harm: the node is gone then.
            let session = match self.session.hub.link().session {
                0 => self.link.session,
                session => session,
            };
            self.session
                .leftovers
                .add(self.quest.dir, session, leftovers);
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
