//! The layout of the source: imports go one way, without cycles.
//!
//! The tests read every path that begins with `crate::`, `super::` or `self::` in a crate, outside
//! of tests, and check it against a table of which room may import which. A room is a folder of
//! `src`, or a crate of its own; the files at the top are the nouns that users know, and the leaves
//! among them. `pages` checks where the pages lead.

mod names;
mod pages;
mod sizes;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// The rooms that each room may import, besides itself.
const ROOMS: [(&str, &[&str]); 17] = [
    // These are crates of their own.
    ("jute", &[]),
    ("core", &[]),
    ("gssapi", &[]),
    ("play", &[]),
    ("system", &[]),
    ("time", &["system"]),
    ("leaves", &["system", "time"]),
    ("local", &["system", "time"]),
    ("transport", &["leaves", "system", "time", "local"]),
    (
        "session",
        &["leaves", "system", "time", "local", "transport"],
    ),
    (
        "lock",
        &["leaves", "system", "time", "local", "transport", "session"],
    ),
    (
        "nouns",
        &[
            "leaves",
            "system",
            "time",
            "local",
            "transport",
            "session",
            "lock",
        ],
    ),
    ("embedded", &[]),
    ("mysql", &["leaves", "system", "time", "local", "nouns"]),
    ("sim", &["system"]),
    // This sees only what users see.
    ("cli", &[]),
    ("lib", &["nouns", "leaves", "transport"]),
];

/// The crates: the name of each here, its folder, and its first file.
const TREES: [(&str, &str, &str); 7] = [
    ("lib", "src", "lib"),
    ("cli", "crates/cli/src", "main"),
    ("core", "crates/core/src", "lib"),
    ("embedded", "crates/embedded/src", "lib"),
    ("gssapi", "crates/gssapi/src", "lib"),
    ("jute", "crates/jute/src", "lib"),
    ("play", "crates/play/src", "lib"),
];

/// The files at the top that import no other noun.
const LEAVES: [&str; 11] = [
    "acl",
    "error",
    "fence",
    "guard",
    "histogram",
    "hold",
    "metrics",
    "owner",
    "path",
    "token",
    "transaction",
];

/// The most files that the walk along one `lock()` may name: all that a reader has to open.
const WALK: usize = 32;

/// A file, and the crate that it is part of.
type Node = (&'static str, String);

#[test]
fn no_file_imports_one_that_imports_it() {
    let imports = imports();
    let reached: BTreeMap<_, _> = imports
        .keys()
        .map(|file| (file, reach(&imports, file)))
        .collect();
    let mut circles = Vec::new();
    for (from, all) in &imports {
        let back = all.iter().filter(|to| reached[to].contains(from));
        circles.extend(back.map(|to| format!("{} imports {}", from.1, to.1)));
    }
    assert!(circles.is_empty(), "in circles: {circles:#?}");
}

#[test]
fn no_room_imports_one_that_stands_above_it() {
    let mut upward = Vec::new();
    for (from, to) in imports()
        .into_iter()
        .flat_map(|(from, all)| all.into_iter().map(move |to| (from.clone(), to)))
    {
        let (here, there) = (room(&from), room(&to));
        let allowed = ROOMS.iter().find(|(name, _)| *name == here);
        let allowed = allowed.unwrap_or_else(|| panic!("{here} is no room"));
        if here != there && !allowed.1.contains(&there.as_str()) {
            upward.push(format!("{} imports {}", from.1, to.1));
        }
    }
    assert!(upward.is_empty(), "against the table: {upward:#?}");
}

#[test]
fn only_one_folder_names_the_zookeeper_crate() {
    for (file, text) in sources("src") {
        let inside = file.starts_with("src/transport/zookeeper_crate/");
        // `Client::from_zookeeper` takes a type of that crate.
        if !inside && file != "src/client.rs" {
            let names_it = |(at, _): (usize, &str)| {
                let before = text[..at].chars().next_back();
                before.is_none_or(|c| !c.is_alphanumeric() && !"_:".contains(c))
            };
            assert!(!text.match_indices("zookeeper::").any(names_it), "{file}");
        }
    }
}

/// Code that waits, reads the clock or draws random numbers has two implementations, one of which
/// can be repeated.
#[test]
fn nothing_is_taken_from_the_system_past_the_layer() {
    // These do not run in the simulation.
    const EXEMPT: [&str; 3] = [
        "src/mysql/",
        "src/system/",
        "src/transport/zookeeper_crate/",
    ];
    const BANNED: [&str; 16] = [
        "parking_lot::",
        "crossbeam_channel::",
        "std::sync::Mutex",
        "std::sync::mpsc",
        "Instant::now",
        ".elapsed()",
        "SystemTime::now",
        "std::process",
        "rustix::system",
        "thread::scope",
        "thread::Builder",
        "std::thread::sleep",
        "std::thread::park",
        "std::net::TcpStream",
        "ToSocketAddrs",
        "Uuid::new_v4",
    ];
    let mut past = Vec::new();
    for (file, text) in sources("src") {
        if EXEMPT.iter().any(|exempt| file.starts_with(exempt)) {
            continue;
        }
        let named = BANNED.iter().filter(|name| text.contains(**name));
        past.extend(named.map(|name| format!("{file} names {name}")));
    }
    assert!(past.is_empty(), "{past:#?}");
}

/// Without `std`, only a static could keep state that no value shows.
#[test]
fn what_decides_keeps_its_state_in_values() {
    for (file, text) in sources("crates/core/src") {
        let is_static = |line: &str| line.replace("&'static", "&").contains("static ");
        assert!(!text.lines().any(is_static), "{file}");
        let std = ["std::", "extern crate std"];
        assert!(!std.iter().any(|std| text.contains(std)), "{file}");
    }
    let lib = fs::read_to_string("crates/core/src/lib.rs").expect("it is there");
    assert!(lib.contains("#![cfg_attr(not(test), no_std)]"));
}

/// The walk in CONTRIBUTING names the files through which one `lock()` and the steps after it go.
#[test]
fn the_walk_through_the_house_is_short_and_along_files_that_exist() {
    let text = fs::read_to_string("CONTRIBUTING.md").expect("it is there");
    let all = text.split("## One `lock()`").nth(1).expect("a walk");
    let walk = all.split("\n## ").next().expect("an end");
    let files = |part: &str| -> BTreeSet<String> {
        part.split('`')
            .filter(|word| word.contains("src/") && word.ends_with(".rs"))
            .map(str::to_owned)
            .collect()
    };
    let steps = files(walk).len();
    assert!((10..=WALK).contains(&steps), "{steps}");
    for file in files(all) {
        assert!(Path::new(&file).is_file(), "{file}");
    }
}

fn reach(imports: &BTreeMap<Node, BTreeSet<Node>>, from: &Node) -> BTreeSet<Node> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from.clone()];
    while let Some(file) = open.pop() {
        for next in imports.get(&file).into_iter().flatten() {
            if reached.insert(next.clone()) {
                open.push(next.clone());
            }
        }
    }
    reached
}

