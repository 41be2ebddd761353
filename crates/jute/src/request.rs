//! The requests of a client.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use super::codec::{Malformed, Reader, Writer, frame};
use super::multi::{
    Op, ReadOp, read_create, read_ops, read_read_ops, write_create, write_ops, write_read_ops,
    write_set_data,
};
use super::op_code::OpCode;
use super::reply::Reply;
use super::types::{Access, CreateMode, Data, Secret, WatchLists};

/// A request on an established connection.
#[derive(Clone, Debug, Eq, PartialEq)]
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
    Multi(Vec<Op>),
    MultiRead(Vec<ReadOp>),
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
        let parts = match self {
            Self::Multi(ops) => Some(ops.len()),
            Self::MultiRead(ops) => Some(ops.len()),
            _ => None,
        };
        match &reply {
            Reply::Multi(results) if parts.is_some_and(|parts| results.len() != parts) => {
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

    fn write(&self, writer: &mut Writer<'_>) {
        match self {
            Self::Create {
                path,
                data,
                acl,
                mode,
                ..
            } => write_create(writer, path, data, acl, *mode),
            Self::Exists { path, watch }
            | Self::GetData { path, watch }
            | Self::GetChildren { path, watch, .. } => write_path_bool(writer, path, *watch),
            Self::SetData {
                path,
                data,
                version,
            } => write_set_data(writer, path, data, *version),
            Self::SetAcl { path, acl, version } => write_set_acl(writer, path, acl, *version),
            Self::GetAcl { path }
            | Self::CountDescendants { path }
            | Self::Sync { path }
            | Self::GetEphemerals { below: path } => writer.path(path),
            Self::Multi(ops) => write_ops(ops, writer),
            Self::MultiRead(ops) => write_read_ops(ops, writer),
            Self::Auth {
                scheme,
                credentials,
            } => write_auth(writer, scheme, credentials),
            Self::SetWatches(lists) => writer.watch_lists(lists),
            Self::Delete {
                path,
                version: number,
            }
            | Self::CheckWatches { path, kind: number }
            | Self::RemoveWatches { path, kind: number }
            | Self::AddWatch { path, mode: number } => write_path_int(writer, path, *number),
            Self::Ping | Self::WhoAmI | Self::Close | Self::Unknown(_) => {}
        }
    }

    /// Reads a frame's content: the request's number and the request.
    pub fn decode(frame: &[u8]) -> Result<(i32, Self), Malformed> {
        let mut reader = Reader::new(frame);
        let xid = reader.int()?;
        let op = OpCode(reader.int()?);
        Ok((xid, Self::read(op, &mut reader)?))
    }

    fn read(op: OpCode, reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match op {
            OpCode::PING => Self::Ping,
            OpCode::WHO_AM_I => Self::WhoAmI,
            OpCode::CLOSE => Self::Close,
            OpCode::MULTI => Self::Multi(read_ops(reader)?),
            OpCode::MULTI_READ => Self::MultiRead(read_read_ops(reader)?),
            OpCode::SET_WATCHES => Self::SetWatches(reader.watch_lists(false)?),
            OpCode::SET_WATCHES2 => Self::SetWatches(reader.watch_lists(true)?),
            OpCode::AUTH => {
                reader.int()?;
                Self::Auth {
                    scheme: reader.string()?,
                    credentials: Secret(reader.bytes()?.to_vec()),
                }
            }
            OpCode::CREATE | OpCode::CREATE2 | OpCode::CREATE_CONTAINER | OpCode::CREATE_TTL => {
                let (path, data, acl, mode) = read_create(op, reader)?;
                Self::Create {
                    path,
                    data,
                    acl,
                    mode,
                    stat: op != OpCode::CREATE,
                }
            }
            _ => Self::read_with_path(op, reader)?,
        })
    }

    /// Reads one of the requests that begin with a path.
    fn read_with_path(op: OpCode, reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut path = || reader.string();
        Ok(match op {
            OpCode::GET_ACL => Self::GetAcl { path: path()? },
            OpCode::COUNT_DESCENDANTS => Self::CountDescendants { path: path()? },
            OpCode::SYNC => Self::Sync { path: path()? },
            OpCode::GET_EPHEMERALS => Self::GetEphemerals { below: path()? },
            OpCode::EXISTS => Self::Exists {
                path: path()?,
                watch: reader.bool()?,
            },
            OpCode::GET_DATA => Self::GetData {
                path: path()?,
                watch: reader.bool()?,
            },
            OpCode::SET_DATA => Self::SetData {
                path: path()?,
                data: reader.data()?,
                version: reader.int()?,
            },
            OpCode::SET_ACL => Self::SetAcl {
                path: path()?,
                acl: reader.acl()?,
                version: reader.int()?,
            },
            OpCode::GET_CHILDREN | OpCode::GET_CHILDREN2 => Self::GetChildren {
                path: path()?,
                watch: reader.bool()?,
                stat: op == OpCode::GET_CHILDREN2,
            },
            _ => Self::read_path_int(op, reader)?,
        })
    }

    /// Reads one of the requests that consist of a path and a number.
    fn read_path_int(op: OpCode, reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let request = match op {
            OpCode::DELETE => |path, version| Self::Delete { path, version },
            OpCode::CHECK_WATCHES => |path, kind| Self::CheckWatches { path, kind },
            OpCode::REMOVE_WATCHES => |path, kind| Self::RemoveWatches { path, kind },
            OpCode::ADD_WATCH => |path, mode| Self::AddWatch { path, mode },
            _ => return Ok(Self::Unknown(op)),
        };
        Ok(request(reader.string()?, reader.int()?))
    }
}

fn write_path_int(writer: &mut Writer<'_>, path: &str, number: i32) {
    writer.path(path);
    writer.int(number);
}

fn write_path_bool(writer: &mut Writer<'_>, path: &str, value: bool) {
    writer.path(path);
    writer.bool(value);
}

fn write_set_acl(writer: &mut Writer<'_>, path: &str, acl: &[Access], version: i32) {
    writer.path(path);
    writer.acl(acl);
    writer.int(version);
}

fn write_auth(writer: &mut Writer<'_>, scheme: &str, credentials: &Secret) {
    writer.int(0);
    writer.string(scheme);
    writer.bytes(&credentials.0);
}
