//! The changes that the servers have committed, in order, from their transaction logs.
//!
//! A change that a quorum has logged is committed, and two of three servers are a quorum. A
//! transaction in the log of only one server may have been proposed by a leader that died.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// One change, under the number of its transaction; a transaction may have several.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Change {
    /// A node was created; if it is ephemeral, by this session.
    Created {
        path: String,
        owner: Option<i64>,
    },
    Deleted {
        path: String,
    },
    /// A session ended, with all its ephemeral nodes.
    Ended {
        session: i64,
    },
}

/// The changes of each transaction, by its number.
pub(crate) type Log = BTreeMap<i64, Vec<Change>>;

const CREATE: i32 = 1;
const DELETE: i32 = 2;
const MULTI: i32 = 14;
const CREATE2: i32 = 15;
const CREATE_CONTAINER: i32 = 19;
const DELETE_CONTAINER: i32 = 20;
const CREATE_TTL: i32 = 21;
const CLOSE_SESSION: i32 = -11;

/// Returns the changes that a quorum of the three servers with these folders has logged.
pub(crate) fn committed<P: AsRef<Path>>(folders: [P; 3]) -> Log {
    let mut seen: BTreeMap<i64, (Vec<Change>, usize)> = BTreeMap::new();
    for folder in folders {
        for (number, changes) in of_server(folder.as_ref()) {
            let (first, count) = seen.entry(number).or_insert_with(|| (changes.clone(), 0));
            assert_eq!(*first, changes, "0x{number:x} is not the same everywhere");
            *count += 1;
        }
    }
    let by_a_quorum = seen.into_iter().filter(|(_, (_, count))| 2 <= *count);
    by_a_quorum
        .map(|(number, (changes, _))| (number, changes))
        .collect()
}

fn of_server(folder: &Path) -> Log {
    let mut log = Log::new();
    for file in fs::read_dir(folder).expect("a server's log folder") {
        let path = file.expect("a file").path();
        let name = path.file_name().map(|name| name.to_string_lossy());
        if name.is_some_and(|name| name.starts_with("log.")) {
            let bytes = fs::read(&path).expect("a transaction log");
            log.extend(read(&bytes));
        }
    }
    log
}

/// Parses a log file; it ends with zeros, or in the middle of an entry if a server was killed.
fn read(bytes: &[u8]) -> Log {
    let mut log = Log::new();
    // The file begins with a magic number, a version and the database id.
    let mut rest = bytes.get(16..).unwrap_or_default();
    while let Some((entry, more)) = next(rest) {
        let mut record = Record(entry);
        if let Some((number, changes)) = record.transaction() {
            log.insert(number, changes);
        }
        rest = more;
    }
    log
}

/// Splits off the first entry: a checksum, a length, the entry, and one byte.
fn next(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = i32::from_be_bytes(bytes.get(8..12)?.try_into().ok()?);
    let end = 12 + usize::try_from(length).ok().filter(|length| 0 < *length)?;
    (*bytes.get(end)? == b'B').then(|| (&bytes[12..end], &bytes[end + 1..]))
}

struct Record<'a>(&'a [u8]);

impl<'a> Record<'a> {
    fn transaction(&mut self) -> Option<(i64, Vec<Change>)> {
        let session = self.long()?;
        self.take(4)?;
        let number = self.long()?;
        self.take(8)?;
        let kind = self.int()?;
        let mut changes = Vec::new();
        self.change(kind, session, &mut changes);
        Some((number, changes))
    }

    fn change(&mut self, kind: i32, session: i64, changes: &mut Vec<Change>) -> Option<()> {
        match kind {
            CREATE | CREATE2 => {
                let path = self.created()?;
                let owner = (self.take(1)? == [1]).then_some(session);
                changes.push(Change::Created { path, owner });
            }
            CREATE_CONTAINER | CREATE_TTL => {
                let path = self.created()?;
                changes.push(Change::Created { path, owner: None });
            }
            DELETE | DELETE_CONTAINER => changes.push(Change::Deleted { path: self.text()? }),
            CLOSE_SESSION => changes.push(Change::Ended { session }),
            MULTI => {
                for _ in 0..self.int()? {
                    let (kind, data) = (self.int()?, self.buffer()?);
                    Record(data).change(kind, session, changes);
                }
            }
            _ => {}
        }
        Some(())
    }

    /// Reads the fields with which all creations begin.
    fn created(&mut self) -> Option<String> {
        let path = self.text()?;
        self.buffer()?;
        for _ in 0..self.int()? {
            self.take(4)?;
            self.buffer()?;
            self.buffer()?;
        }
        Some(path)
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn int(&mut self) -> Option<i32> {
        Some(i32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    fn long(&mut self) -> Option<i64> {
        Some(i64::from_be_bytes(self.take(8)?.try_into().ok()?))
    }

    /// Reads bytes; the length -1 means that there are none.
    fn buffer(&mut self) -> Option<&'a [u8]> {
        let length = self.int()?;
        self.take(usize::try_from(length).unwrap_or(0))
    }

    fn text(&mut self) -> Option<String> {
        self.buffer()
            .map(|text| String::from_utf8_lossy(text).into_owned())
    }
}
