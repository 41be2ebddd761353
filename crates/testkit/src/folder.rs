//! Folders for the files of tests.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// A folder for temporary files, removed with its content.
#[derive(Debug)]
pub struct Folder(pub(crate) PathBuf);

impl Folder {
    pub fn new() -> Self {
        let name = format!("zklock-test-{:016x}", fastrand::u64(..));
        let folder = env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("making a temporary folder");
        Self(folder)
    }

    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}
