//! What a server sends.

use super::code::ErrorCode;
use super::types::Stat;

/// Stands before every reply.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ReplyHeader {
    pub(crate) xid: i32,
    pub(crate) zxid: i64,
    pub(crate) code: ErrorCode,
}

/// A reply without an error.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Reply {
    Created {
        path: String,
        stat: Option<Stat>,
    },
    Stat(Stat),
    Data {
        data: Vec<u8>,
        stat: Stat,
    },
    Children {
        names: Vec<String>,
        stat: Option<Stat>,
    },
    Synced {
        path: String,
    },
    /// What came of each part; after an error nothing of the multi was carried out.
    Multi(Vec<Result<OpReply, ErrorCode>>),
    Nothing,
}

/// What came of one part of a multi.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum OpReply {
    Checked,
    Created { path: String, stat: Option<Stat> },
    Deleted,
    Set(Stat),
}

/// A watch event.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Event {
    pub(crate) kind: EventKind,
    pub(crate) state: i32,
    pub(crate) path: String,
}

/// What a watch saw.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum EventKind {
    /// About the connection, not about a node.
    None,
    Created,
    Deleted,
    DataChanged,
    ChildrenChanged,
    /// The watch was removed, or a kind this crate does not know.
    Other(i32),
}
