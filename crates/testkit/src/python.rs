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
        install(&environment, &python, packages);
        fs::write(installed, all).expect("remembering what is installed");
    }
    python
}

fn install(environment: &Path, python: &Path, packages: &[&str]) {
    run(Command::new("python3")
        .args(["-m", "venv", "--without-pip", "--clear"])
        .arg(environment));
    // A pip of 22.3 or newer installs for other environments; to make one for each takes seconds.
    let mut pip = vec!["python3".as_ref(), "-m".as_ref(), "pip".as_ref()];
    pip.extend(["--python".as_ref(), python.as_os_str()]);
    let works = Command::new("python3")
        .args(&pip[1..])
        .arg("--version")
        .output();
    if !works.is_ok_and(|works| works.status.success()) {
        run(Command::new(python).args(["-m", "ensurepip"]));
        pip = vec![python.as_os_str(), "-m".as_ref(), "pip".as_ref()];
    }
    // Python compiles a module when it is first used, and most modules are never used.
    run(Command::new(pip[0])
        .args(&pip[1..])
        .args(["install", "--quiet", "--no-compile"])
        .args(packages));
}
