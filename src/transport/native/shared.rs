//! The state that the calling threads and the I/O thread share.
//!
//! It is under one mutex, which is never locked while a thread waits for the network or an answer
//! runs. The thread that queues a frame writes it, unless another thread is writing: then that
//! thread writes the frame too.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::channel::{Channel, Outbox};
use super::config::Config;
use super::hosts::Target;
use super::server_list::ServerList;
use super::who_reads::LeaderFollowers;
use crate::system::clock::since_boot;
use crate::system::sync::{Condvar, Mutex, MutexGuard};
use crate::system::{is_timeout, random};
use crate::time::limit::from_now;
use crate::transport::status::Status;
use crate::transport::{Answer, Call, Failure, Watch, WatchId};
use zklock_core::connection::link::{Broken, Link, Stage};

/// How soon to write again what a full socket has not taken.
pub(super) const WRITE_AGAIN: Duration = Duration::from_millis(10);

/// The first request of an inherited session has a number below this.
const MOST_BEFORE: i32 = 1 << 30;

pub(super) struct Shared {
    pub(super) config: Config,
    pub(super) status: Arc<Status>,
    pub(super) state: Mutex<State>,
    /// Who reads from the connection.
    pub(super) reading: LeaderFollowers,
    /// Ends the I/O thread's pause between two attempts to connect, and its wait for names.
    pub(super) stop: Condvar,
    /// Whether a full socket has not taken everything that was queued.
    behind: AtomicBool,
}

pub(super) struct State {
    /// The session and its requests: this decides.
    pub(super) link: Link<Watch, Answer>,
    /// The connection, or the one that is being made.
    channel: Option<Arc<Channel>>,
    /// The writer's buffer; absent while a thread is writing.
    writer: Option<Outbox>,
    /// The number of connections so far, by which a late writer notices that its own has ended.
    connection: u64,
    /// The server of this connection, or of the last one.
    pub(super) target: Option<Target>,
    pub(super) list: ServerList,
    /// The last complaint about the ensemble's configuration.
    pub(super) complaint: String,
}

impl Shared {
    pub(super) fn new(config: Config, status: Arc<Status>) -> Self {
        let inherited = config.inherited.as_ref();
        // Other processes count their own requests in an inherited session.
        let first = inherited.map_or(0, |_| random::rare_number(MOST_BEFORE));
        let frames = (config.hosts.chroot(), config.frame_limit);
        let session = inherited.map(|session| session.key.clone());
        let is_kept = inherited.is_some_and(|session| session.is_kept);
        let state = State {
            link: Link::new(frames, config.idle_pings, first, (session, is_kept)),
            channel: None,
            writer: None,
            connection: 0,
            target: None,
            list: ServerList::new(config.hosts.servers()),
            complaint: String::new(),
        };
        Self {
            config,
            status,
            state: Mutex::new(state),
            reading: LeaderFollowers::default(),
            stop: Condvar::new(),
            behind: AtomicBool::new(false),
        }
    }

    pub(super) fn send(&self, calls: Vec<Call>) {
        let (mut refused, now) = (Vec::new(), since_boot());
        let mut state = self.state.lock();
        for call in calls {
            let watch = call.watch.map(|watch| (watch.id.0, watch));
            let pushed = state.link.push(call.request, watch, call.answer, now);
            refused.extend(pushed.err());
        }
        self.flush(state);
        for (answer, failure) in refused {
            answer.into_iter().for_each(|answer| answer(Err(failure)));
        }
    }

    pub(super) fn unwatch(&self, path: &str, id: WatchId) {
        let mut state = self.state.lock();
        if state.link.unwatch(path, id.0, since_boot()) {
            self.flush(state);
        }
    }

    /// Leaves a server that shows a node which its leader lacks, unless one was left a moment ago.
    pub(super) fn move_on(&self, node: &str) {
        let mut state = self.state.lock();
        if !state.link.move_on(since_boot()) {
            return;
        }
        let server = state.target.as_ref().map(Target::to_string);
        self.flush(state);
        log::warn!(
            "{}: it shows {node}, which its leader lacks: their data differ, see zklock doctor; going on with \
             another server if there is one",
            server.unwrap_or_default()
        );
    }

