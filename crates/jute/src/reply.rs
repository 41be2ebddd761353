//! The replies and events of a server.

use alloc::string::String;
use alloc::vec::Vec;

use super::child_names::Names;
use super::codec::{Malformed, Reader, Writer, frame};
use super::error_code::ErrorCode;
use super::multi::{READS, WRITES, read_parts, write_parts};
use super::op_code::OpCode;
use super::types::{Access, Data, Stat};

/// The numbers of frames that do not answer a numbered request.
pub mod xid {
    pub const EVENT: i32 = -1;
    pub const PING: i32 = -2;
    pub const AUTH: i32 = -4;
    pub const SET_WATCHES: i32 = -8;
    /// Our own number, for reads of the ensemble's configuration that no caller waits for.
    pub const MEMBERS: i32 = -9;
}

/// The fewest bytes that an entry of a whoAmI reply takes.
const CLIENT_INFO_BYTES: usize = 8;

/// The beginning of every reply.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ReplyHeader {
    pub xid: i32,
    pub zxid: i64,
    pub code: ErrorCode,
}

/// A reply without an error.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Reply {
    Created {
        path: String,
        stat: Option<Stat>,
    },
    Stat(Stat),
    Data {
        data: Data,
        stat: Stat,
    },
    Acl {
        acl: Vec<Access>,
        stat: Stat,
    },
    Children {
        names: Names,
        stat: Option<Stat>,
    },
    /// How many descendants a node has.
    Count(i32),
    Synced {
        path: String,
    },
    /// The results of the parts of a multi, or of a multiRead. If one part of a multi failed,
    /// none was carried out; the parts of a multiRead fail independently.
    Multi(Vec<Result<Self, ErrorCode>>),
    /// The paths of a session's ephemeral nodes.
    Ephemerals(Vec<String>),
    /// The scheme and the name of each identity of the client.
    Identities(Vec<(String, String)>),
    /// The result of a check, which is only a part of a multi.
    Checked,
    Nothing,
}

/// A watch event.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Event {
    pub kind: EventKind,
    pub state: i32,
    pub path: String,
}

/// The kind of a watch event.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum EventKind {
    /// An event of the connection, not of a node.
    None,
    Created,
    Deleted,
    DataChanged,
    ChildrenChanged,
    /// The watch was removed, or a kind that this crate does not know.
    Other(i32),
}

impl ReplyHeader {
    /// Appends the frame of a reply with this header; a reply with an error has no body.
    pub fn encode(&self, body: Option<&Reply>, out: &mut Vec<u8>) {
        frame(out, "", |writer| {
            self.write(writer);
            body.iter().for_each(|body| body.write(writer));
        });
    }

    /// Splits a frame's content into header and body.
    pub fn decode(frame: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let mut reader = Reader::new(frame);
        let header = Self {
            xid: reader.int()?,
            zxid: reader.long()?,
            code: ErrorCode(reader.int()?),
        };
        Ok((header, reader.rest()))
    }

    fn write(&self, writer: &mut Writer<'_>) {
        writer.int(self.xid);
        writer.long(self.zxid);
        writer.int(self.code.0);
    }
}

impl Reply {
    /// Returns the code of the part of a multi that this is the result of.
    fn code_of_part(&self) -> OpCode {
        match self {
            Self::Checked => OpCode::CHECK,
            Self::Created { stat: None, .. } => OpCode::CREATE,
            Self::Created { stat: Some(_), .. } => OpCode::CREATE2,
            Self::Stat(_) => OpCode::SET_DATA,
            Self::Children { .. } => OpCode::GET_CHILDREN,
            Self::Data { .. } => OpCode::GET_DATA,
            _ => OpCode::DELETE,
        }
    }

    fn write(&self, writer: &mut Writer<'_>) {
        match self {
            Self::Created { path, stat } => {
                writer.string(path);
                stat.iter().for_each(|stat| writer.stat(stat));
            }
            Self::Stat(stat) => writer.stat(stat),
            Self::Data { data, stat } => {
                writer.data(data);
                writer.stat(stat);
            }
            Self::Acl { acl, stat } => {
                writer.acl(acl);
                writer.stat(stat);
            }
            Self::Children { names, stat } => {
                writer.names(names);
                stat.iter().for_each(|stat| writer.stat(stat));
            }
            Self::Count(count) => writer.int(*count),
            Self::Synced { path } => writer.string(path),
            Self::Multi(results) => {
                write_parts(results, writer, head, |result, writer| match result {
                    Ok(reply) => reply.write(writer),
                    Err(code) => writer.int(code.0),
                })
            }
            Self::Ephemerals(paths) => writer.strings(paths),
            Self::Identities(pairs) => writer.vector(pairs, |writer, (scheme, name)| {
                writer.string(scheme);
                writer.string(name);
            }),
            Self::Checked | Self::Nothing => {}
        }
    }

    /// Reads the body of a reply without an error to a request of kind `op`.
    ///
    /// The body of a multi that failed is read too, because it has the code of each part.
    pub fn decode(op: OpCode, body: &[u8]) -> Result<Self, Malformed> {
        Self::read(op, &mut Reader::new(body))
    }

