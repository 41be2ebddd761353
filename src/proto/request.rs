//! What a client sends.

use super::types::{Access, CreateMode};

/// The number that stands for a kind of request.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct OpCode(pub(crate) i32);

/// A client's first frame on a connection.
#[derive(Clone, Eq, PartialEq)]
pub(crate) struct ConnectRequest {
    pub(crate) last_zxid: i64,
    pub(crate) timeout_ms: i32,
    pub(crate) session: i64,
    pub(crate) password: Vec<u8>,
    pub(crate) read_only: bool,
}

/// The server's first frame; a timeout of 0 or less says that the session expired.
#[derive(Clone, Eq, PartialEq)]
pub(crate) struct ConnectReply {
    pub(crate) timeout_ms: i32,
    pub(crate) session: i64,
    pub(crate) password: Vec<u8>,
    pub(crate) read_only: bool,
}

/// A request after the connection is made.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Request {
    /// `stat` asks for create2, which also returns the new node's stat.
    Create {
        path: String,
        data: Vec<u8>,
        acl: Vec<Access>,
        mode: CreateMode,
        stat: bool,
    },
    Delete {
        path: String,
        version: i32,
    },
    Exists {
        path: String,
        watch: bool,
    },
    GetData {
        path: String,
        watch: bool,
    },
    SetData {
        path: String,
        data: Vec<u8>,
        version: i32,
    },
    /// `stat` asks for getChildren2, which also returns the directory's stat.
    GetChildren {
        path: String,
        watch: bool,
        stat: bool,
    },
    Sync {
        path: String,
    },
    Multi(Vec<Op>),
}

/// One part of a multi.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Op {
    Check {
        path: String,
        version: i32,
    },
    /// With `stat`, create2.
    Create {
        path: String,
        data: Vec<u8>,
        acl: Vec<Access>,
        mode: CreateMode,
        stat: bool,
    },
    Delete {
        path: String,
        version: i32,
    },
    SetData {
        path: String,
        data: Vec<u8>,
        version: i32,
    },
}
