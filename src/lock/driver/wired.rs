//! The session as an acquisition sees it, and how it sends requests.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use super::super::fresh_id::fresh_id;
use super::super::request::{LockRequest, Queue, creation};
use crate::hold::Hold;
use crate::session::Session;
use crate::session::caller::Caller;
use crate::session::confirm_grant::tell_late;
use crate::session::early_create::EarlyCreate;
use crate::system::{clock, process};
use crate::transport::Mailbox;
use crate::transport::status::Snapshot;
use crate::transport::{Fired, Reading, Watch, WatchId};
use zklock_core::acquisition::{Acquisition, CallId, Note, Wire};
use zklock_core::attempt::Orphan;
use zklock_core::name::{LAST_SEQUENCE, NodeName};
use zklock_core::proof::{GrantProof, Next};
use zklock_core::queue::strangers;
use zklock_core::validity::Stamp;
use zklock_jute::Request;

/// From this number on, a directory is worth a warning.
const HALF_WAY: i64 = LAST_SEQUENCE / 2;

/// See the module's documentation.
pub(super) struct Wired<'a> {
    session: &'a Session,
    queue: &'a Queue<'a>,
    note: Option<String>,
    pub(super) caller: &'a mut Caller,
    /// The connection as last reported to the acquisition.
    pub(super) snapshot: Snapshot,
    /// Whether that connection still exists.
    pub(super) connected: bool,
    /// The requests to send with the next write.
    out: Vec<(Request, Option<Watch>)>,
    pub(super) fired: Mailbox<Fired>,
    /// The watches that are set or requested, and their paths.
    watches: Vec<(String, WatchId)>,
    /// Set while the thread waits for others and reads from the connection.
    pub(super) reading: Option<Reading<'a>>,
    /// The create that another thread has sent.
    pub(super) early: Option<Early>,
    is_held_back: bool,
}

impl<'a> Wired<'a> {
    pub(super) fn new(
        session: &'a Session,
        queue: &'a Queue<'a>,
        note: Option<String>,
        (caller, snapshot): (&'a mut Caller, Snapshot),
    ) -> Self {
        Self {
            session,
            queue,
            note,
            caller,
            snapshot,
            connected: true,
            out: Vec::new(),
            fired: Mailbox::new(),
            watches: Vec::new(),
            reading: None,
            early: None,
            is_held_back: false,
        }
    }

    /// Sends the requests in one write.
    pub(super) fn flush(&mut self) {
        if !self.out.is_empty() {
            self.caller.post(mem::take(&mut self.out));
        }
    }

    /// Returns whether there are any watches.
    pub(super) fn watches(&self) -> bool {
        !self.watches.is_empty()
    }

    /// Takes the path of a watch, unless the watch was given up.
    pub(super) fn path_of(&mut self, id: WatchId) -> Option<String> {
        let at = self.watches.iter().position(|(_, other)| *other == id)?;
        Some(self.watches.swap_remove(at).0)
    }

    /// Removes all watches. If a node of ours is named, those on it and on our nodes in other queues are left: they go
    /// with the nodes.
    pub(super) fn unwatch_others(&mut self, node: Option<&str>) {
        for (path, id) in self.watches.drain(..) {
            if node.is_none_or(|node| path != node && self.queue.has(&path)) {
                self.session.transport.unwatch(&path, id);
            }
        }
    }

    /// Notes how long the lock must wait until the leader has heard of the session, or that it need not wait.
    fn hold_back(&mut self, pause: Option<Duration>) {
        match pause {
            Some(pause) if !self.is_held_back => self.session.hold_back(pause),
            None if self.is_held_back => self.session.lets_go_on(),
            _ => {}
        }
        self.is_held_back = pause.is_some();
    }

    /// Creates a watch that reports to this thread.
    pub(super) fn new_watch(&self) -> Watch {
        Watch::new(self.session.leases.next_watch(), self.fired.slot())
    }

    fn post(&mut self, request: Request) -> CallId {
        let watch = request.watches().map(|path| {
            let watch = self.new_watch();
            self.watches.push((path.to_owned(), watch.id));
            watch
        });
        let id = self.caller.upcoming(self.out.len());
        self.out.push((request, watch));
        id
    }
}

impl Wire for Wired<'_> {
    fn now(&self) -> Duration {
        clock::since_boot()
    }

    fn session(&self) -> Option<i64> {
        self.snapshot.known_session()
    }

    fn is_same_session(&self) -> bool {
        self.session.status.snapshot().session == self.snapshot.session
    }

    fn is_connected(&self) -> bool {
        self.connected
    }

    fn transacts(&self) -> bool {
        self.session.transport.transacts()
    }

    fn stamp(&self) -> Stamp {
        self.session.status.stamp()
    }

    fn next_for_a_grant(&self, proof: &GrantProof) -> Next {
        self.session.status.next_for_a_grant(proof)
    }

    fn renews_at(&self, proof: &GrantProof) -> Duration {
        self.session.status.renews_at(proof)
    }

    fn fresh_id(&mut self) -> String {
        fresh_id()
    }

    fn send(&mut self, _: &Arc<str>, request: Request) -> CallId {
        self.post(request)
    }

    fn create(&mut self, _: &Arc<str>, prefix: &str) -> CallId {
        let note = self.note.as_deref();
        self.post(creation(self.session, self.queue, note, prefix))
    }

