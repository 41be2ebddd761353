//! The files through which a job's command gets the state of the last run, and leaves one for the
//! next.
//!
//! They are in a folder of their own, which only this user may enter. The file to read always
//! exists, so that `cat` works in the first run too. The file to write does not: a command that
//! does not write it leaves the state that it got. The folder is deleted with [`StateFiles`]; if
//! `zklock` is killed, its keeper deletes it.

use std::env;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{self, Path, PathBuf};

use zklock_core::journal::Journal;

/// The variables that name the files.
pub(crate) const STATE_IN: &str = "ZKLOCK_STATE_IN";
pub(crate) const STATE_OUT: &str = "ZKLOCK_STATE_OUT";

/// How the folder's name begins.
const PREFIX: &str = "zklock-state-";

/// How many bytes a run may leave for the next one.
const MOST: usize = Journal::LONGEST_STATE;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct StateFiles {
    folder: PathBuf,
}

impl StateFiles {
    /// Creates the folder, and the file with the state of the last run.
    pub(crate) fn make(state: &[u8]) -> io::Result<Self> {
        let id = uuid::Uuid::new_v4().simple();
        // The command may go to another folder, and the keeper is in another one.
        let folder = path::absolute(temporary().join(format!("{PREFIX}{id}")))?;
        DirBuilder::new().mode(0o700).create(&folder)?;
        let made = Self { folder };
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600);
        file.open(made.input())?.write_all(state)?;
        Ok(made)
    }

    /// Returns the variables of the command.
    pub(crate) fn variables(&self) -> [(&'static str, OsString); 2] {
        [
            (STATE_IN, self.input().into()),
            (STATE_OUT, self.output().into()),
        ]
    }

    /// Returns the state that the command has left for the next run; `None` if it has written nothing.
    pub(crate) fn left(&self) -> io::Result<Option<Vec<u8>>> {
        let file = self.output();
        // Reading a pipe, for example, would never end.
        let found = match fs::symlink_metadata(&file) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            found => found?,
        };
        if !found.is_file() {
            return Err(io::Error::other("it is no file"));
        }
        if (MOST as u64) < found.len() {
            return Err(io::Error::other(format!(
                "it has {} bytes, and a record has room for {MOST}: keep them elsewhere, and leave the name of that place",
                found.len()
            )));
        }
        fs::read(file).map(Some)
    }

    fn input(&self) -> PathBuf {
        self.folder.join("in")
    }

    fn output(&self) -> PathBuf {
        self.folder.join("out")
    }
}

impl Drop for StateFiles {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            log::warn!("cannot remove {}: {error}", self.folder.display());
        }
    }
}

/// Returns the folder for temporary files. An empty `TMPDIR` names none, as for mktemp(1).
pub(crate) fn temporary() -> PathBuf {
    let folder = env::temp_dir();
    match folder.as_os_str().is_empty() {
        true => "/tmp".into(),
        false => folder,
    }
}

/// Removes the files of a `zklock` that was killed, which the variables of its command name.
pub(crate) fn remove_what_is_left() {
    let file = env::var_os(STATE_OUT).map(PathBuf::from);
    let Some(folder) = file.as_deref().and_then(Path::parent) else {
        return;
    };
    let name = folder.file_name().map(|name| name.to_string_lossy());
    if name.is_some_and(|name| name.starts_with(PREFIX)) {
        drop(fs::remove_dir_all(folder));
    }
}
