//! Paths, taken apart and put together.

use alloc::string::String;

/// Returns the last part of a node's path.
pub fn name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// Returns the path of a node's directory.
pub fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// Returns the path of the node with this name in a directory.
pub fn node_in(dir: &str, name: &str) -> String {
    let mut node = String::with_capacity(dir.len() + 1 + name.len());
    node.push_str(dir);
    node.push('/');
    node.push_str(name);
    node
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
