//! A Python that has kazoo.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::run;

/// The version of kazoo that the tables of `docs/interop.md` are about.
const KAZOO: &str = "kazoo==2.11.0";

/// What kazoo's own tests are run with.
const SUITE: [&str; 3] = ["objgraph", "pytest", "pytest-timeout"];

/// Installs kazoo below `folder`, the first time, and returns the Python that has it.
pub(crate) fn python(folder: &Path) -> PathBuf {
    install(folder, &[KAZOO])
}

/// As [`python`], of kazoo's source package, with what its own tests need.
pub(crate) fn python_with_suite(folder: &Path) -> PathBuf {
    let packages = [&["--no-binary", "kazoo", KAZOO], &SUITE[..]].concat();
    install(folder, &packages)
}

fn install(folder: &Path, packages: &[&str]) -> PathBuf {
    let environment = folder.join("venv");
    let python = environment.join("bin/python");
    let installed = environment.join(KAZOO);
    // Test binaries may run side by side, and each may be the first.
    let lock = File::create(folder.join("venv.lock")).expect("making a lock file");
    lock.lock().expect("locking a file");
    if !installed.exists() {
        run(Command::new("python3")
            .args(["-m", "venv", "--clear"])
            .arg(&environment));
        run(Command::new(&python)
            .args(["-m", "pip", "install", "--quiet"])
            .args(packages));
        fs::write(installed, "").expect("remembering that kazoo is installed");
    }
    python
}
