//! The requests of a client.

mod encoding;

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use super::codec::{Malformed, Reader, frame};
use super::op_code::OpCode;
use super::reply::Reply;
use super::types::{Access, CreateMode, Data, Secret, WatchLists};

/// A request on an established connection.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Request {
    /// `stat` asks for create2, whose reply has the new node's stat.
    ///
    /// A container is always created, and decoded, with `stat`.
    Create {
        path: String,
        data: Data,
        acl: Vec<Access>,
        mode: CreateMode,
        stat: bool,
    },
    Delete {
        path: String,
        version: i32,
    },
    /// Fails unless the node has this version; only a part of a multi.
    Check {
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
        data: Data,
        version: i32,
    },
    GetAcl {
        path: String,
    },
    SetAcl {
        path: String,
        acl: Vec<Access>,
        version: i32,
    },
    /// `stat` asks for getChildren2, whose reply has the directory's stat.
    GetChildren {
        path: String,
        watch: bool,
        stat: bool,
    },
    /// Counts the nodes below a path, at any depth.
    CountDescendants {
        path: String,
    },
    Sync {
        path: String,
    },
    /// A transaction: it carries out all of these writes and checks, or none.
    Multi(Vec<Self>),
    MultiRead(Vec<Self>),
    Ping,
    Auth {
        scheme: String,
        credentials: Secret,
    },
    /// Sets watches again after a reconnect; persistent watches take setWatches2.
    SetWatches(WatchLists),
    /// `kind` is one of the numbers in [`WatchKind`](super::WatchKind).
    CheckWatches {
        path: String,
        kind: i32,
    },
    /// As `CheckWatches`.
    RemoveWatches {
        path: String,
        kind: i32,
    },
    /// Mode 0 is a persistent watch, 1 a persistent recursive one.
    AddWatch {
        path: String,
        mode: i32,
    },
    GetEphemerals {
        below: String,
    },
    WhoAmI,
    Close,
    /// A request that this crate does not know; it can be received, not sent.
    Unknown(OpCode),
}

impl Request {
    pub fn list(dir: &str) -> Self {
        Self::GetChildren {
            path: dir.to_owned(),
            watch: false,
            stat: false,
        }
    }

    pub fn get(path: &str) -> Self {
        Self::GetData {
            path: path.to_owned(),
            watch: false,
        }
    }

    pub fn exists(path: &str) -> Self {
        Self::Exists {
            path: path.to_owned(),
            watch: false,
        }
    }

    /// Makes a read leave a watch on the node.
    #[must_use]
    pub fn and_watch(mut self) -> Self {
        if let Self::Exists { watch, .. }
        | Self::GetData { watch, .. }
        | Self::GetChildren { watch, .. } = &mut self
        {
            *watch = true;
        }
        self
    }

    pub fn create(
        path: impl Into<String>,
        data: impl Into<Data>,
        acl: Vec<Access>,
        mode: CreateMode,
    ) -> Self {
        Self::Create {
            path: path.into(),
            data: data.into(),
            acl,
            mode,
            stat: false,
        }
    }

    /// Returns the part of a multi that fails unless the node is there, in any version.
    pub fn check(path: impl Into<String>) -> Self {
        let path = path.into();
        Self::Check { path, version: -1 }
    }

    pub fn set(path: impl Into<String>, data: impl Into<Data>, version: i32) -> Self {
        Self::SetData {
            path: path.into(),
            data: data.into(),
            version,
        }
    }

    /// Returns the request that deletes a node of any version.
    pub fn delete(path: String) -> Self {
        Self::Delete { path, version: -1 }
    }

