//! The highest fencing token seen so far, for storage that cannot compare tokens itself.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::system::sync::Mutex;
use crate::token::FencingToken;

/// The highest token seen so far, in memory or in a file; lower tokens are refused.
///
/// For a service or a folder that is written to under a lock. A database compares tokens itself, as
/// [the guide](crate::guide::fencing) shows, and data in ZooKeeper needs none.
///
/// One `Highest` belongs to one lock: tokens of other paths and other ensembles are unrelated.
///
/// # Example
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zklock::embedded::Server::start()?;
/// # let client = zklock::Client::connect(server.hosts())?;
/// use zklock::fence::Highest;
///
/// let folder = std::env::temp_dir().join(format!("report-{}", std::process::id()));
/// std::fs::create_dir_all(&folder)?;
/// let report = folder.join("report.txt");
/// let highest = Highest::in_file(folder.join("report.token"));
///
/// let mutex = client.mutex("/locks/report")?;
/// let paused = mutex.lock()?.fencing_token(); // and then its machine sleeps
/// let newer = mutex.lock()?.fencing_token();
///
/// highest.write(newer, || std::fs::write(&report, "by the new holder"))??;
/// let late = highest.write(paused, || std::fs::write(&report, "by the old one"));
/// assert!(matches!(late, Err(zklock::Error::Stale { .. })));
/// assert_eq!(std::fs::read_to_string(&report)?, "by the new holder");
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Highest(Kept);

#[derive(Debug)]
enum Kept {
    InMemory(Mutex<Option<FencingToken>>),
    InFile {
        path: PathBuf,
        /// The token that this process knows to be on the disk.
        safe: Mutex<Option<FencingToken>>,
    },
}

impl Highest {
    /// Keeps the highest token in memory: for a service that is one process.
    ///
    /// The token is forgotten when the process ends: a service that restarts accepts the first
    /// token that it sees, whatever it is.
    pub fn in_memory() -> Self {
        Self(Kept::InMemory(Mutex::new(None)))
    }

    /// Keeps the highest token in a file. The file does not have to exist yet; its folder does.
    ///
    /// A symbolic link stands for the file that it points to. Next to that file there is one with
    /// the suffix `.lock`, through which processes wait for each other, and for a moment one with
    /// `.new`. This excludes the processes of one machine, and of all machines where the file
    /// system forwards such locks, as NFS does.
    pub fn in_file(path: impl Into<PathBuf>) -> Self {
        Self(Kept::InFile {
            path: path.into(),
            safe: Mutex::new(None),
        })
    }

    /// Runs `write` unless a higher token was seen before; none is accepted while it runs.
    ///
    /// The token is recorded before `write` begins, whatever its outcome: on the disk, if it is
    /// kept in a file. An old holder is therefore also refused after a write that failed halfway.
    /// The highest token may write again.
    ///
    /// Blocks while another thread's or process's `write` runs, and needs no server. A `write` that
    /// calls this again, on the same `Highest` or file, waits for itself.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Stale`] if a higher token was seen: stop, a later holder has been at
    /// work. Fails with [`Error::Fence`] if the file cannot be read or written; `write` was not run
    /// then.
    pub fn write<T>(&self, token: FencingToken, write: impl FnOnce() -> T) -> Result<T> {
        match &self.0 {
            Kept::InMemory(highest) => {
                let mut highest = highest.lock();
                admit(token, *highest)?;
                *highest = Some(token);
                Ok(write())
            }
            Kept::InFile { path, safe } => {
                let failed = |error: io::Error| Error::Fence {
                    file: path.display().to_string(),
                    reason: reason(path, &error),
                };
                let path = resolve(path).map_err(failed)?;
                // The lock lasts until its file is closed, at the end.
                let _lock = lock(&path).map_err(failed)?;
                let highest = read(&path).map_err(failed)?;
                admit(token, highest)?;
                // Another process may have died, or failed, between the rename and the write to the disk.
                if highest != Some(token) || *safe.lock() != highest {
                    remember(&path, token).map_err(failed)?;
                    *safe.lock() = Some(token);
                }
                Ok(write())
            }
        }
    }
}

fn reason(path: &Path, error: &io::Error) -> String {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() && !folder.exists() => {
            format!("create the folder {} first", folder.display())
        }
        _ => error.to_string(),
    }
}

fn admit(token: FencingToken, highest: Option<FencingToken>) -> Result<()> {
    match highest {
        Some(highest) if token < highest => Err(Error::Stale { token, highest }),
        _ => Ok(()),
    }
}

/// Follows symbolic links: a rename would replace the link, and a caller with another name for the
/// file would find another token. A dangling link is an error.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && !path.is_symlink() => {
            Ok(path.to_owned())
        }
        resolved => resolved,
    }
}

/// Appends `ending` to the name of a file.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

fn lock(path: &Path) -> io::Result<File> {
    let options = File::options().create(true).append(true).clone();
    let file = options.open(beside(path, ".lock"))?;
    lock_exclusively(&file)?;
    Ok(file)
}

#[cfg(unix)]
fn lock_exclusively(file: &File) -> io::Result<()> {
    use rustix::fs::{FlockOperation, flock};
    use rustix::io::retry_on_intr;

    retry_on_intr(|| flock(file, FlockOperation::LockExclusive))?;
    Ok(())
}

