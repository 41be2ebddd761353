//! Paths: which are valid, and what is above them.

use zklock_jute::{ErrorCode, is_refused_in_paths};

type Result<T> = std::result::Result<T, ErrorCode>;

/// Returns the path of the parent, which need not exist; fails without a slash.
pub(super) fn parent(path: &str) -> Result<&str> {
    match path.rsplit_once('/') {
        Some((above, _)) if !path.contains('\0') => Ok(if above.is_empty() { "/" } else { above }),
        _ => Err(ErrorCode::BAD_ARGUMENTS),
    }
}

/// Returns the last name in the path.
pub(super) fn name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// Returns the path of a child.
pub(super) fn join(directory: &str, name: &str) -> String {
    let slash = if directory.ends_with('/') { "" } else { "/" };
    format!("{directory}{slash}{name}")
}

/// Returns the path itself and all paths above it, up to the root.
pub(super) fn upwards(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |&below| match below {
        "/" => None,
        _ => parent(below).ok(),
    })
}

/// Fails unless a node may have the path.
pub(super) fn validate(path: &str) -> Result<()> {
    let names = path.strip_prefix('/').ok_or(ErrorCode::BAD_ARGUMENTS)?;
    let sound =
        |name: &str| !matches!(name, "" | "." | "..") && !name.contains(is_refused_in_paths);
    if names.is_empty() || names.split('/').all(sound) {
        Ok(())
    } else {
        Err(ErrorCode::BAD_ARGUMENTS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_valid_as_zookeeper_has_it() {
        for good in ["/", "/a", "/a/b-0000000001", "/a.b/..c", "/ä"] {
            assert_eq!(validate(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "a",
            "//",
            "/a/",
            "/a//b",
            "/./a",
            "/a/..",
            "/\u{1}",
            "/\u{1f600}",
        ] {
            assert_eq!(validate(bad), Err(ErrorCode::BAD_ARGUMENTS), "{bad:?}");
        }
    }

    #[test]
    fn the_way_up_ends_at_the_root() {
        assert_eq!(upwards("/a/b").collect::<Vec<_>>(), ["/a/b", "/a", "/"]);
        assert_eq!(upwards("/").collect::<Vec<_>>(), ["/"]);
        assert_eq!(upwards("").collect::<Vec<_>>(), [""]);
        assert_eq!(join("/", "a"), "/a");
        assert_eq!(join("/a", "b"), "/a/b");
    }
}
