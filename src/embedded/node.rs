//! One node, and the marks that changes leave on it.

use std::collections::BTreeSet;

use super::acl::Acl;
use crate::jute::{CreateMode, Data, ErrorCode, Stat};

/// The version that fits any.
const ANY_VERSION: i32 = -1;

/// The modes of nodes with a time to live. ZooKeeper knows them only if its configuration
/// says so.
const TTL: [i32; 2] = [5, 6];

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) data: Data,
    pub(super) acl: Acl,
    pub(super) owner: Owner,
    pub(super) children: BTreeSet<String>,
    pub(super) marks: Marks,
}

/// What a node lives as long as.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Owner {
    Nobody,
    Session(i64),
    /// The node goes when its last child is gone.
    Children,
}

/// What a stat tells of a node's history.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Marks {
    pub(super) created: Moment,
    pub(super) modified: Moment,
    /// When the list of children last changed.
    pub(super) pzxid: i64,
    pub(super) version: i32,
    pub(super) acl_version: i32,
    /// How many children were ever created: the next one's number.
    pub(super) counter: i32,
}

/// When a change is made.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moment {
    pub(super) zxid: i64,
    /// Since the epoch.
    pub(super) ms: i64,
}

impl Node {
    pub(super) fn new(data: Data, acl: Acl, owner: Owner, at: Moment) -> Self {
        let marks = Marks {
            created: at,
            modified: at,
            pzxid: at.zxid,
            ..Marks::default()
        };
        Self {
            data,
            acl,
            owner,
            children: BTreeSet::new(),
            marks,
        }
    }

    pub(super) fn stat(&self) -> Stat {
        let children = length(self.children.len());
        Stat {
            czxid: self.marks.created.zxid,
            mzxid: self.marks.modified.zxid,
            ctime: self.marks.created.ms,
            mtime: self.marks.modified.ms,
            version: self.marks.version,
            // A client sees creations and deletions counted; the deleted are those
            // that were created and are no longer here.
            cversion: self.marks.counter.wrapping_mul(2).wrapping_sub(children),
            aversion: self.marks.acl_version,
            ephemeral_owner: self.owner.number(),
            data_length: length(self.data.len()),
            num_children: children,
            pzxid: self.marks.pzxid,
        }
    }

    pub(super) fn is_ephemeral(&self) -> bool {
        matches!(self.owner, Owner::Session(_))
    }

    /// A container that nobody ever put anything in is spared.
    pub(super) fn is_spent_container(&self) -> bool {
        self.owner == Owner::Children && self.children.is_empty() && self.marks.counter > 0
    }

    pub(super) fn count_creation(&mut self, zxid: i64) {
        // ZooKeeper takes over a counter only if it is larger, so that the counter
        // stays at its end; it forgets to move the pzxid then, too.
        if let Some(next) = self.marks.counter.checked_add(1) {
            self.marks.counter = next;
            self.marks.pzxid = zxid;
        }
    }
}

impl Owner {
    pub(super) fn of(mode: CreateMode, session: i64) -> Result<Self, ErrorCode> {
        Ok(match mode {
            CreateMode::Persistent | CreateMode::PersistentSequential => Self::Nobody,
            CreateMode::Ephemeral | CreateMode::EphemeralSequential => Self::Session(session),
            CreateMode::Container => Self::Children,
            CreateMode::Other(flag) if TTL.contains(&flag) => return Err(ErrorCode::UNIMPLEMENTED),
            CreateMode::Other(_) => return Err(ErrorCode::BAD_ARGUMENTS),
        })
    }

    /// As a stat tells it, which does not tell containers from other nodes.
    fn number(self) -> i64 {
        match self {
            Self::Session(id) => id,
            Self::Nobody | Self::Children => 0,
        }
    }
}

/// The version after this one, if this one is what the client expects.
pub(super) fn next_version(current: i32, expected: i32) -> Result<i32, ErrorCode> {
    if expected != ANY_VERSION && expected != current {
        return Err(ErrorCode::BAD_VERSION);
    }
    Ok(current.wrapping_add(1))
}

/// A node is far smaller than what a length can say.
fn length(len: usize) -> i32 {
    i32::try_from(len).unwrap_or(i32::MAX)
}