#[cfg(not(unix))]
fn lock_exclusively(_: &File) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

fn read(path: &Path) -> io::Result<Option<FencingToken>> {
    match fs::read_to_string(path) {
        Ok(text) => match text.trim().parse::<i64>() {
            Ok(token) => Ok(Some(token.into())),
            // The file is another program's, or was damaged by a failing disk.
            Err(_) => {
                let begin: String = text.chars().take(40).collect();
                let what = format!(
                    "it has {begin:?}, which is no token: name a file of its own, or write the last token into it"
                );
                Err(io::Error::other(what))
            }
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes the token atomically: whenever the machine fails, the file has it or its earlier content.
fn remember(path: &Path, token: FencingToken) -> io::Result<()> {
    let new = beside(path, ".new");
    let mut file = File::create(&new)?;
    writeln!(file, "{token}")?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or_else(|| Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicI64, Ordering};
    use std::thread;

    use super::*;
    use crate::support::zookeeper::Folder;

    fn both(test: impl Fn(Highest)) {
        test(Highest::in_memory());
        let folder = Folder::new();
        test(Highest::in_file(folder.path("token")));
    }

    fn token(number: i64) -> FencingToken {
        number.into()
    }

    #[test]
    fn a_lower_token_writes_nothing() {
        both(|highest| {
            for (number, accepted) in [(5, true), (5, true), (4, false), (9, true), (5, false)] {
                let told = highest.write(token(number), || number);
                match accepted {
                    true => assert_eq!(told, Ok(number)),
                    false => {
                        let (token, highest) = (
                            token(number),
                            token(number.max(5) + 4 * i64::from(number == 5)),
                        );
                        let stale = Error::Stale { token, highest };
                        assert_eq!(told, Err(stale));
                    }
                }
            }
        });
    }

    #[test]
    fn a_write_that_panics_has_shut_older_ones_out() {
        both(|highest| {
            let write = || highest.write(token(7), || panic!("a full disk"));
            assert!(catch_unwind(AssertUnwindSafe(write)).is_err());
            assert!(highest.write(token(6), || ()).is_err());
            assert!(highest.write(token(7), || ()).is_ok());
        });
    }

    #[test]
    fn no_two_write_at_a_time_and_none_after_a_higher_one() {
        both(|highest| {
            let last = AtomicI64::new(0);
            thread::scope(|scope| {
                for first in 1..5 {
                    let (highest, last) = (&highest, &last);
                    scope.spawn(move || {
                        for number in (first..200).step_by(4) {
                            // The write is refused if another thread was faster.
                            let _ = highest.write(token(number), || {
                                let before = last.swap(number, Ordering::Relaxed);
                                assert!(before < number, "{before} came before {number}");
                            });
                        }
                    });
                }
            });
            assert_eq!(last.into_inner(), 199);
        });
    }

    #[test]
    #[cfg(unix)]
    fn a_file_has_one_token_by_whatever_name() {
        use std::os::unix::fs::symlink;
        let folder = Folder::new();
        let (file, link, elsewhere) =
            (folder.path("token"), folder.path("link"), folder.path("to"));
        symlink(&file, &link).expect("a link");
        let nowhere = Highest::in_file(&link).write(token(5), || ());
        assert!(matches!(nowhere, Err(Error::Fence { .. })), "{nowhere:?}");
        assert_eq!(Highest::in_file(&file).write(token(5), || ()), Ok(()));
        assert_eq!(Highest::in_file(&link).write(token(9), || ()), Ok(()));
        assert!(link.is_symlink());
        symlink(folder.path(""), &elsewhere).expect("a link");
        for name in [file, link, elsewhere.join("token"), elsewhere.join("link")] {
            let late = Highest::in_file(&name).write(token(5), || ());
            assert!(
                matches!(late, Err(Error::Stale { .. })),
                "{name:?}: {late:?}"
            );
        }
    }

    #[test]
    #[cfg(unix)]
    fn what_another_process_left_is_put_on_the_disk_once() {
        use std::os::unix::fs::MetadataExt;
        let folder = Folder::new();
        let path = folder.path("token");
        fs::write(&path, "7\n").expect("a file");
        let number = || fs::metadata(&path).expect("a file").ino();
        let (highest, left) = (Highest::in_file(&path), number());
        assert_eq!(highest.write(token(7), || ()), Ok(()));
        let safe = number();
        assert_ne!(left, safe);
        assert_eq!(highest.write(token(7), || ()), Ok(()));
        assert_eq!(safe, number());
    }

    #[test]
    fn a_file_is_found_again_and_one_that_is_none_is_told() {
        let folder = Folder::new();
        let path = folder.path("token");
        assert_eq!(Highest::in_file(&path).write(token(7), || 1), Ok(1));
        assert!(Highest::in_file(&path).write(token(6), || ()).is_err());
        fs::write(&path, "seven").expect("a file");
        let told = Highest::in_file(&path).write(token(8), || ()).unwrap_err();
        assert!(
            told.to_string()
                .contains("it has \"seven\", which is no token"),
            "{told}"
        );
        let nowhere = Highest::in_file(folder.path("none/token"));
        assert!(matches!(
            nowhere.write(token(1), || ()),
            Err(Error::Fence { .. })
        ));
    }
}