    pub fn op(&self) -> OpCode {
        match self {
            Self::Create { mode, stat, .. } => OpCode::create(*mode, *stat),
            Self::Delete { .. } => OpCode::DELETE,
            Self::Check { .. } => OpCode::CHECK,
            Self::Exists { .. } => OpCode::EXISTS,
            Self::GetData { .. } => OpCode::GET_DATA,
            Self::SetData { .. } => OpCode::SET_DATA,
            Self::GetAcl { .. } => OpCode::GET_ACL,
            Self::SetAcl { .. } => OpCode::SET_ACL,
            Self::GetChildren { stat: false, .. } => OpCode::GET_CHILDREN,
            Self::GetChildren { stat: true, .. } => OpCode::GET_CHILDREN2,
            Self::CountDescendants { .. } => OpCode::COUNT_DESCENDANTS,
            Self::Sync { .. } => OpCode::SYNC,
            Self::Multi(_) => OpCode::MULTI,
            Self::MultiRead(_) => OpCode::MULTI_READ,
            Self::Ping => OpCode::PING,
            Self::Auth { .. } => OpCode::AUTH,
            Self::SetWatches(lists) if lists.has_persistent() => OpCode::SET_WATCHES2,
            Self::SetWatches(_) => OpCode::SET_WATCHES,
            Self::CheckWatches { .. } => OpCode::CHECK_WATCHES,
            Self::RemoveWatches { .. } => OpCode::REMOVE_WATCHES,
            Self::AddWatch { .. } => OpCode::ADD_WATCH,
            Self::GetEphemerals { .. } => OpCode::GET_EPHEMERALS,
            Self::WhoAmI => OpCode::WHO_AM_I,
            Self::Close => OpCode::CLOSE,
            Self::Unknown(op) => *op,
        }
    }

    /// Returns the node that a part of a multi writes or checks; empty for other requests.
    pub fn path(&self) -> &str {
        match self {
            Self::Check { path, .. }
            | Self::Create { path, .. }
            | Self::Delete { path, .. }
            | Self::SetData { path, .. } => path,
            _ => "",
        }
    }

    /// Returns the node that is read, if the request reads one and can leave a watch there.
    pub fn reads(&self) -> Option<&str> {
        match self {
            Self::Exists { path, .. }
            | Self::GetData { path, .. }
            | Self::GetChildren { path, .. } => Some(path),
            _ => None,
        }
    }

    /// Returns the node that the request leaves a watch on.
    pub fn watches(&self) -> Option<&str> {
        match self {
            Self::Exists { path, watch: true }
            | Self::GetData { path, watch: true }
            | Self::GetChildren {
                path, watch: true, ..
            } => Some(path),
            _ => None,
        }
    }

    /// Returns whether an answer proves that a quorum has committed the request.
    pub fn commits(&self) -> bool {
        matches!(
            self,
            Self::Create { .. } | Self::Delete { .. } | Self::SetData { .. } | Self::Multi(_)
        )
    }

    /// Reads the body of the reply to this request.
    pub fn reply(&self, body: &[u8]) -> Result<Reply, Malformed> {
        let reply = Reply::decode(self.op(), body)?;
        match (self, &reply) {
            (Self::Multi(ops) | Self::MultiRead(ops), Reply::Multi(results))
                if results.len() != ops.len() =>
            {
                Err(Malformed("a transaction of another length"))
            }
            _ => Ok(reply),
        }
    }

    /// Appends the frame, with its length.
    pub fn encode(&self, xid: i32, out: &mut Vec<u8>) {
        self.encode_below("", xid, out);
    }

    /// Appends the frame, with `root` put before every path.
    pub fn encode_below(&self, root: &str, xid: i32, out: &mut Vec<u8>) {
        frame(out, root, |writer| {
            writer.int(xid);
            writer.int(self.op().0);
            self.write(writer);
        });
    }

    /// Reads a frame's content: the request's number and the request.
    pub fn decode(frame: &[u8]) -> Result<(i32, Self), Malformed> {
        let mut reader = Reader::new(frame);
        let xid = reader.int()?;
        let op = OpCode(reader.int()?);
        Ok((xid, Self::read(op, &mut reader)?))
    }
}
