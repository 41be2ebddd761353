//! The chroot: the prefix of every path that the server sends.

use zklock_jute::Reply;

/// Strips the root from a path that the server sent; returns `None` if the path is not below it.
pub(super) fn below<'a>(root: &str, path: &'a str) -> Option<&'a str> {
    match path.strip_prefix(root)? {
        "" => Some("/"),
        path if path.starts_with('/') => Some(path),
        _ => None,
    }
}

/// Strips the root from the paths in a reply.
pub(super) fn strip(root: &str, reply: &mut Reply) {
    if root.is_empty() {
        return;
    }
    let strip = |path: &mut String| {
        if let Some(inner) = below(root, path) {
            *path = inner.to_owned();
        }
    };
    match reply {
        Reply::Created { path, .. } | Reply::Synced { path } => strip(path),
        Reply::Ephemerals(paths) => paths.iter_mut().for_each(strip),
        Reply::Multi(results) => {
            let replies = results.iter_mut().flatten();
            replies.for_each(|reply| self::strip(root, reply));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_taken_off() {
        for (root, path, inner) in [
            ("", "/a", Some("/a")),
            ("/app", "/app", Some("/")),
            ("/app", "/app/a", Some("/a")),
            ("/app", "/apple", None),
            ("/app", "/other", None),
        ] {
            assert_eq!(below(root, path), inner, "{path} below {root}");
        }
        let mut reply = Reply::Created {
            path: "/app/a".to_owned(),
            stat: None,
        };
        strip("/app", &mut reply);
        let path = "/a".to_owned();
        assert_eq!(reply, Reply::Created { path, stat: None });
    }
}
