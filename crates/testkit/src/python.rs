//! Pythons with packages, in environments of their own.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{FlockOperation, flock};

use super::run;

/// Installs packages below `folder` the first time; returns the Python that has them.
pub fn with(folder: &Path, packages: &[&str]) -> PathBuf {
    let environment = folder.join("venv");
    let python = environment.join("bin/python");
    let (installed, all) = (environment.join("installed"), packages.join(" "));
    // Test binaries may run side by side, and each may be the first.
    let lock = File::create(folder.join("venv.lock")).expect("making a lock file");
    flock(&lock, FlockOperation::LockExclusive).expect("locking a file");
    if fs::read_to_string(&installed).ok().as_ref() != Some(&all) {
        run(Command::new("python3")
            .args(["-m", "venv", "--clear"])
            .arg(&environment));
        // Python compiles a module when it is first used, and most modules are never used.
        run(Command::new(&python)
            .args(["-m", "pip", "install", "--quiet", "--no-compile"])
            .args(packages));
        fs::write(installed, all).expect("remembering what is installed");
    }
    python
}
