//! The history of a run, as recorded by every process.
//!
//! Each process has a file of its own and adds one line for each event. The times are of the
//! clock that counts suspend, which all processes of one machine share, so the files of a run
//! can be merged into one history.

use std::fmt::{self, Write as _};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

/// Nanoseconds since the machine started.
pub(crate) type Time = u64;

/// Returns the current time.
pub(crate) fn now() -> Time {
    use rustix::time::{ClockId, clock_gettime};

    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

pub(crate) fn nanos(duration: Duration) -> Time {
    duration.as_nanos() as u64
}

/// A client process; one that is killed is replaced by the next life in the same slot.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct Process {
    pub(crate) slot: usize,
    pub(crate) life: usize,
}

/// The kind of lock that a call asks for.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Kind {
    Exclusive,
    Read,
    /// One of this many permits.
    Permit(usize),
}

/// One line of a history.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Entry {
    pub(crate) at: Time,
    /// The client process concerned.
    pub(crate) who: Process,
    /// The number of the operation within its process, or 0.
    pub(crate) op: usize,
    pub(crate) what: What,
}

/// An event of a history.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum What {
    /// A call that takes a lock began; if it has a limit, it must return within the limit.
    Request {
        kind: Kind,
        paths: Vec<String>,
        limit: Option<Duration>,
    },
    /// The call waits behind another client, with a node of this session.
    Queued { session: i64 },
    /// The call returned a guard, with these tokens, one per path; permits have none.
    Granted { session: i64, tokens: Vec<i64> },
    /// The call returned no guard: `timeout`, or the message of the error.
    Refused { why: String },
    /// `check()` was called at this time and passed.
    Valid,
    /// `check()` has failed by this time.
    Lost,
    /// The guard's channel reported this.
    Told { event: String },
    /// The guard is about to be released.
    Release,
    /// The guard was released; whether the release was confirmed as held to the end.
    Released { well: bool },
    /// The store was asked to write under this token, and accepted or refused.
    Write {
        path: String,
        token: i64,
        accepted: bool,
    },
    /// The process was stopped with SIGSTOP.
    Paused,
    /// The process was resumed.
    Resumed,
    /// The process was killed.
    Died,
    /// Something was broken.
    Fault { text: String },
    /// Everything that was broken has been mended.
    Healed,
    /// At the end of the run this node still existed.
    Leftover { node: String },
    /// The data of a server differs from that of the others, as its log says.
    Diverged { text: String },
}

/// The process of entries that concern no client.
pub(crate) const NOBODY: Process = Process {
    slot: usize::MAX,
    life: 0,
};

/// A file that one process writes.
#[derive(Debug)]
pub(crate) struct Journal {
    who: Process,
    file: Mutex<File>,
}

impl Journal {
    pub(crate) fn open(path: &Path, who: Process) -> Self {
        let file = File::options().create(true).append(true).open(path);
        let file = Mutex::new(file.expect("opening a history file"));
        Self { who, file }
    }

    /// Records that something happens now.
    pub(crate) fn note(&self, op: usize, what: What) {
        self.note_at(now(), op, what);
    }

    pub(crate) fn note_at(&self, at: Time, op: usize, what: What) {
        let who = self.who;
        self.enter(&Entry { at, who, op, what });
    }

    /// Records what another process did, or what was done to it.
    pub(crate) fn note_of(&self, who: Process, op: usize, what: What) {
        let at = now();
        self.enter(&Entry { at, who, op, what });
    }

    fn enter(&self, entry: &Entry) {
        // The line is one write, so that a kill does not leave half of it.
        let line = format!("{entry}\n");
        let mut file = self.file.lock().expect("a history file");
        file.write_all(line.as_bytes()).expect("writing history");
    }
}

/// Reads all history files of a folder, in order of time.
pub(crate) fn read(folder: &Path) -> Vec<Entry> {
    let mut entries = Vec::new();
    for file in fs::read_dir(folder).expect("a folder with history files") {
        let path = file.expect("a history file").path();
        if path.extension().is_some_and(|name| name == "history") {
            let text = fs::read_to_string(&path).expect("reading a history file");
            entries.extend(text.lines().map(|line| {
                parse(line).unwrap_or_else(|| panic!("no history: {line:?} in {path:?}"))
            }));
        }
    }
    entries.sort_by_key(|entry| entry.at);
    entries
}

/// Parses a history as [`Entry`]'s `Display` writes it.
pub(crate) fn parse_all(text: &str) -> Vec<Entry> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines
        .map(|line| parse(line).unwrap_or_else(|| panic!("no history: {line:?}")))
        .collect()
}

