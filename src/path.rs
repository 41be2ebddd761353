//! The paths that can name a lock.

use crate::error::{Error, Result};
use zklock_jute::is_refused_in_paths;

pub(crate) use zklock_core::path::{name, parent};

/// Checks that `root` can have locks below it: like [`check`], but `/` passes too.
pub(crate) fn check_root(root: &str) -> Result<()> {
    match root {
        "/" => Ok(()),
        root => check(root),
    }
}

/// Checks that `path` can name a lock: any path that ZooKeeper accepts, except the
/// root and ZooKeeper's own nodes.
pub(crate) fn check(path: &str) -> Result<()> {
    let Some(rule) = broken_rule(path) else {
        return Ok(());
    };
    Err(Error::BadPath {
        path: path.to_owned(),
        rule,
    })
}

fn broken_rule(path: &str) -> Option<&'static str> {
    let Some(rest) = path.strip_prefix('/') else {
        return Some(match path {
            "" => "it is empty; write an absolute path such as /locks/report",
            _ => "it does not begin with '/'; write an absolute path such as /locks/report",
        });
    };
    if rest.is_empty() {
        return Some("the root cannot be a lock; name a node below it");
    }
    if rest.ends_with('/') {
        return Some("it ends with '/'; leave that out");
    }
    let mut parts = rest.split('/');
    if parts.any(str::is_empty) {
        return Some("it has an empty part ('//'); write one '/'");
    }
    if rest.split('/').any(|part| matches!(part, "." | "..")) {
        return Some("it has a part that is '.' or '..'; write the path in full");
    }
    if rest == "zookeeper" || rest.starts_with("zookeeper/") {
        return Some("/zookeeper belongs to the server; use another path");
    }
    rest.chars()
        .any(is_refused_in_paths)
        .then_some("it has a NUL, control, private or emoji character; leave that out")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::support::fuzz;
    use zklock_core::path::ancestors;

    #[test]
    fn what_zookeeper_accepts_is_accepted() {
        for path in [
            "/a",
            "/locks/nightly report",
            "/a/.../b",
            "/a/.b",
            "/é/λ",
            "/zookeepers",
        ] {
            assert_eq!(check(path), Ok(()), "{path}");
        }
    }

    #[test]
    fn every_broken_rule_is_named() {
        #[rustfmt::skip]
        let table = [
            ("",           "empty"),
            ("locks",      "begin"),
            ("/",          "root"),
            ("/a/",        "ends"),
            ("//a",        "//"),
            ("/a//b",      "//"),
            ("/a/./b",     "'.'"),
            ("/a/..",      "'..'"),
            ("/a\0",       "NUL"),
            ("/a\nb",      "control"),
            ("/a\u{7f}",   "control"),
            ("/a\u{e000}", "private"),
            ("/a\u{1f600}", "emoji"),
            ("/zookeeper/quota", "server"),
        ];
        for (path, word) in table {
            let error = check(path).unwrap_err();
            assert!(matches!(&error, Error::BadPath { path: named, .. } if named == path));
            assert!(error.to_string().contains(word), "{error}");
        }
    }

    #[test]
    fn a_path_is_taken_apart() {
        assert_eq!((parent("/a/b/c"), name("/a/b/c")), ("/a/b", "c"));
        assert_eq!(ancestors("/a/b/c").collect::<Vec<_>>(), ["/a", "/a/b"]);
        assert_eq!(ancestors("/a").count(), 0);
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn a_path_with_mistakes_names_a_lock_or_is_refused_with_a_rule(
            path in fuzz::texts(
                &["/a", "/locks/nightly report", "/é/λ/.b/...", "/zookeepers"],
                &["/", "//", "/.", "/..", ".", "\0", "\n", "\u{7f}", "\u{f000}", "\u{fffe}", "zookeeper"],
            ),
        ) {
            match check(&path) {
                Ok(()) => {
                    let names: Vec<_> = path.split('/').skip(1).collect();
                    prop_assert!(names.iter().all(|name| !matches!(*name, "" | "." | "..")));
                    prop_assert_eq!(ancestors(&path).count(), names.len() - 1);
                    prop_assert_eq!(name(&path), *names.last().unwrap());
                }
                Err(error) => {
                    let shown = error.to_string();
                    prop_assert!(!shown.contains(char::is_control), "{:?}", shown);
                    prop_assert!(shown.len() < 200 + 12 * path.len());
                }
            }
        }

        #[test]
        fn no_path_makes_the_check_panic(path in "\\PC*|[/.a\\x00]*") {
            let _ = check(&path);
        }
    }
}