    /// Writes what is queued, unless another thread is writing.
    pub(super) fn flush(&self, mut state: MutexGuard<'_, State>) {
        let connection = state.connection;
        let Some(channel) = state.channel.clone() else {
            return;
        };
        let Some(mut outbox) = state.writer.take() else {
            return;
        };
        while state.load(&mut outbox) || channel.has_more() {
            let written = MutexGuard::unlocked(&mut state, || channel.write(&mut outbox));
            if state.connection != connection {
                return;
            }
            if let Err(error) = written {
                state.put_writer(outbox);
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
        state.put_writer(outbox);
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
        let (mut state, now) = (self.state.lock(), since_boot());
        if !state.link.wants_connection(now) {
            return false;
        }
        state.link.begin(now);
        state.channel = Some(Arc::clone(channel));
        state.writer = Some(Outbox::default());
        state.target = Some(target.clone());
        state.connection += 1;
        self.behind.store(false, Ordering::Relaxed);
        true
    }

    /// Removes the connection. Its open requests must fail after the status has changed.
    pub(super) fn detach(&self, by_peer: bool) -> Broken<Answer> {
        let mut state = self.state.lock();
        self.behind.store(false, Ordering::Relaxed);
        state.shut_down();
        state.channel = None;
        state.connection += 1;
        state.link.broke(by_peer)
    }

    /// Pauses before the next attempt, for a fraction of the time that is left if the session is to
    /// end. Returns `false` if the transport must end.
    pub(super) fn rest(&self, time: Duration) -> bool {
        let began = since_boot();
        let mut state = self.state.lock();
        while state.link.wants_connection(since_boot()) {
            let longest = state.link.longest_pause(began).map(jittered);
            let pause = longest.map_or(time, |longest| time.min(longest));
            let left = (began + pause).saturating_sub(since_boot());
            if left.is_zero() {
                return true;
            }
            self.stop.wait_for(&mut state, left);
        }
        false
    }

    /// Begins to end the session, unless that has begun before.
    ///
    /// The guards fail before the server gets the request: the server may grant their locks to
    /// other clients at once.
    pub(super) fn begin_close(&self, limit: Duration) {
        self.status.closed();
        let (mut state, now) = (self.state.lock(), since_boot());
        let Some((open, is_useless)) = state.link.close(now.saturating_add(limit), now) else {
            return;
        };
        if is_useless {
            state.shut_down();
        }
        self.stop.notify_all();
        self.flush(state);
        for answer in open {
            answer(Err(Failure::Closed));
        }
        // Some thread must read the server's answer.
        self.reading.reclaim();
    }

    /// Ends the transport, because no thread waits for the end of the session any more.
    pub(super) fn give_up_close(&self) {
        let mut state = self.state.lock();
        state.link.end();
        state.shut_down();
        self.stop.notify_all();
    }

    /// Returns whether nobody asks for the end of the session any more.
    pub(super) fn has_given_up(&self) -> bool {
        self.state.lock().link.stage() == Stage::Over
    }

    /// Ends the transport: no request is sent from now on.
    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        state.link.end();
        state.link.watches.clear();
    }
}

impl State {
    /// Gives the writer what is queued; returns whether there is something to write.
    fn load(&mut self, outbox: &mut Outbox) -> bool {
        if self.link.queue.has_frames() {
            outbox.until = self.link.queue.take_frames(&mut outbox.plain, since_boot());
        }
        !outbox.is_empty()
    }

    /// Notes that the calling thread is no longer the writer.
    fn put_writer(&mut self, outbox: Outbox) {
        self.link.queue.written(outbox.handed());
        self.writer = Some(outbox);
    }

    fn shut_down(&self) {
        if let Some(channel) = &self.channel {
            channel.shut_down();
        }
    }
}

/// Makes a pause a little longer or shorter, so that clients that lost the same server do not
/// return in step.
pub(super) fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.8 + 0.4 * fastrand::f64())
}