    fn parents(&self, dir: &str) -> Option<Vec<Request>> {
        let Queue { role, lasting, .. } = *self.queue;
        let creates = || self.session.parents(dir, lasting);
        lasting.is_made_by(role).then(creates)
    }

    // Another thread may still be about to send the create: the thread that gets the answer cleans up.
    fn abandon(&mut self, create: CallId) -> bool {
        self.early
            .as_ref()
            .is_some_and(|early| early.call_id == create)
    }

    fn is_deleting_in(&self, dir: &str) -> bool {
        self.session.cleaner.is_deleting_in(dir)
    }

    fn unwatch(&mut self, path: &str) {
        while let Some(at) = self.watches.iter().position(|(other, _)| other == path) {
            let (path, id) = self.watches.swap_remove(at);
            self.session.transport.unwatch(&path, id);
        }
    }

    fn probable_time(&self) -> Duration {
        process::since_epoch()
    }

    fn tell(&mut self, note: Note<'_>) {
        let dir = self.queue.dir;
        let is_silent = match note {
            Note::Holds(_) | Note::HeldBack(None) => true,
            Note::HeldBack(Some(_)) => self.is_held_back,
            Note::Listed(_) => !log::log_enabled!(log::Level::Debug),
            _ => false,
        };
        if !is_silent {
            // The logger is the user's code, which may take its time.
            self.reading = None;
        }
        match note {
            Note::Created(name) => warn_half_way(name, dir),
            Note::Listed(names) if log::log_enabled!(log::Level::Debug) => {
                for name in strangers(names) {
                    log::debug!("{dir}/{name} is no contender of any dialect");
                }
            }
            Note::Listed(_) => {}
            Note::Holds(hold) => {
                let hold = hold.map(|(data, stat)| Hold::read(data, stat));
                *self.session.taken.lock() = Some((self.queue.path.to_owned(), hold));
            }
            Note::RemovesHold(node) => log::warn!("the hold {node} is over: removing it"),
            Note::HoldStays(node, code) => {
                log::warn!("the hold {node} is over, and stays: {}", code.text());
            }
            Note::Asks(node) => {
                log::warn!("{node} has held for too long: asking it to let go");
            }
            Note::Evicts(node) => {
                log::warn!("{node} has not let go within its grace: evicting it");
            }
            Note::Diverged(node) => self.session.transport.move_on(node),
            Note::HeldBack(pause) => self.hold_back(pause),
            Note::AnswersLate(took) => tell_late(took),
        }
    }
}

impl Drop for Wired<'_> {
    fn drop(&mut self) {
        self.hold_back(None);
    }
}

/// Requests that a thread prepares before it sleeps in the line of its client.
///
/// If other clients wait for the lock too, the next thread of this client goes to the end of the
/// queue when the thread ahead of it leaves: its create is sent with that release. If the thread
/// has given up meanwhile, the cleaner deletes the node that was created for it.
pub(crate) struct Early {
    session: Arc<Session>,
    dir: String,
    pub(super) id: String,
    pub(crate) create: Arc<EarlyCreate>,
    /// The id of the create; the listing has the next id.
    pub(super) call_id: CallId,
}

impl Early {
    /// Prepares a create and a listing, with the caller that reads their answers. Returns `None` if an
    /// attempt would begin with another request, or if the transport has no transactions or does not
    /// resume sessions.
    pub(crate) fn prepare(
        session: &Arc<Session>,
        queue: &Queue<'_>,
        request: &LockRequest<'_>,
    ) -> Option<(Caller, Self)> {
        if !(session.transport.transacts() && session.status.snapshot().resumes) {
            return None;
        }
        let (id, dir) = (fresh_id(), queue.dir.into());
        let asks = (queue.contest(session), request.patience);
        let prefix = Acquisition::enter(asks, (&dir, &id), None, None).begins_with_create()?;
        let create = creation(session, queue, request.note.as_deref(), &prefix);
        let mut caller = session.caller();
        let requests = [create, Request::list(queue.dir)].map(|request| (request, None));
        let (call_id, calls) = caller.prepare(requests);
        let early = Self {
            session: session.clone(),
            dir: queue.dir.to_owned(),
            id,
            create: EarlyCreate::new(prefix, calls),
            call_id,
        };
        Some((caller, early))
    }

    /// Returns itself and the stamp of its requests, if they were sent in this session.
    pub(super) fn sent_in(self, session: i64) -> Option<(Self, Stamp)> {
        let sent = self.create.settle()?;
        (sent.session == session).then_some((self, sent.stamp))
    }

    /// Notes that the answer has been read.
    pub(super) fn finish(self) {
        // Nothing is left to give up when this is dropped.
        let _ = self.create.give_up();
    }
}

impl Drop for Early {
    fn drop(&mut self) {
        if self.session.is_inherited() {
            return;
        }
        if let Some(sent) = self.create.give_up() {
            let node = Orphan::Prefix(self.create.prefix.clone());
            let cleaner = &self.session.cleaner;
            cleaner.add(&self.dir, sent.session, vec![node]);
        }
    }
}

fn warn_half_way(name: &str, dir: &str) {
    if NodeName::parse(name).is_some_and(|name| HALF_WAY <= name.sequence) {
        log::warn!(
            "more than half of the sequence numbers under {dir} are used up: delete it when it is idle"
        );
    }
}
