//! Messages on stderr, without ever waiting for it.
//!
//! Stderr can block for ever: a terminal after Ctrl-S, a full pipe, a file on a server that is
//! gone. One thread therefore writes the lines in order. Lines that come faster than they can be
//! written are counted and dropped, so that no other thread waits before it acts.

use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use log::{LevelFilter, Log, Metadata, Record};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::sanitize::plain;

/// How many lines may wait to be written.
const LINES: usize = 1_024;

/// How long the end of the program waits for lines that are not written yet.
const FLUSH_LIMIT: Duration = Duration::from_millis(500);

static LEFT_OUT: AtomicUsize = AtomicUsize::new(0);

enum Message {
    Line(String),
    /// A request that is answered when everything before it has been written.
    Flush(Sender<()>),
}

struct Logger;

/// Writes a message as one line.
pub(crate) fn say(message: &str) {
    let line = message.replace(['\n', '\r'], " ");
    post(format!("zklock: {}", plain(&line)));
}

/// Starts to write the log of the library and the program.
pub(crate) fn log(level: LevelFilter) {
    if log::set_logger(&Logger).is_ok() {
        log::set_max_level(level);
    }
}

/// Waits until all lines are written, for at most half a second.
pub(crate) fn flush() {
    let until = Instant::now() + FLUSH_LIMIT;
    let (to, written) = bounded(1);
    let asked = lines().map(|lines| lines.send_deadline(Message::Flush(to), until));
    if let Some(Ok(())) = asked {
        let _ = written.recv_deadline(until);
    }
}

impl Log for Logger {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let level = record.level().as_str().to_lowercase();
        say(&format!("{level}: {}", record.args()));
    }

    fn flush(&self) {}
}

fn post(line: String) {
    let is_posted = match lines() {
        Some(lines) => lines.try_send(Message::Line(line)).is_ok(),
        None => accepts_a_line() && writeln!(io::stderr(), "{line}").is_ok(),
    };
    if !is_posted {
        LEFT_OUT.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns the sender to the writing thread, or `None` if the thread cannot be started.
///
/// The thread starts with the first line, and inherits the mask of blocked signals.
fn lines() -> Option<&'static Sender<Message>> {
    static LINES_OUT: OnceLock<Option<Sender<Message>>> = OnceLock::new();
    let start = || {
        let (to, lines) = bounded(LINES);
        let thread = thread::Builder::new().name("zklock-stderr".into());
        thread.spawn(move || write(&lines)).ok().map(|_| to)
    };
    LINES_OUT.get_or_init(start).as_ref()
}

/// Returns whether stderr, if it is a terminal or a pipe, takes a line without waiting.
fn accepts_a_line() -> bool {
    let stderr = io::stderr();
    let mut stderr = [PollFd::new(&stderr, PollFlags::OUT)];
    let now = Timespec::default();
    poll(&mut stderr, Some(&now)).is_ok() && stderr[0].revents() == PollFlags::OUT
}

fn write(messages: &Receiver<Message>) {
    for message in messages {
        match message {
            Message::Line(line) => drop(writeln!(io::stderr(), "{line}")),
            Message::Flush(to) => drop(to.send(())),
        }
        let count = LEFT_OUT.swap(0, Ordering::Relaxed);
        if count != 0 {
            drop(writeln!(
                io::stderr(),
                "zklock: left {count} lines out: nobody read them in time"
            ));
        }
    }
}
