//! A Python that has kazoo.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::run;

/// The version of kazoo that the tables of `docs/interop.md` are about.
const KAZOO: &str = "kazoo==2.11.0";

/// Installs kazoo below `folder`, the first time, and returns the Python that has it.
pub(crate) fn python(folder: &Path) -> PathBuf {
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
        run(Command::new(&python).args(["-m", "pip", "install", "--quiet", KAZOO]));
        fs::write(installed, "").expect("remembering that kazoo is installed");
    }
    python
}
