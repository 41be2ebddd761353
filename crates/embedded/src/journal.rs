//! The log in a data folder.
//!
//! Every change is in the log before anybody learns of it, by one write without an fsync: what was answered
//! outlives the process, however that ends, but not a crash of the machine. An entry is its length, the
//! beginning of its SHA-1, and its content. A write that the end of the process has cut short leaves the
//! beginning of an entry, which nobody was told of; it is removed at the next start. The log is read as a
//! whole then, and never gets shorter.

use std::fs::{self, File};
use std::io::{self, Read, Write as _};
use std::path::Path;

use sha1::{Digest, Sha1};

use super::entry::Entry;

/// The length of an entry, and the beginning of its hash.
const HEAD: usize = 12;

/// Entries are shorter than 128 MB, so the first byte of a length is below this one. No text begins so.
const FIRST_BYTE: u8 = 8;

const NO_ENTRY: &str = "this is no entry: look whether the file is another program's";

#[derive(Debug)]
pub(super) struct Journal {
    file: File,
}

impl Journal {
    /// Opens the log, and returns what is in it.
    pub(super) fn open(folder: &Path) -> io::Result<(Self, Vec<Entry>)> {
        fs::create_dir_all(folder)?;
        let mut options = File::options();
        options.create(true).read(true).append(true);
        // The log contains the passwords of sessions.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(folder.join("log"))?;
        lock(&file)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let (entries, whole) = entries(&bytes)?;
        if whole < bytes.len() {
            file.set_len(u64::try_from(whole).unwrap_or(u64::MAX))?;
        }
        Ok((Self { file }, entries))
    }

    pub(super) fn append(&mut self, entry: &Entry) -> io::Result<()> {
        let content = entry.encode();
        let length = u32::try_from(content.len()).map_err(io::Error::other)?;
        let bytes = [&length.to_be_bytes()[..], &sum(&content), &content].concat();
        self.file.write_all(&bytes)
    }
}

impl Drop for Journal {
    /// Unlocks the file, because a child process that another thread is about to start may have it open, too.
    fn drop(&mut self) {
        unlock(&self.file);
    }
}

/// Returns the entries of a log, and the length of those that are whole.
fn entries(bytes: &[u8]) -> io::Result<(Vec<Entry>, usize)> {
    let (mut entries, mut whole) = (Vec::new(), 0);
    while let Some((head, rest)) = bytes[whole..].split_first_chunk::<HEAD>() {
        let (length, hash) = (length(head), &head[4..]);
        let damaged = |why| damaged(whole, why);
        let Some(content) = rest.get(..length) else {
            if !Entry::may_begin_with(rest) {
                return Err(damaged(NO_ENTRY.to_owned()));
            }
            // Nothing is behind a write that was cut short.
            if (0..rest.len()).any(|at| begins_with_entry(&rest[at..])) {
                return Err(damaged("its length is another".to_owned()));
            }
            break;
        };
        if sum(content) != hash {
            return Err(damaged("its hash is another".to_owned()));
        }
        entries.push(Entry::decode(content).map_err(|error| damaged(error.to_string()))?);
        whole += HEAD + length;
    }
    match bytes.get(whole) {
        Some(first) if FIRST_BYTE <= *first => Err(damaged(whole, NO_ENTRY.to_owned())),
        _ => Ok((entries, whole)),
    }
}

fn damaged(at: usize, why: String) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the log is damaged at byte {at}: {why}"),
    )
}

fn begins_with_entry(bytes: &[u8]) -> bool {
    bytes
        .split_first_chunk::<HEAD>()
        .is_some_and(|(head, rest)| {
            let content = rest.get(..length(head));
            content
                .is_some_and(|content| Entry::decode(content).is_ok() && sum(content) == head[4..])
        })
}

fn length(head: &[u8; HEAD]) -> usize {
    let length = head[..4].iter();
    length.fold(0, |sum, byte| sum << 8 | usize::from(*byte))
}

fn sum(content: &[u8]) -> [u8; 8] {
    let mut sum = [0; 8];
    sum.copy_from_slice(&Sha1::digest(content)[..8]);
    sum
}

/// Keeps other servers out of the folder until it is unlocked, or the process has ended.
#[cfg(unix)]
fn lock(file: &File) -> io::Result<()> {
    use rustix::fs::{FlockOperation, flock};
    flock(file, FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| io::Error::new(io::ErrorKind::ResourceBusy, "another server has it"))
}

#[cfg(unix)]
fn unlock(file: &File) {
    use rustix::fs::{FlockOperation, flock};
    let _ = flock(file, FlockOperation::Unlock);
}

#[cfg(not(unix))]
fn lock(_: &File) -> io::Result<()> {
    Ok(())
}

#[cfg(not(unix))]
fn unlock(_: &File) {}
