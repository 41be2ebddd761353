//! The names of a directory's children, in two allocations.
//!
//! A listing of a long queue is read, searched once and dropped, so five thousand names must not take five
//! thousand allocations.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// Names, in the order of their arrival.
#[derive(Clone, Default, Eq, Hash, PartialEq)]
pub struct Names {
    text: String,
    /// The end of each name, where the next one begins.
    ends: Vec<usize>,
}

impl Names {
    /// Creates an empty list, with room for `count` names that have `bytes` bytes together.
    pub fn with_capacity(count: usize, bytes: usize) -> Self {
        Self {
            text: String::with_capacity(bytes),
            ends: Vec::with_capacity(count),
        }
    }

    /// Adds a name after the others.
    pub fn push(&mut self, name: &str) {
        self.text.push_str(name);
        self.ends.push(self.text.len());
    }

    /// Returns the number of names.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether there are no names.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the names, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &str> + Clone {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let name = &self.text[start..*end];
            start = *end;
            name
        })
    }

    /// Returns all names but these.
    #[must_use]
    pub fn without(&self, left_out: &[&str]) -> Self {
        let is_left = |name: &&str| !left_out.contains(name);
        self.iter().filter(is_left).collect()
    }

    /// Returns whether `name` is one of the names.
    pub fn contains(&self, name: &str) -> bool {
        self.iter().any(|other| other == name)
    }
}

impl<S: AsRef<str>> FromIterator<S> for Names {
    fn from_iter<I: IntoIterator<Item = S>>(all: I) -> Self {
        let mut names = Self::default();
        all.into_iter().for_each(|name| names.push(name.as_ref()));
        names
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_as_they_were_put_in() {
        let all = ["", "lock-0000000001", "é", ""];
        let names: Names = all.iter().collect();
        assert_eq!(names.iter().collect::<Vec<_>>(), all);
        assert_eq!(names.len(), 4);
        assert!(names.contains("é") && !names.contains("lock"));
        assert!(Names::default().is_empty());
    }
}
