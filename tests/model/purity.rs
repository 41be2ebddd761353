//! The protocol is pure: this searches its sources for what the lint of `src/recipe` cannot see.

use std::fs;
use std::path::Path;

/// Words that have no place in code that decides from values alone.
const BANNED: [&str; 23] = [
    "static ",
    "thread_local!",
    "std::env",
    "std::fs",
    "std::io",
    "std::net",
    "std::process",
    "std::sync",
    "std::thread",
    "std::cell",
    "Instant",
    "SystemTime",
    "Moment",
    "Atomic",
    "parking_lot",
    "crossbeam",
    "fastrand",
    "rustix",
    "uuid::",
    "unsafe",
    "include_str!",
    "log::",
    "mysql",
];

/// What may be imported from the rest of the library: plain values.
const IMPORTS: [&str; 3] = ["crate::recipe", "crate::jute::Names", "super::"];

#[test]
fn what_is_decided_is_decided_from_values_alone() {
    // The simulation compiles this, too, from a folder below.
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources = here.ancestors().map(|folder| folder.join("src/recipe"));
    let root = sources.find(|folder| folder.is_dir()).expect("the core");
    let mut found = Vec::new();
    let read = look_through(&root, &mut found);
    assert!(15 <= read, "only {read} files were read");
    assert_eq!(found, [""; 0]);
}

#[test]
fn impure_code_is_found() {
    for code in [
        "static COUNT: u64 = 0;",
        "let now = std::time::Instant::now();",
        "use crate::time::clock::Moment;",
        "use crate::session::Session;",
        "let path = std::env::var_os(\"PATH\");",
        "use std::sync::{Arc, Mutex};",
        "pub(crate) static mut LAST: u64 = 0;",
        "let id = crate::session::fresh_id();",
    ] {
        assert!(offence(code).is_some(), "{code}");
    }
    for code in [
        "pub fn library(self) -> &'static str {",
        "/// Moments are durations.",
        "use crate::recipe::name::NodeName;",
        "use crate::jute::Names;",
    ] {
        assert_eq!(offence(code), None, "{code}");
    }
}

/// Reads the sources below a folder, but for their tests; returns how many there were.
fn look_through(folder: &Path, found: &mut Vec<String>) -> usize {
    let mut read = 0;
    for entry in fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("it can be read").path();
        if path.is_dir() {
            // Tests may use randomness; their folders hold nothing else.
            if !path.ends_with("tests") {
                read += look_through(&path, found);
            }
            continue;
        }
        if path.ends_with("tests.rs") || path.extension().is_none_or(|it| it != "rs") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("it can be read");
        let code = text
            .split("#[cfg(test)]\nmod tests {")
            .next()
            .unwrap_or_default();
        for (nth, line) in code.lines().enumerate() {
            if let Some(word) = offence(line) {
                found.push(format!("{}:{}: {word}", path.display(), nth + 1));
            }
        }
        read += 1;
    }
    read
}

/// What is wrong with a line of code.
fn offence(line: &str) -> Option<&str> {
    let code = line.trim_start();
    if code.starts_with("//") {
        return None;
    }
    // The lifetime `'static` is not a static variable.
    let plain = code.replace("&'static ", "&");
    let banned = BANNED.into_iter().find(|word| plain.contains(word));
    banned.or_else(|| {
        let mut paths = code.match_indices("crate::").map(|(at, _)| &code[at..]);
        paths.find(|path| !IMPORTS.iter().any(|import| path.starts_with(import)))
    })
}
