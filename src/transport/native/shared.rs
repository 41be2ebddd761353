//! The state that the calling threads and the I/O thread share.
//!
//! It is under one mutex, which is never locked while a thread waits for the network or an answer
//! runs. The thread that queues a frame writes it, unless another thread is writing: then that
//! thread writes the frame too.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::channel::{Channel, End};
use super::config::Config;
use super::hosts::Target;
use super::request_queue::{Pending, RequestQueue};
use super::server_list::ServerList;
use crate::system::clock::since_boot;
use crate::system::sync::{Condvar, Mutex, MutexGuard};
use crate::system::{is_timeout, random};
use crate::time::limit::from_now;
use crate::transport::handover::SessionKey;
use crate::transport::status::Status;
use crate::transport::{Answer, Call, Failure, Watch, WatchId};
use zklock_core::connection::server_features::Features;
use zklock_core::connection::watches::{Kind, Watches};
use zklock_jute::{ErrorCode, ReplyHeader, Request};

/// How long a client stays with a server whose data may be wrong too, after it has left one for that. It may have no
/// other address, and many waiters that ask, each at its own time; its locks must not be in doubt all the time.
const STAYS: Duration = Duration::from_secs(60);

/// How soon to write again what a full socket has not taken.
pub(super) const WRITE_AGAIN: Duration = Duration::from_millis(10);

/// The first request of an inherited session has a number below this.
const MOST_BEFORE: i32 = 1 << 30;

pub(super) struct Shared {
    pub(super) config: Config,
    pub(super) status: Arc<Status>,
    pub(super) state: Mutex<State>,
    /// Ends the I/O thread's pause between two attempts to connect, and its wait for names.
    pub(super) stop: Condvar,
    /// Whether a full socket has not taken everything that was queued.
    behind: AtomicBool,
}

pub(super) struct State {
    pub(super) stage: Stage,
    /// The connection, or the one that is being made.
    pub(super) channel: Option<Arc<Channel>>,
    /// The server of this connection, or of the last one.
    pub(super) target: Option<Target>,
    /// Whether this connection's server has shown that its data are wrong, and is to be left.
    pub(super) has_diverged: bool,
    /// When a server was last left for that.
    moved_on: Option<Duration>,
    /// The number of connections so far, by which a late writer notices that its own has ended.
    connection: u64,
    pub(super) queue: RequestQueue,
    pub(super) watches: Watches<Watch>,
    pub(super) list: ServerList,
    /// The last complaint about the ensemble's configuration.
    pub(super) complaint: String,
    pub(super) features: Features,
    /// The session's key, for another process to use.
    pub(super) key: Option<SessionKey>,
    /// The session that is kept for another process when the transport closes.
    pub(super) kept: Option<i64>,
}

/// What the transport is doing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stage {
    /// There is no connection that serves requests.
    Away,
    Serving,
    /// The session is to end, at the latest at `until`. The request with the number `reply` asks for that on this
    /// connection; the next connection asks again if this one breaks without an answer.
    Closing {
        reply: Option<i32>,
        until: Duration,
    },
    Over,
}

impl Shared {
    pub(super) fn new(config: Config, status: Arc<Status>) -> Self {
        let key = config.inherited.as_ref().map(|session| session.key.clone());
        let kept = config.inherited.as_ref().filter(|session| session.is_kept);
        // Other processes count their own requests in an inherited session.
        let first = key.as_ref().map_or(0, |_| random::rare_number(MOST_BEFORE));
        let state = State {
            stage: Stage::Away,
            channel: None,
            target: None,
            has_diverged: false,
            moved_on: None,
            connection: 0,
            queue: RequestQueue::after(first, config.hosts.chroot().into(), config.frame_limit),
            watches: Watches::default(),
            list: ServerList::new(config.hosts.servers()),
            complaint: String::new(),
            features: Features::default(),
            kept: kept.map(|session| session.key.id),
            key,
        };
        Self {
            config,
            status,
            state: Mutex::new(state),
            stop: Condvar::new(),
            behind: AtomicBool::new(false),
        }
    }

    pub(super) fn send(&self, calls: Vec<Call>) {
        let mut refused = Vec::new();
        let mut state = self.state.lock();
        for call in calls {
            if let Err(back) = state.push(call) {
                refused.push(back);
            }
        }
        self.flush(state);
        for (answer, failure) in refused {
            answer(Err(failure));
        }
    }

