//! A Python that has kazoo.

use std::path::{Path, PathBuf};

use super::python;

/// The version of kazoo that the tables of `docs/interop.md` are about.
const KAZOO: &str = "kazoo==2.11.0";

/// The packages with which kazoo's own tests run.
const SUITE: [&str; 3] = ["objgraph", "pytest", "pytest-timeout"];

/// Installs kazoo below `folder` the first time; returns the Python that has it.
pub fn python(folder: &Path) -> PathBuf {
    python::with(folder, &[KAZOO])
}

/// As [`python()`], with kazoo's source package and the packages that its own tests need.
pub fn python_with_suite(folder: &Path) -> PathBuf {
    let packages = [&["--no-binary", "kazoo", KAZOO], &SUITE[..]].concat();
    python::with(folder, &packages)
}
