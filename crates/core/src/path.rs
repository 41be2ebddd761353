//! Paths, taken apart.

/// Returns the last part of a node's path.
pub fn name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// Returns the path of a node's directory.
pub fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// Returns the paths above `path`, outermost first.
pub fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/')
        .map(|(at, _)| &path[..at])
        .filter(|path| !path.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_taken_apart() {
        assert_eq!((parent("/a/b"), name("/a/b")), ("/a", "b"));
        assert_eq!((parent("/a"), name("/a")), ("", "a"));
        assert!(ancestors("/a/b/c").eq(["/a", "/a/b"]));
    }
}