    pub(super) fn unwatch(&self, path: &str, id: WatchId) {
        let mut state = self.state.lock();
        let idle = state.watches.remove(path, id.0);
        let told = state.stage == Stage::Serving && state.features.removes_watches();
        if let Some(kind) = idle.filter(|_| told) {
            let path = path.to_owned();
            let _ = state
                .queue
                .push(Request::RemoveWatches { path, kind }, None, None);
            self.flush(state);
        }
    }

    /// Leaves a server that shows a node which its leader lacks, unless one was left a moment ago.
    pub(super) fn move_on(&self, node: &str) {
        let (mut state, now) = (self.state.lock(), since_boot());
        let stays = state.moved_on.is_some_and(|at| now < at + STAYS);
        if stays || state.stage != Stage::Serving {
            return;
        }
        state.moved_on = Some(now);
        state.has_diverged = true;
        let server = state.target.as_ref().map(Target::to_string);
        // The answer wakes the thread that reads.
        state.queue.ping_after(Duration::ZERO, now);
        self.flush(state);
        log::warn!(
            "{}: it shows {node}, which its leader lacks: their data differ, see zklock doctor; going on with \
             another server if there is one",
            server.unwrap_or_default()
        );
    }

    /// Sends a request again.
    pub(super) fn push_again(&self, mut state: MutexGuard<'_, State>, pending: Pending) {
        // It fits: an older form is not longer.
        let _ = state
            .queue
            .push(pending.request, pending.watch, pending.answer);
        self.flush(state);
    }

    /// Writes what is queued, unless another thread is writing.
    pub(super) fn flush(&self, mut state: MutexGuard<'_, State>) {
        let connection = state.connection;
        let Some(channel) = state.channel.clone() else {
            return;
        };
        let Some(mut outbox) = state.queue.take_writer() else {
            return;
        };
        while state.queue.load(&mut outbox) || channel.has_more() {
            let written = MutexGuard::unlocked(&mut state, || channel.write(&mut outbox));
            if state.connection != connection {
                return;
            }
            if let Err(error) = written {
                state.queue.put_writer(outbox);
                // The rest leaves with the next request, or the threads that wait for
                // answers write it.
                self.behind.store(true, Ordering::Relaxed);
                drop(state);
                if !is_timeout(&error) {
                    channel.shut_down();
                }
                return;
            }
        }
        self.behind.store(false, Ordering::Relaxed);
        state.queue.put_writer(outbox);
    }

    /// Returns whether a full socket has not taken everything that was queued.
    pub(super) fn is_behind(&self) -> bool {
        self.behind.load(Ordering::Relaxed)
    }

    /// Continues to write where a full socket stopped the last writer. Returns when to do so again,
    /// or `until` if that is sooner.
    pub(super) fn write_on(&self, until: Option<Instant>) -> Option<Instant> {
        if !self.is_behind() {
            return until;
        }
        self.flush(self.state.lock());
        self.next_write(until)
    }

    /// Returns when to write on, or `until` if that is sooner.
    pub(super) fn next_write(&self, until: Option<Instant>) -> Option<Instant> {
        if !self.is_behind() {
            return until;
        }
        let again = from_now(WRITE_AGAIN);
        Some(until.map_or(again, |until| until.min(again)))
    }

    /// Makes a connection the current one; it does not serve requests yet.
    ///
    /// Returns `false` if the transport must end instead.
    pub(super) fn attach(&self, channel: &Arc<Channel>, target: &Target) -> bool {
        let mut state = self.state.lock();
        if !state.wants_connection() {
            return false;
        }
        state.channel = Some(Arc::clone(channel));
        state.target = Some(target.clone());
        state.has_diverged = false;
        state.connection += 1;
        state.queue = state.queue.of_the_next_connection();
        self.behind.store(false, Ordering::Relaxed);
        true
    }

    /// Lets requests use the connection, or asks on it for the end of the session. Returns the
    /// stage of the transport.
    pub(super) fn serve(&self) -> Stage {
        let mut state = self.state.lock();
        match state.stage {
            Stage::Away => state.stage = Stage::Serving,
            Stage::Closing { until, .. } if state.wants_connection() => {
                state.ask_for_the_end(until);
            }
            _ => state.stage = Stage::Over,
        }
        let stage = state.stage;
        self.flush(state);
        stage
    }

