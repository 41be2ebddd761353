//! A stream of events, one JSON object a line.
//!
//! One thread writes them in order. An event that cannot be written is left out, and the numbers of
//! the events show that: a pipe may have no reader, or one that does not read, and a disk may be
//! full or gone. Nothing waits for a reader, and a late reader of a pipe gets the events from then
//! on.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::point_in_time::since_1970;
use crate::stderr::say;

/// How many events may wait to be written.
const MOST: usize = 1_024;

/// How long the next step waits for an event to be written.
const FLUSH_LIMIT: Duration = Duration::from_millis(250);

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Events {
    /// Each line goes with a channel that is told when it has been written, or left out.
    to: Sender<(String, Sender<()>)>,
    next: AtomicU64,
}

impl Events {
    pub(super) fn new(path: &Path) -> Result<Self, Failure> {
        let failure = |error: io::Error| {
            let path = path.display();
            Failure::other(format!("cannot write events to {path}: {error}"))
        };
        // A pipe may get its reader later.
        match open_without_waiting(path) {
            Err(error) if Errno::from_io_error(&error) != Some(Errno::NXIO) => {
                return Err(failure(error));
            }
            _ => {}
        }
        let (to, lines) = bounded(MOST);
        let mut writer = Writer {
            path: path.to_owned(),
            pipe: None,
            is_broken: false,
            has_told: false,
        };
        let thread = thread::Builder::new().name("zklock-events".into());
        let write = move || writer.write_all(&lines);
        thread.spawn(write).map_err(failure)?;
        let next = AtomicU64::new(1);
        Ok(Self { to, next })
    }

    /// Writes an event with these values, and waits for that, but not for long.
    pub(super) fn write(&self, event: &str, mut values: Value) {
        let since = since_1970();
        values["event"] = json!(event);
        values["seq"] = json!(self.next.fetch_add(1, Ordering::Relaxed));
        values["at_ms"] = json!(u64::try_from(since.as_millis()).unwrap_or_default());
        let (written, is_written) = bounded(1);
        if self.to.try_send((format!("{values}\n"), written)).is_ok() {
            let _ = is_written.recv_timeout(FLUSH_LIMIT);
        }
    }
}

struct Writer {
    path: PathBuf,
    /// The pipe, which stays open: otherwise its reader would take each line for the last.
    pipe: Option<File>,
    /// Whether the last line is incomplete.
    is_broken: bool,
    has_told: bool,
}

impl Writer {
    fn write_all(&mut self, lines: &Receiver<(String, Sender<()>)>) {
        for (line, done) in lines {
            let written = self.write(&line);
            self.tell(written.err());
            let _ = done.send(());
        }
    }

    fn write(&mut self, line: &str) -> io::Result<()> {
        if let Some(mut pipe) = self.pipe.take() {
            match pipe.write_all(line.as_bytes()) {
                // The reader has gone; there may be another later.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                written => {
                    self.pipe = Some(pipe);
                    return written;
                }
            }
        }
        let mut file = open_without_waiting(&self.path)?;
        let is_pipe = file.metadata()?.file_type().is_fifo();
        let begin = if self.is_broken { "\n" } else { "" };
        let written = file.write_all(format!("{begin}{line}").as_bytes());
        self.is_broken = written.is_err() && !is_pipe;
        self.pipe = is_pipe.then_some(file);
        written
    }

    /// Says once that events are left out, unless a pipe's reader is only missing or slow.
    fn tell(&mut self, error: Option<io::Error>) {
        let Some(error) = error else {
            self.has_told = false;
            return;
        };
        let errno = Errno::from_io_error(&error);
        let is_reader = matches!(errno, Some(Errno::NXIO | Errno::AGAIN | Errno::PIPE));
        if !is_reader && !std::mem::replace(&mut self.has_told, true) {
            let path = self.path.display();
            say(&format!("cannot write events to {path}: {error}"));
        }
    }
}

fn open_without_waiting(path: &Path) -> io::Result<File> {
    if fs::metadata(path).is_ok_and(|found| found.is_dir()) {
        return Err(Errno::ISDIR.into());
    }
    let flags = OFlags::WRONLY
        | OFlags::APPEND
        | OFlags::CREATE
        | OFlags::NONBLOCK
        | OFlags::NOCTTY
        | OFlags::CLOEXEC;
    Ok(File::from(open(path, flags, Mode::from_raw_mode(0o644))?))
}