fn room((tree, file): &Node) -> String {
    if *tree != "lib" {
        return (*tree).to_owned();
    }
    let path = file.trim_start_matches("src/");
    match path.split_once('/') {
        // Each of these folders belongs to one noun.
        Some((
            "builder" | "client" | "contender" | "job" | "mutex" | "queues" | "rwlock"
            | "semaphore" | "shards",
            _,
        )) => "nouns".to_owned(),
        Some((folder, _)) if LEAVES.contains(&folder) => "leaves".to_owned(),
        Some((folder, _)) => folder.to_owned(),
        None if path == "lib.rs" => "lib".to_owned(),
        None if LEAVES.contains(&path.trim_end_matches(".rs")) => "leaves".to_owned(),
        None => "nouns".to_owned(),
    }
}

/// Returns which file names something in which other file.
fn imports() -> BTreeMap<Node, BTreeSet<Node>> {
    let mut all = BTreeMap::new();
    for (tree, root, main) in TREES {
        let sources = sources(root);
        let modules: BTreeMap<_, _> = sources
            .iter()
            .map(|(file, _)| (module_of(file, root, main), file.clone()))
            .collect();
        for (file, text) in &sources {
            let here = module_of(file, root, main);
            let named = paths(text).into_iter().filter_map(|path| {
                let path = absolute(&here, &path)?;
                let known = (0..=path.len())
                    .rev()
                    .find_map(|end| modules.get(&path[..end]));
                known.filter(|known| *known != file).cloned()
            });
            let named = named.map(|file| (tree, file)).collect();
            all.insert((tree, file.clone()), named);
        }
    }
    assert!(100 < all.len(), "the sources are there");
    all
}

fn module_of(file: &str, root: &str, main: &str) -> Vec<String> {
    let path = file.trim_start_matches(root).trim_start_matches('/');
    let path = path.trim_end_matches(".rs").trim_end_matches("/mod");
    if path == main {
        return Vec::new();
    }
    path.split('/').map(str::to_owned).collect()
}

fn absolute(here: &[String], path: &[String]) -> Option<Vec<String>> {
    let (first, rest) = path.split_first()?;
    let mut base = match first.as_str() {
        "crate" => Vec::new(),
        "self" => here.to_vec(),
        "super" => here[..here.len().checked_sub(1)?].to_vec(),
        _ => return None,
    };
    let mut rest = rest;
    while let Some((first, more)) = rest.split_first().filter(|(first, _)| *first == "super") {
        assert_eq!(first, "super");
        base.pop();
        rest = more;
    }
    base.extend(rest.iter().cloned());
    Some(base)
}

