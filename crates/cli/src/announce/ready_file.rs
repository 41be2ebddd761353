//! A file that exists while the command runs.
//!
//! It contains the path of the lock's node, so that a process that removes it after a kill knows
//! whose it is.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process;

use crate::failure::Failure;
use crate::stderr::say;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct ReadyFile {
    path: PathBuf,
}

impl ReadyFile {
    /// Removes the file of an earlier process, and checks whether the file can be created.
    pub(super) fn new(path: &Path) -> Result<Self, Failure> {
        let file = Self {
            path: path.to_owned(),
        };
        let is_other = fs::symlink_metadata(path).is_ok_and(|found| !found.is_file());
        if is_other {
            let path = path.display();
            return Err(Failure::usage(format!(
                "--ready-file {path} is there and is no file: name one that zklock may make and remove"
            )));
        }
        // A file with its own name would say for a moment that this machine is active.
        let beside = file.beside();
        let tried = write_anew(&beside, "\n").and_then(|()| fs::remove_file(&beside));
        let tried = tried.and_then(|()| gone(fs::remove_file(path)));
        tried.map_err(|error| {
            drop(fs::remove_file(&beside));
            let path = path.display();
            Failure::other(format!("cannot make the file {path}: {error}"))
        })?;
        Ok(file)
    }

    /// Creates the file together with its content.
    pub(super) fn make(&self, node: &str) {
        let beside = self.beside();
        let made = write_anew(&beside, &format!("{node}\n"));
        if let Err(error) = made.and_then(|()| fs::rename(&beside, &self.path)) {
            drop(fs::remove_file(&beside));
            let path = self.path.display();
            say(&format!("active, and cannot make the file {path}: {error}"));
        }
    }

    pub(super) fn remove(&self) {
        if let Err(error) = gone(fs::remove_file(&self.path)) {
            let path = self.path.display();
            say(&format!(
                "not active, and cannot remove the file {path}: {error}"
            ));
        }
    }

    /// Removes the file of a process that was killed and had this node, from another process.
    pub(crate) fn remove_after_kill(path: &Path, node: &str) {
        let whose = fs::read_to_string(path).unwrap_or_default();
        if !node.is_empty() && whose.trim_end() == node {
            drop(fs::remove_file(path));
        }
    }

    fn beside(&self) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{}", process::id()));
        name.into()
    }
}

/// Replaces what has this name, and follows no link: in /tmp anybody may have put one there.
fn write_anew(file: &Path, text: &str) -> io::Result<()> {
    gone(fs::remove_file(file))?;
    File::create_new(file)?.write_all(text.as_bytes())
}

/// Treats a missing file as removed.
fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
