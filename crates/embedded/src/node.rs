//! One node, and what changes leave on it.

use std::collections::BTreeSet;

use super::acl::NodeAcl;
use zklock_jute::{CreateMode, Data, ErrorCode, Stat};

/// The version that stands for any.
const ANY_VERSION: i32 = -1;

/// The modes of nodes with a time to live.
pub(super) const TTL: [i32; 2] = [5, 6];

/// The longest time to live: ZooKeeper keeps it in five bytes.
const MAX_TTL_MS: i64 = 0xff_ffff_ffff;

#[derive(Clone, Debug)]
pub struct Node {
    pub data: Data,
    pub acl: NodeAcl,
    pub owner: NodeOwner,
    pub children: BTreeSet<String>,
    pub marks: Marks,
}

/// The owner of a node, which the node does not outlive.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NodeOwner {
    Nobody,
    Session(i64),
    /// A container is removed after its last child.
    Children,
    /// Without children, the node is removed this many milliseconds after its data were set.
    Time(i64),
}

/// The part of a stat that is the node's history.
#[derive(Clone, Copy, Debug, Default)]
pub struct Marks {
    pub created: ChangeTime,
    pub modified: ChangeTime,
    /// When the list of children last changed.
    pub pzxid: i64,
    pub version: i32,
    pub acl_version: i32,
    /// How many children were ever created, which is also the next one's number.
    pub counter: i32,
}

/// The time of a change.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChangeTime {
    pub zxid: i64,
    /// The time in milliseconds since the epoch.
    pub ms: i64,
}

impl Node {
    pub fn new(data: Data, acl: NodeAcl, owner: NodeOwner, at: ChangeTime) -> Self {
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

    pub fn stat(&self) -> Stat {
        let children = length(self.children.len());
        Stat {
            czxid: self.marks.created.zxid,
            mzxid: self.marks.modified.zxid,
            ctime: self.marks.created.ms,
            mtime: self.marks.modified.ms,
            version: self.marks.version,
            // The version counts creations and deletions: a child that was created and is not here was deleted.
            cversion: self.marks.counter.wrapping_mul(2).wrapping_sub(children),
            aversion: self.marks.acl_version,
            ephemeral_owner: self.owner.number(),
            data_length: length(self.data.len()),
            num_children: children,
            pzxid: self.marks.pzxid,
        }
    }

    pub fn is_ephemeral(&self) -> bool {
        matches!(self.owner, NodeOwner::Session(_))
    }

    /// Returns whether the node goes by itself at this time, in milliseconds since the epoch. A container
    /// that never had a child stays.
    pub fn is_over(&self, now_ms: i64) -> bool {
        self.children.is_empty()
            && match self.owner {
                NodeOwner::Children => self.marks.counter > 0,
                NodeOwner::Time(ttl_ms) => now_ms - self.marks.modified.ms > ttl_ms,
                NodeOwner::Nobody | NodeOwner::Session(_) => false,
            }
    }

    pub fn count_creation(&mut self, zxid: i64) {
        // ZooKeeper stores a counter only if it is larger. So at its maximum the counter stays,
        // and the pzxid with it.
        if let Some(next) = self.marks.counter.checked_add(1) {
            self.marks.counter = next;
            self.marks.pzxid = zxid;
        }
    }
}

impl NodeOwner {
    pub fn of(mode: CreateMode, session: i64) -> Result<Self, ErrorCode> {
        Ok(match mode {
            CreateMode::Persistent | CreateMode::PersistentSequential => Self::Nobody,
            CreateMode::Ephemeral | CreateMode::EphemeralSequential => Self::Session(session),
            CreateMode::Container => Self::Children,
            CreateMode::Ttl { flag, ms }
                if TTL.contains(&flag) && (1..=MAX_TTL_MS).contains(&ms) =>
            {
                Self::Time(ms)
            }
            CreateMode::Other(flag) if TTL.contains(&flag) => return Err(ErrorCode::UNIMPLEMENTED),
            CreateMode::Ttl { .. } | CreateMode::Other(_) => return Err(ErrorCode::BAD_ARGUMENTS),
        })
    }

    /// Returns the ephemeral owner of a stat, which is 0 unless that is a session.
    fn number(self) -> i64 {
        match self {
            Self::Session(id) => id,
            Self::Nobody | Self::Children | Self::Time(_) => 0,
        }
    }
}

/// Returns the version after this one, if this is the one that the client expects.
pub(crate) fn next_version(current: i32, expected: i32) -> Result<i32, ErrorCode> {
    if expected != ANY_VERSION && expected != current {
        return Err(ErrorCode::BAD_VERSION);
    }
    Ok(current.wrapping_add(1))
}

fn length(len: usize) -> i32 {
    i32::try_from(len).unwrap_or(i32::MAX)
}