/// Returns every path that begins in the crate or in this file's modules, with `use` groups split.
fn paths(text: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let children = text.lines().filter_map(|line| {
        let (_, name) = line.strip_suffix(';')?.split_once("mod ")?;
        Some(format!("{name}::"))
    });
    let starts = ["crate::", "self::", "super::"].map(str::to_owned);
    for start in starts.into_iter().chain(children) {
        for (at, _) in text.match_indices(&start) {
            let before = text[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || "_$:".contains(c)) {
                continue;
            }
            let mut base = Vec::new();
            if !["crate::", "self::", "super::"].contains(&start.as_str()) {
                base.push("self".to_owned());
            }
            expand(&text[at..], &mut base, &mut found);
        }
    }
    found
}

/// Parses one path, or a group of them, and returns the rest.
fn expand<'a>(text: &'a str, base: &mut Vec<String>, found: &mut Vec<Vec<String>>) -> &'a str {
    let depth = base.len();
    let mut rest = text;
    loop {
        let end = rest
            .find(|c: char| !c.is_alphanumeric() && c != '_')
            .unwrap_or(rest.len());
        if 0 < end {
            base.push(rest[..end].to_owned());
        }
        rest = &rest[end..];
        match rest.strip_prefix("::") {
            Some(more) => rest = more,
            None => break,
        }
        if let Some(mut group) = rest.strip_prefix('{') {
            loop {
                group = group.trim_start_matches([',', ' ', '\n']);
                if let Some(after) = group.strip_prefix('}') {
                    base.truncate(depth);
                    return after;
                }
                let left = expand(group, base, found);
                // This is not a path, but for example a star.
                group = if left.len() == group.len() {
                    &group[1..]
                } else {
                    left
                };
            }
        }
    }
    if base.last().is_some_and(|last| last == "self") && 1 < base.len() {
        base.pop();
    }
    found.push(base.clone());
    base.truncate(depth);
    rest
}

/// The attributes of a module of tests: of all tests, of those that need the real system, and of
/// those that need the simulated one.
const TEST_MODULES: [&str; 3] = [
    "#[cfg(test)]\nmod ",
    "#[cfg(all(test, not(zklock_sim)))]\nmod ",
    "#[cfg(all(test, zklock_sim))]\nmod ",
];

/// Returns the files below a folder with their text, without comments and tests.
fn sources(root: &str) -> Vec<(String, String)> {
    let mut files = Vec::new();
    let mut tests = BTreeSet::new();
    let mut open = vec![PathBuf::from(root)];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).expect("it can be read") {
            let path = entry.expect("it can be read").path();
            if path.is_dir() && !path.ends_with("tests") {
                open.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                let text = fs::read_to_string(&path).expect("it is UTF-8");
                let folder = match path.file_stem().and_then(OsStr::to_str) {
                    Some("lib" | "main" | "mod") => path.with_file_name(""),
                    _ => path.with_extension(""),
                };
                let of_tests = TEST_MODULES.iter().flat_map(|cfg| text.split(cfg).skip(1));
                let names = of_tests.filter_map(|rest| Some(rest.split_once(';')?.0));
                tests.extend(names.map(|name| folder.join(name)));
                files.push((path, product(&text)));
            }
        }
    }
    let is_test = |path: &Path| {
        tests
            .iter()
            .any(|test| path.with_extension("").starts_with(test))
    };
    files.retain(|(path, _)| !is_test(path));
    let shown = files
        .into_iter()
        .map(|(path, text)| (path.display().to_string(), text));
    shown.collect()
}

fn product(text: &str) -> String {
    // Tests come last in a file, or are in files of their own.
    let text = text
        .split("\n#[cfg(test)]\nmod tests {")
        .next()
        .unwrap_or(text);
    let lines = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    lines.fold(String::new(), |all, line| all + line + "\n")
}

#[test]
fn the_reader_of_paths_sees_what_is_imported() {
    let text = "use crate::a::{self, b::{C, D}, E};\nlet x = super::f(); // crate::no\n";
    let mut seen: Vec<_> = paths(&product(text))
        .iter()
        .map(|path| path.join("::"))
        .collect();
    seen.sort();
    // A comment after code is read as code, which does no harm.
    seen.retain(|path| path != "crate::no");
    let expected = [
        "crate::a",
        "crate::a::E",
        "crate::a::b::C",
        "crate::a::b::D",
        "super::f",
    ];
    assert_eq!(seen, expected);
}
