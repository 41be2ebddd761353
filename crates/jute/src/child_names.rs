//! The names of a directory's children, in two allocations.
//!
//! A listing of a long queue is read, searched once and dropped, so five thousand names must not take five
//! thousand allocations.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// The most bytes that a list keeps and no name needs: more than the stat that may follow the names.
const SPARE: usize = 256;

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

    /// Gives back the room that no name needs. One reply may have many lists, and each was read with room for
    /// all that follows it.
    pub(super) fn fit(&mut self) {
        if SPARE < self.text.capacity() - self.text.len() {
            self.text.shrink_to_fit();
        }
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
    use crate::{ErrorCode, OpCode, Reply, ReplyHeader};

    #[test]
    fn names_come_back_as_they_were_put_in() {
        let all = ["", "lock-0000000001", "é", ""];
        let names: Names = all.iter().collect();
        assert_eq!(names.iter().collect::<Vec<_>>(), all);
        assert_eq!(names.len(), 4);
        assert!(names.contains("é") && !names.contains("lock"));
        assert!(Names::default().is_empty());
    }

    #[test]
    fn the_lists_of_one_reply_take_no_more_than_its_bytes() {
        let one = || {
            let (names, stat) = (["a"].iter().collect(), None);
            Ok(Reply::Children { names, stat })
        };
        let header = ReplyHeader {
            xid: 1,
            zxid: 1,
            code: ErrorCode::OK,
        };
        let mut frame = Vec::new();
        header.encode(
            Some(&Reply::Multi((0..2000).map(|_| one()).collect())),
            &mut frame,
        );
        let Ok(Reply::Multi(parts)) = Reply::decode(OpCode::MULTI_READ, &frame[20..]) else {
            panic!("it is what was written");
        };
        let room = |part: &Result<Reply, ErrorCode>| match part {
            Ok(Reply::Children { names, .. }) => names.text.capacity(),
            other => panic!("{other:?}"),
        };
        let taken: usize = parts.iter().map(room).sum();
        assert!(taken < frame.len(), "{taken} of {}", frame.len());
    }
}