    fn read(op: OpCode, reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match op {
            OpCode::CHECK => Self::Checked,
            OpCode::CREATE => Self::Created {
                path: reader.string()?,
                stat: None,
            },
            OpCode::CREATE2 | OpCode::CREATE_CONTAINER | OpCode::CREATE_TTL => Self::Created {
                path: reader.string()?,
                stat: Some(reader.stat()?),
            },
            OpCode::EXISTS | OpCode::SET_DATA | OpCode::SET_ACL => Self::Stat(reader.stat()?),
            OpCode::GET_DATA => Self::Data {
                data: reader.data()?,
                stat: reader.stat()?,
            },
            OpCode::GET_ACL => Self::Acl {
                acl: reader.acl()?,
                stat: reader.stat()?,
            },
            OpCode::GET_CHILDREN => Self::Children {
                names: reader.names()?,
                stat: None,
            },
            OpCode::GET_CHILDREN2 => Self::Children {
                names: reader.names()?,
                stat: Some(reader.stat()?),
            },
            OpCode::COUNT_DESCENDANTS => Self::Count(reader.int()?),
            OpCode::SYNC => Self::Synced {
                path: reader.string()?,
            },
            OpCode::MULTI | OpCode::MULTI_READ => Self::Multi(read_parts(reader, read_result)?),
            OpCode::GET_EPHEMERALS => Self::Ephemerals(reader.strings()?),
            OpCode::WHO_AM_I => Self::Identities(reader.vector(CLIENT_INFO_BYTES, |each| {
                Ok((each.string()?, each.string()?))
            })?),
            _ => Self::Nothing,
        })
    }
}

impl Reply {
    /// Strips the root from the paths in a reply; `root` is empty, or has no slash at its end.
    pub fn strip(&mut self, root: &str) {
        if root.is_empty() {
            return;
        }
        let strip = |path: &mut String| {
            if let Some(inner) = below(root, path) {
                *path = inner.into();
            }
        };
        match self {
            Self::Created { path, .. } | Self::Synced { path } => strip(path),
            Self::Ephemerals(paths) => paths.iter_mut().for_each(strip),
            Self::Multi(results) => {
                let replies = results.iter_mut().flatten();
                replies.for_each(|reply| reply.strip(root));
            }
            _ => {}
        }
    }
}

/// Strips the root from a path that the server sent; returns `None` if the path is not below it.
pub fn below<'a>(root: &str, path: &'a str) -> Option<&'a str> {
    match path.strip_prefix(root)? {
        "" => Some("/"),
        path if path.starts_with('/') => Some(path),
        _ => None,
    }
}

/// Returns what goes before the result of a part.
fn head(result: &Result<Reply, ErrorCode>) -> (OpCode, ErrorCode) {
    match result {
        Ok(reply) => (reply.code_of_part(), ErrorCode::OK),
        Err(code) => (OpCode::ERROR, *code),
    }
}

fn read_result(op: OpCode, reader: &mut Reader<'_>) -> Result<Result<Reply, ErrorCode>, Malformed> {
    match op {
        OpCode::ERROR => Ok(Err(ErrorCode(reader.int()?))),
        op if WRITES.contains(&op) || READS.contains(&op) => Reply::read(op, reader).map(Ok),
        _ => Err(Malformed("an unknown result in a multi")),
    }
}

impl Event {
    /// The state of a connection that is in order.
    pub const SYNC_CONNECTED: i32 = 3;

    /// Appends the frame, with its length.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let header = ReplyHeader {
            xid: xid::EVENT,
            zxid: -1,
            code: ErrorCode::OK,
        };
        frame(out, "", |writer| {
            header.write(writer);
            writer.int(self.kind.number());
            writer.int(self.state);
            writer.string(&self.path);
        });
    }

    /// Reads the body of a frame whose number is that of an event.
    pub fn decode(body: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        Ok(Self {
            kind: EventKind::from_number(reader.int()?),
            state: reader.int()?,
            path: reader.string()?,
        })
    }
}

impl EventKind {
    fn number(self) -> i32 {
        match self {
            Self::None => -1,
            Self::Created => 1,
            Self::Deleted => 2,
            Self::DataChanged => 3,
            Self::ChildrenChanged => 4,
            Self::Other(number) => number,
        }
    }

    fn from_number(number: i32) -> Self {
        match number {
            -1 => Self::None,
            1 => Self::Created,
            2 => Self::Deleted,
            3 => Self::DataChanged,
            4 => Self::ChildrenChanged,
            number => Self::Other(number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_taken_off() {
        for (root, path, inner) in [
            ("", "/a", Some("/a")),
            ("/app", "/app", Some("/")),
            ("/app", "/app/a", Some("/a")),
            ("/app", "/apple", None),
            ("/app", "/other", None),
        ] {
            assert_eq!(below(root, path), inner, "{path} below {root}");
        }
        let mut reply = Reply::Created {
            path: "/app/a".to_owned(),
            stat: None,
        };
        reply.strip("/app");
        let path = "/a".to_owned();
        assert_eq!(reply, Reply::Created { path, stat: None });
    }
}
