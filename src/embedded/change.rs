//! What a change leaves behind: enough to take it back, and to know who may hear of it.

use super::acl::Acl;
use super::node::{Marks, Node};
use crate::jute::Data;

/// A change that was made.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Created {
        path: String,
        acl: Acl,
        above: Above,
    },
    Deleted {
        path: String,
        node: Node,
        above: Above,
    },
    Set {
        path: String,
        acl: Acl,
        data: Data,
        marks: Marks,
    },
}

/// What the directory was like before the change.
#[derive(Clone, Debug)]
pub(super) struct Above {
    pub(super) acl: Acl,
    pub(super) marks: Marks,
}

impl Above {
    pub(super) fn of(directory: &Node) -> Self {
        Self {
            acl: directory.acl.clone(),
            marks: directory.marks,
        }
    }
}
