//! Which locks a command needs.

use crate::args::Run;
use crate::failure::Failure;

/// The locks, in the order of their paths.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) parts: Vec<Part>,
}

/// A path, and whether its lock is shared.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) path: String,
    pub(crate) shared: bool,
}

impl Wanted {
    pub(crate) fn by(run: &Run) -> Result<Self, Failure> {
        let part = |path: &String, shared| Part {
            path: path.clone(),
            shared,
        };
        let named = [&run.path].into_iter().chain(&run.others);
        let mut parts: Vec<_> = named
            .map(|path| part(path, run.shared))
            .chain(run.read.iter().map(|path| part(path, true)))
            .collect();
        parts.sort_by(|one, other| one.path.cmp(&other.path));
        if 1 < parts.len() && run.permits.is_some() {
            return Err(Failure::usage(
                "--permits is for one path: a permit is not acquired together with other locks",
            ));
        }
        if 1 < parts.len() && run.write {
            return Err(Failure::usage(
                "--write is for one path: several locks are mutexes and readers",
            ));
        }
        if let Some(two) = parts.windows(2).find(|two| two[0].path == two[1].path) {
            let path = &two[0].path;
            return Err(Failure::usage(format!(
                "{path} is named twice: once will do"
            )));
        }
        Ok(Self { parts })
    }

    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().map(|part| part.path.as_str())
    }

    /// Returns the only lock, if there are no others.
    pub(crate) fn single(&self) -> Option<&Part> {
        match &self.parts[..] {
            [part] => Some(part),
            _ => None,
        }
    }

    /// Returns the path of the lock that has this node.
    pub(crate) fn path_of(&self, node: &str) -> &str {
        let has_it = |path: &&str| {
            let rest = node.strip_prefix(*path);
            rest.is_some_and(|rest| rest.starts_with('/'))
        };
        let path = self.paths().filter(has_it).max_by_key(|path| path.len());
        path.unwrap_or_else(|| &self.parts[0].path)
    }

    /// Returns the paths, one a line.
    pub(crate) fn lines(&self) -> String {
        self.paths().collect::<Vec<_>>().join("\n")
    }

    /// Returns the paths, for messages.
    pub(crate) fn name(&self) -> String {
        self.paths().collect::<Vec<_>>().join(", ")
    }
}