    /// Removes the connection. Its open requests must fail after the status has changed.
    pub(super) fn detach(&self, by_peer: bool) -> Detached {
        let mut state = self.state.lock();
        let state = &mut *state;
        let served = state.stage == Stage::Serving;
        self.behind.store(false, Ordering::Relaxed);
        match &mut state.stage {
            stage @ Stage::Serving => *stage = Stage::Away,
            Stage::Closing { reply, .. } => *reply = None,
            Stage::Away | Stage::Over => {}
        }
        if let Some(channel) = state.channel.take() {
            channel.shut_down();
        }
        state.connection += 1;
        if served && by_peer {
            state.features.left_over(state.queue.oldest());
        }
        let mut open = VecDeque::new();
        for pending in state.queue.take_pending() {
            state.forget_watch(&pending);
            let failure = state.queue.failure(&pending);
            open.push_back((pending, failure));
        }
        Detached { served, open }
    }

    /// Pauses before the next attempt, for a fraction of the time that is left if the session is to
    /// end. Returns `false` if the transport must end.
    pub(super) fn rest(&self, time: Duration) -> bool {
        let began = since_boot();
        let mut state = self.state.lock();
        while state.wants_connection() {
            let pause = state
                .longest_pause(began)
                .map_or(time, |longest| time.min(longest));
            let left = (began + pause).saturating_sub(since_boot());
            if left.is_zero() {
                return true;
            }
            self.stop.wait_for(&mut state, left);
        }
        false
    }

    /// Ends the transport: no request is sent from now on.
    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        state.stage = Stage::Over;
        state.watches.clear();
    }
}

/// The open requests of a connection, and whether it served requests.
pub(super) struct Detached {
    pub(super) served: bool,
    pub(super) open: VecDeque<(Pending, Failure)>,
}

impl State {
    fn push(&mut self, call: Call) -> Result<(), (Answer, Failure)> {
        match self.stage {
            Stage::Serving => {}
            Stage::Away => return Err((call.answer, Failure::NotSent)),
            Stage::Closing { .. } | Stage::Over => return Err((call.answer, Failure::Closed)),
        }
        let request = self.features.fit(call.request);
        let watch = call.watch.as_ref().map(|watch| watch.id);
        let entry = call.watch.and_then(|watch| {
            let kind = kind_of(&request)?;
            Some((request.reads()?.to_owned(), kind, watch))
        });
        match self.queue.push(request, watch, Some(call.answer)) {
            Ok(_) => {
                if let Some((path, kind, watch)) = entry {
                    self.watches.add(path, kind, watch.id.0, watch);
                }
                Ok(())
            }
            Err((too_long, Some(answer))) => Err((answer, Failure::TooLong(too_long))),
            Err((_, None)) => Ok(()),
        }
    }
}

/// Makes a pause a little longer or shorter, so that clients that lost the same server do not
/// return in step.
pub(super) fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.8 + 0.4 * fastrand::f64())
}

/// Returns the kind of watch that a request sets.
fn kind_of(request: &Request) -> Option<Kind> {
    match request {
        Request::GetData { .. } | Request::Exists { .. } => Some(Kind::Data),
        Request::GetChildren { .. } => Some(Kind::Children),
        _ => None,
    }
}

impl State {
    /// Learns from an answer that arrived while an earlier request was open; returns how the
    /// connection ends.
    ///
    /// ZooKeeper 3.4 refuses an unknown request at once and closes the connection. A server that
    /// answers any other request too early has dropped the earlier one, which it does not know. If
    /// the client did not learn from this, every connection would end like this one.
    pub(super) fn learn_from(&mut self, open: &Pending, early: ReplyHeader) -> End {
        self.forget_watch(open);
        match self.queue.numbered(early.xid) {
            Some(request) if early.code == ErrorCode::UNIMPLEMENTED => {
                self.features.refused(request, early.code);
            }
            Some(_) => self.features.skipped(&open.request),
            None => {}
        }
        let number = open.request.op().0;
        End::Broken(format!("a reply came before that of operation {number}"))
    }

    /// Keeps the watch of a request only if the server set it.
    pub(super) fn settle_watch(&mut self, pending: &Pending, code: ErrorCode) {
        let Some(id) = pending.watch else { return };
        match (&pending.request, code) {
            (_, ErrorCode::OK) => {}
            (Request::Exists { path, .. }, ErrorCode::NO_NODE) => {
                self.watches.awaits_creation(path, id.0);
            }
            _ => self.forget_watch(pending),
        }
    }

    pub(super) fn forget_watch(&mut self, pending: &Pending) {
        if let Some((path, id)) = pending.watched() {
            self.watches.remove(path, id.0);
        }
    }
}