fn parse(line: &str) -> Option<Entry> {
    let mut words = line.splitn(5, ' ');
    let at = words.next()?.parse().ok()?;
    let who = parse_process(words.next()?)?;
    let op = words.next()?.parse().ok()?;
    let what = parse_what(words.next()?, words.next().unwrap_or(""))?;
    Some(Entry { at, who, op, what })
}

fn parse_process(word: &str) -> Option<Process> {
    if word == "-" {
        return Some(NOBODY);
    }
    let (slot, life) = word.strip_prefix('c')?.split_once('.')?;
    let (slot, life) = (slot.parse().ok()?, life.parse().ok()?);
    Some(Process { slot, life })
}

fn parse_what(verb: &str, rest: &str) -> Option<What> {
    let words: Vec<_> = rest.split(' ').collect();
    Some(match (verb, words.as_slice()) {
        ("request", [kind, paths, limit]) => What::Request {
            kind: parse_kind(kind)?,
            paths: paths.split(',').map(str::to_owned).collect(),
            limit: limit.parse().ok().map(Duration::from_millis),
        },
        ("queued", [session]) => What::Queued {
            session: session.parse().ok()?,
        },
        ("granted", [session, tokens @ ..]) => What::Granted {
            session: session.parse().ok()?,
            tokens: tokens
                .iter()
                .flat_map(|tokens| tokens.split(','))
                .flat_map(str::parse)
                .collect(),
        },
        ("refused", _) => What::Refused { why: rest.into() },
        ("valid", _) => What::Valid,
        ("lost", _) => What::Lost,
        ("told", [event]) => What::Told {
            event: (*event).to_owned(),
        },
        ("release", _) => What::Release,
        ("released", [well]) => What::Released {
            well: *well == "well",
        },
        ("write", [path, token, said]) => What::Write {
            path: (*path).to_owned(),
            token: token.parse().ok()?,
            accepted: *said == "accepted",
        },
        ("paused", _) => What::Paused,
        ("resumed", _) => What::Resumed,
        ("died", _) => What::Died,
        ("fault", _) => What::Fault { text: rest.into() },
        ("healed", _) => What::Healed,
        ("leftover", [node]) => What::Leftover {
            node: (*node).to_owned(),
        },
        ("diverged", _) => What::Diverged { text: rest.into() },
        _ => return None,
    })
}

fn parse_kind(word: &str) -> Option<Kind> {
    match word {
        "exclusive" => Some(Kind::Exclusive),
        "read" => Some(Kind::Read),
        _ => word.strip_prefix("permit-")?.parse().ok().map(Kind::Permit),
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            NOBODY => f.write_char('-'),
            Self { slot, life } => write!(f, "c{slot}.{life}"),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exclusive => f.write_str("exclusive"),
            Self::Read => f.write_str("read"),
            Self::Permit(of) => write!(f, "permit-{of}"),
        }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, who, op, what } = self;
        write!(f, "{at} {who} {op} {what}")
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request { kind, paths, limit } => {
                let limit = limit.map_or("-".to_owned(), |limit| limit.as_millis().to_string());
                write!(f, "request {kind} {} {limit}", paths.join(","))
            }
            Self::Queued { session } => write!(f, "queued {session}"),
            Self::Granted { session, tokens } => {
                let tokens: Vec<_> = tokens.iter().map(i64::to_string).collect();
                write!(f, "granted {session} {}", tokens.join(","))
            }
            Self::Refused { why } => write!(f, "refused {why}"),
            Self::Valid => f.write_str("valid"),
            Self::Lost => f.write_str("lost"),
            Self::Told { event } => write!(f, "told {event}"),
            Self::Release => f.write_str("release"),
            Self::Released { well } => {
                write!(f, "released {}", if *well { "well" } else { "lost" })
            }
            Self::Write {
                path,
                token,
                accepted,
            } => {
                let said = if *accepted { "accepted" } else { "stale" };
                write!(f, "write {path} {token} {said}")
            }
            Self::Paused => f.write_str("paused"),
            Self::Resumed => f.write_str("resumed"),
            Self::Died => f.write_str("died"),
            Self::Fault { text } => write!(f, "fault {text}"),
            Self::Healed => f.write_str("healed"),
            Self::Leftover { node } => write!(f, "leftover {node}"),
            Self::Diverged { text } => write!(f, "diverged {text}"),
        }
    }
}
