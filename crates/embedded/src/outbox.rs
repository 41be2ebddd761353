//! The frames on their way to one client.
//!
//! A change puts events into the outboxes of the clients that watch it, so putting must not wait for a
//! client: another thread writes to the socket. The reading thread waits while too much is unsent, so that
//! a client that sends requests and does not read cannot fill the memory.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::faults::NetworkFaults;

/// How many bytes may be unsent before the client's next request has to wait.
const ROOM: usize = 1 << 20;

/// How many bytes may be unsent before the connection is cut.
const LIMIT: usize = 64 << 20;

#[derive(Debug)]
pub(super) struct Outbox {
    stream: TcpStream,
    network: Arc<NetworkFaults>,
    queue: Mutex<PendingFrames>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct PendingFrames {
    frames: VecDeque<(Instant, Vec<u8>)>,
    bytes: usize,
    end: OutboxEnd,
}

/// How far the end of the connection has come.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
enum OutboxEnd {
    #[default]
    Open,
    /// The frames put in so far are still sent.
    Closing,
    /// Nothing more is sent; the client learns of it when the network allows.
    Cut,
    /// The server is gone.
    Stopped,
}

impl Outbox {
    pub(super) fn new(stream: TcpStream, network: Arc<NetworkFaults>) -> Self {
        Self {
            stream,
            network,
            queue: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Adds a frame; never waits.
    pub(super) fn put(&self, frame: Vec<u8>) {
        let mut queue = self.queue.lock();
        if queue.end == OutboxEnd::Open {
            queue.bytes += frame.len();
            queue
                .frames
                .push_back((Instant::now() + self.network.delay(), frame));
            if queue.bytes > LIMIT {
                self.end(&mut queue, OutboxEnd::Cut);
            }
            self.changed.notify_all();
        }
    }

    /// Closes the connection once everything is sent.
    pub(super) fn close(&self) {
        self.end(&mut self.queue.lock(), OutboxEnd::Closing);
    }

    /// Closes the connection at once.
    pub(super) fn cut(&self) {
        self.end(&mut self.queue.lock(), OutboxEnd::Cut);
    }

    /// Like `cut`, even in a blackhole.
    pub(super) fn stop(&self) {
        self.end(&mut self.queue.lock(), OutboxEnd::Stopped);
    }

    pub(super) fn network_changed(&self) {
        let mut queue = self.queue.lock();
        let end = queue.end;
        self.end(&mut queue, end);
    }

    /// Waits until the client's next request may be read. Returns `false` if none may.
    pub(super) fn wait_for_room(&self) -> bool {
        let mut queue = self.queue.lock();
        while queue.end < OutboxEnd::Cut && (queue.bytes > ROOM || self.network.is_blackhole()) {
            self.changed.wait(&mut queue);
        }
        queue.end < OutboxEnd::Cut
    }

    /// Writes the frames, until the connection is closed.
    pub(super) fn run(&self) {
        while let Some(frame) = self.next() {
            if self.send(&frame).is_err() {
                break;
            }
            self.queue.lock().bytes -= frame.len();
            self.changed.notify_all();
        }
        let mut queue = self.queue.lock();
        self.end(&mut queue, OutboxEnd::Cut);
        while self.is_held(&queue) {
            self.changed.wait(&mut queue);
        }
        // Wakes the reading thread.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    fn send(&self, frame: &[u8]) -> io::Result<()> {
        (&self.stream).write_all(frame)
    }

    /// Waits until a frame is due; returns `None` if no more frames are sent.
    fn next(&self) -> Option<Vec<u8>> {
        let mut queue = self.queue.lock();
        loop {
            if queue.end >= OutboxEnd::Cut {
                return None;
            }
            let now = Instant::now();
            match queue.frames.front() {
                _ if self.network.is_blackhole() => self.changed.wait(&mut queue),
                None if queue.end == OutboxEnd::Closing => return None,
                None => self.changed.wait(&mut queue),
                Some((due, _)) if *due > now => {
                    let wait = due
                        .saturating_duration_since(now)
                        .min(Duration::from_secs(1));
                    self.changed.wait_for(&mut queue, wait);
                }
                Some(_) => return queue.frames.pop_front().map(|(_, frame)| frame),
            }
        }
    }

    fn end(&self, queue: &mut PendingFrames, end: OutboxEnd) {
        queue.end = queue.end.max(end);
        if queue.end >= OutboxEnd::Cut && !self.is_held(queue) {
            // The writer may be waiting for a client that does not read.
            let _ = self.stream.shutdown(Shutdown::Both);
        }
        self.changed.notify_all();
    }

    /// Returns whether the end is held back: in a blackhole not even the end of a connection gets through.
    fn is_held(&self, queue: &PendingFrames) -> bool {
        self.network.is_blackhole() && queue.end < OutboxEnd::Stopped
    }
}
