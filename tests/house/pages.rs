//! The links of the pages lead to files and headings that exist, and their tests exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

/// Names that look like those of tests, but are not.
const OTHER_NAMES: [&str; 5] = [
    "innodb_flush_log_at_trx_commit",
    "skip_on_exit_code",
    "test_request_queuing_session_recovered",
    "waited_for_since_ms",
    "zk_digest_mismatches_count",
];

#[test]
fn links_lead_to_files_and_headings_that_are_there() {
    let pages = pages();
    let mut broken = Vec::new();
    for (page, text) in &pages {
        let links = text.split("](").skip(1);
        for link in links.filter_map(|rest| rest.split(')').next()) {
            // These are links to other sites, and to items of the documentation.
            if link.contains("://") || link.contains("::") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => page.clone(),
                file => flat(&page.parent().expect("a folder").join(file)),
            };
            let headings = || headings(pages.get(&target).map_or("", String::as_str));
            if !target.exists() || !heading.is_empty() && !headings().contains(heading) {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn tests_that_are_named_exist() {
    let code = code();
    let mut missing = Vec::new();
    for (page, text) in pages() {
        let words = text.split('`').skip(1).step_by(2);
        let is_sentence = |word: &&str| {
            let parts: Vec<_> = word.split('_').collect();
            let is_word = |part: &&str| {
                let mut chars = part.chars();
                !part.is_empty() && chars.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
            };
            3 < parts.len() && parts[0] != "zklock" && parts.iter().all(is_word)
        };
        for name in words.filter(is_sentence) {
            if !OTHER_NAMES.contains(&name) && !code.contains(&format!("fn {name}(")) {
                missing.push(format!("{}: {name}", page.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// There is a panel for each name that `src/metrics.rs` gives to the recorder, and for no other.
#[test]
fn the_dashboard_shows_the_metrics_that_there_are() {
    let code = fs::read_to_string("src/metrics.rs").expect("it is there");
    let board = fs::read_to_string("docs/grafana.json").expect("it is there");
    let board: serde_json::Value = serde_json::from_str(&board).expect("JSON");
    let panels = board["panels"].as_array().expect("panels");
    let queries = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().expect("targets"))
        .map(|target| target["expr"].as_str().expect("a query"));
    let shown: BTreeSet<_> = queries.flat_map(metrics).collect();
    let there: BTreeSet<_> = metrics(&code).collect();
    assert!(9 < there.len(), "{there:?}");
    assert_eq!(shown, there);
}

/// The README, and the documentation of the library, name every feature of the library, and no other.
#[test]
fn the_pages_name_the_features_that_there_are() {
    let text = |path: &str| fs::read_to_string(path).expect("it is there");
    let first_words = |text: &str, from: &str, to: &str, end: &str| -> BTreeSet<String> {
        let (_, section) = text.split_once(from).expect("a section of features");
        let section = section.split(to).next().expect("its text");
        let words = section.lines().filter_map(|line| {
            let (word, _) = line.trim_start_matches("//! ").split_once(end)?;
            Some(word.trim_start_matches("| `").to_owned())
        });
        words.filter(|word| !word.contains(' ')).collect()
    };
    let mut there = first_words(&text("Cargo.toml"), "\n[features]\n", "\n[", " = ");
    assert!(there.remove("default"));
    assert!(5 < there.len(), "{there:?}");
    for page in ["README.md", "src/lib.rs"] {
        let named = first_words(&text(page), "# Features\n", "\n#", "` |");
        assert_eq!(named, there, "{page}");
    }
}

/// Checks how many crates of others a program builds, as the README says.
#[cfg(target_os = "linux")]
#[test]
fn the_readme_counts_the_crates() {
    let readme = fs::read_to_string("README.md").expect("it is there");
    for (arguments, what) in [
        (&[][..], "crates by default"),
        (&["--no-default-features"][..], "crates without it"),
    ] {
        let mut cargo = Command::new(env!("CARGO"));
        cargo
            .args("tree --offline --edges normal --prefix none".split(' '))
            .args(arguments);
        let tree = cargo.output().expect("cargo");
        assert!(tree.status.success(), "{tree:?}");
        let tree = String::from_utf8(tree.stdout).expect("text");
        let crates = tree.lines().map(|line| line.trim_end_matches(" (*)"));
        let others = crates.filter(|name| !name.starts_with("zklock"));
        let crates = others.collect::<BTreeSet<_>>().len();
        assert!(
            readme.contains(&format!("{crates} {what}")),
            "{crates} {what}"
        );
    }
}

/// Returns the pages that people read, by their paths.
fn pages() -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    for folder in [".", "docs"] {
        for entry in fs::read_dir(folder).expect("it is there").flatten() {
            let path = flat(&entry.path());
            if path.extension().is_some_and(|extension| extension == "md") {
                let text = fs::read_to_string(&path).expect("text");
                all.insert(path, text);
            }
        }
    }
    assert!(15 < all.len(), "{:?}", all.keys());
    all
}

/// Returns all code, including tests.
fn code() -> String {
    let mut code = String::new();
    let mut open = ["crates", "src", "tests"].map(PathBuf::from).to_vec();
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).expect("it is there").flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                code += &fs::read_to_string(&path).expect("text");
            }
        }
    }
    code
}

/// Returns the path without `.` and `..`.
fn flat(path: &Path) -> PathBuf {
    let mut flat = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                flat.pop();
            }
            part => flat.push(part),
        }
    }
    flat
}

/// Returns the names by which links refer to the headings of a page.
fn headings(text: &str) -> BTreeSet<String> {
    let titles = text.lines().filter(|line| line.starts_with('#'));
    let slug = |title: &str| {
        let title = title.trim_start_matches('#').trim().to_lowercase();
        let kept = title
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    titles.map(slug).collect()
}

/// Returns the names of metrics in a text, without the endings that the exporter adds.
fn metrics(text: &str) -> impl Iterator<Item = String> {
    let names = text.match_indices("zklock_").map(|(at, _)| {
        let name = &text[at..];
        let end = name.find(|c: char| !c.is_ascii_lowercase() && c != '_');
        let (name, rest) = name.split_at(end.unwrap_or(name.len()));
        // This is a crate of ours, not a metric.
        let name = if rest.starts_with("::") {
            "zklock_"
        } else {
            name
        };
        let added = ["_sum", "_count", "_bucket"];
        let bare = added.iter().find_map(|end| name.strip_suffix(end));
        bare.unwrap_or(name).to_owned()
    });
    names.filter(|name| name != "zklock_")
}
