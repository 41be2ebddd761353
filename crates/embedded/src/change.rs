//! A change that was made, with what is needed to undo it and to decide who may see it.

use super::acl::NodeAcl;
use super::node::{Marks, Node};
use zklock_jute::Data;

#[derive(Clone, Debug)]
pub enum TreeChange {
    Created {
        path: String,
        acl: NodeAcl,
        above: Above,
    },
    Deleted {
        path: String,
        node: Node,
        above: Above,
    },
    Set {
        path: String,
        acl: NodeAcl,
        data: Data,
        marks: Marks,
    },
}

/// The directory of the node, before the change.
#[derive(Clone, Debug)]
pub struct Above {
    pub acl: NodeAcl,
    pub marks: Marks,
}

impl Above {
    pub fn of(directory: &Node) -> Self {
        Self {
            acl: directory.acl.clone(),
            marks: directory.marks,
        }
    }
}
