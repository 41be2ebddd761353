//! Where the file is, and how it is read and replaced.
//!
//! node_exporter reads every file of its folder whose name ends with `.prom`, at any moment. A name
//! with this end is therefore a file's, and any other a folder's, in which each lock has a file.

use std::fmt::Write as _;
use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;

/// The end of the names that node_exporter reads.
const END: &str = "prom";

/// Where a file's name that is made of a path is cut; file systems accept 255 bytes.
const LONGEST: usize = 200;

/// More than a page has.
const ENOUGH: u64 = 64 * 1024;

/// How long to wait between two checks whether another process has ended its turn, and how often to check.
const PAUSE: Duration = Duration::from_millis(2);
const TRIES: usize = 50;

/// Returns the file for this lock; `None` if the place is empty, as a variable may be.
pub(super) fn file(place: &Path, lock: &str) -> Option<PathBuf> {
    if place.as_os_str().is_empty() {
        return None;
    }
    Some(match place.extension() {
        Some(end) if end == END => place.to_owned(),
        _ => place.join(name(lock)),
    })
}

/// Returns a name that no other lock has: slashes become dots, and a byte that is not a letter,
/// digit, `-` or `_` becomes its hexadecimal number.
fn name(lock: &str) -> String {
    let mut name = "zklock".to_owned();
    for byte in lock.bytes() {
        match byte {
            b'/' => name.push('.'),
            b'-' | b'_' => name.push(byte.into()),
            byte if byte.is_ascii_alphanumeric() => name.push(byte.into()),
            byte => drop(write!(name, "%{byte:02X}")),
        }
    }
    if LONGEST < name.len() {
        name.truncate(LONGEST);
        let _ = write!(name, "~{:016x}", hash(lock));
    }
    format!("{name}.{END}")
}

/// Returns the hash FNV-1a, which is the same on all machines.
fn hash(text: &str) -> u64 {
    let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, fold)
}

/// Returns the content of a file; empty if it cannot be read.
pub(super) fn read(file: &Path) -> String {
    let mut text = String::new();
    if fs::symlink_metadata(file).is_ok_and(|found| found.is_file()) {
        let read = File::open(file).and_then(|file| file.take(ENOUGH).read_to_string(&mut text));
        if read.is_err() {
            text.clear();
        }
    }
    text
}

/// Keeps other processes from reading a file of this folder in order to replace it, until the
/// returned lock is dropped. Does not wait for a process that is stopped meanwhile.
pub(super) fn turn(file: &Path) -> Option<OwnedFd> {
    let folder = file.parent().filter(|it| !it.as_os_str().is_empty());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = open(
        folder.unwrap_or_else(|| Path::new(".")),
        flags,
        Mode::empty(),
    )
    .ok()?;
    for _ in 0..TRIES {
        match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK | Errno::INTR) => thread::sleep(PAUSE),
            _ => break,
        }
    }
    Some(folder)
}

/// Replaces the file atomically by one that other users may read: node_exporter is one of them.
pub(super) fn replace(file: &Path, text: &str) -> io::Result<()> {
    let mut beside = file.as_os_str().to_owned();
    beside.push(format!(".{}", uuid::Uuid::new_v4().simple()));
    let beside = PathBuf::from(beside);
    let made = write(&beside, text).and_then(|()| fs::rename(&beside, file));
    if made.is_err() {
        drop(fs::remove_file(&beside));
    }
    made
}

fn write(file: &Path, text: &str) -> io::Result<()> {
    let mut file = File::create_new(file)?;
    file.write_all(text.as_bytes())?;
    file.set_permissions(Permissions::from_mode(0o644))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_lock_has_a_file_of_its_own_in_a_folder() {
        let of = |place, lock| file(Path::new(place), lock).map(|file| file.display().to_string());
        let table = [
            ("/m/a.prom", "/jobs/x", "/m/a.prom"),
            ("/m", "/jobs/night-ly_1", "/m/zklock.jobs.night-ly_1.prom"),
            ("/m", "/a.b", "/m/zklock.a%2Eb.prom"),
            ("m/", "/a, /é%", "m/zklock.a%2C%20.%C3%A9%25.prom"),
        ];
        for (place, lock, expected) in table {
            assert_eq!(of(place, lock).as_deref(), Some(expected));
        }
        assert_eq!(of("", "/a"), None);
        let [one, other] = ["x", "y"].map(|end| name(&format!("/{}{end}", "é".repeat(300))));
        assert!(one != other && one.len() < 255, "{one}");
    }
}
