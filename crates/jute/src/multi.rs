//! Several operations in one transaction, and their results.

use alloc::string::String;
use alloc::vec::Vec;

use super::child_names::Names;
use super::codec::{Malformed, Reader, Writer};
use super::error_code::ErrorCode;
use super::op_code::OpCode;
use super::types::{Access, CreateMode, Data, Stat};

/// One part of a multi.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Op {
    Check {
        path: String,
        version: i32,
    },
    /// `stat` asks for create2.
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
    SetData {
        path: String,
        data: Data,
        version: i32,
    },
}

/// One part of a multiRead.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ReadOp {
    Children { path: String, watch: bool },
    Data { path: String, watch: bool },
}

/// Returns what a multi failed with, if it did: the error of the part at fault, not of the
/// parts that failed with it.
pub fn failure(results: &[Result<OpReply, ErrorCode>]) -> Option<ErrorCode> {
    culprit(results).map(|(_, code)| code)
}

/// As [`failure`], with the place of the part at fault.
pub fn culprit(results: &[Result<OpReply, ErrorCode>]) -> Option<(usize, ErrorCode)> {
    let errors = || {
        let results = results.iter().enumerate();
        results.filter_map(|(place, result)| Some((place, result.as_ref().err().copied()?)))
    };
    let at_fault = |(_, code): &(usize, ErrorCode)| {
        *code != ErrorCode::OK && *code != ErrorCode::RUNTIME_INCONSISTENCY
    };
    errors().find(at_fault).or_else(|| errors().next())
}

/// The result of one part of a multi.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum OpReply {
    Checked,
    Created {
        path: String,
        stat: Option<Stat>,
    },
    Deleted,
    Set(Stat),
    /// The children in a multiRead; `Data` is also one of its results.
    Children(Names),
    Data {
        data: Data,
        stat: Stat,
    },
}

/// The beginning of every part, and the end after the last one.
struct Head {
    op: OpCode,
    done: bool,
    code: ErrorCode,
}

impl Head {
    const END: Self = Self {
        op: OpCode::ERROR,
        done: true,
        code: ErrorCode(-1),
    };

    fn part(op: OpCode, code: ErrorCode) -> Self {
        Self {
            op,
            done: false,
            code,
        }
    }

    fn write(&self, writer: &mut Writer<'_>) {
        writer.int(self.op.0);
        writer.bool(self.done);
        writer.int(self.code.0);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            op: OpCode(reader.int()?),
            done: reader.bool()?,
            code: ErrorCode(reader.int()?),
        })
    }
}

pub(super) fn write_ops(ops: &[Op], writer: &mut Writer<'_>) {
    for op in ops {
        Head::part(op.code(), ErrorCode(-1)).write(writer);
        op.write(writer);
    }
    Head::END.write(writer);
}

pub(super) fn read_ops(reader: &mut Reader<'_>) -> Result<Vec<Op>, Malformed> {
    read_parts(reader, Op::read)
}

/// Reads the parts up to the end, each with `read` after its head.
fn read_parts<T>(
    reader: &mut Reader<'_>,
    read: impl Fn(OpCode, &mut Reader<'_>) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    let mut parts = Vec::new();
    loop {
        let head = Head::read(reader)?;
        if head.done {
            return Ok(parts);
        }
        parts.push(read(head.op, reader)?);
    }
}

pub(super) fn write_read_ops(ops: &[ReadOp], writer: &mut Writer<'_>) {
    for op in ops {
        let (code, path, watch) = match op {
            ReadOp::Children { path, watch } => (OpCode::GET_CHILDREN, path, *watch),
            ReadOp::Data { path, watch } => (OpCode::GET_DATA, path, *watch),
        };
        Head::part(code, ErrorCode(-1)).write(writer);
        writer.path(path);
        writer.bool(watch);
    }
    Head::END.write(writer);
}

pub(super) fn read_read_ops(reader: &mut Reader<'_>) -> Result<Vec<ReadOp>, Malformed> {
    read_parts(reader, |op, reader| {
        let (path, watch) = (reader.string()?, reader.bool()?);
        match op {
            OpCode::GET_CHILDREN => Ok(ReadOp::Children { path, watch }),
            OpCode::GET_DATA => Ok(ReadOp::Data { path, watch }),
            _ => Err(Malformed("a part of a multiRead that does not read")),
        }
    })
}

pub(super) fn write_results(results: &[Result<OpReply, ErrorCode>], writer: &mut Writer<'_>) {
    for result in results {
        match result {
            Ok(reply) => {
                Head::part(reply.code(), ErrorCode::OK).write(writer);
                reply.write(writer);
            }
            Err(code) => {
                Head::part(OpCode::ERROR, *code).write(writer);
                writer.int(code.0);
            }
        }
    }
    Head::END.write(writer);
}

pub(super) fn read_results(
    reader: &mut Reader<'_>,
) -> Result<Vec<Result<OpReply, ErrorCode>>, Malformed> {
    read_parts(reader, |op, reader| match op {
        OpCode::ERROR => Ok(Err(ErrorCode(reader.int()?))),
        op => OpReply::read(op, reader).map(Ok),
    })
}

impl Op {
    /// Returns the part that fails unless the node is there, in any version.
    pub fn check(path: impl Into<String>) -> Self {
        let path = path.into();
        Self::Check { path, version: -1 }
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

    /// Returns the part that deletes a node of any version.
    pub fn delete(path: String) -> Self {
        Self::Delete { path, version: -1 }
    }

    /// Returns the node that the part is about.
    pub fn path(&self) -> &str {
        match self {
            Self::Check { path, .. }
            | Self::Create { path, .. }
            | Self::Delete { path, .. }
            | Self::SetData { path, .. } => path,
        }
    }

    fn code(&self) -> OpCode {
        match self {
            Self::Check { .. } => OpCode::CHECK,
            Self::Create { mode, stat, .. } => OpCode::create(*mode, *stat),
            Self::Delete { .. } => OpCode::DELETE,
            Self::SetData { .. } => OpCode::SET_DATA,
        }
    }

    fn write(&self, writer: &mut Writer<'_>) {
        match self {
            Self::Check { path, version } | Self::Delete { path, version } => {
                writer.path(path);
                writer.int(*version);
            }
            Self::Create {
                path,
                data,
                acl,
                mode,
                ..
            } => write_create(writer, path, data, acl, *mode),
            Self::SetData {
                path,
                data,
                version,
            } => write_set_data(writer, path, data, *version),
        }
    }

    fn read(op: OpCode, reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match op {
            OpCode::CHECK => Self::Check {
                path: reader.string()?,
                version: reader.int()?,
            },
            OpCode::CREATE | OpCode::CREATE2 | OpCode::CREATE_CONTAINER | OpCode::CREATE_TTL => {
                let (path, data, acl, mode) = read_create(op, reader)?;
                Self::Create {
                    path,
                    data,
                    acl,
                    mode: mode.of_a_part(),
                    stat: op != OpCode::CREATE,
                }
            }
            OpCode::DELETE => Self::Delete {
                path: reader.string()?,
                version: reader.int()?,
            },
            OpCode::SET_DATA => Self::SetData {
                path: reader.string()?,
                data: reader.data()?,
                version: reader.int()?,
            },
            _ => return Err(Malformed("an unknown part of a multi")),
        })
    }
}

impl OpReply {
    fn code(&self) -> OpCode {
        match self {
            Self::Checked => OpCode::CHECK,
            Self::Created { stat: None, .. } => OpCode::CREATE,
            Self::Created { stat: Some(_), .. } => OpCode::CREATE2,
            Self::Deleted => OpCode::DELETE,
            Self::Set(_) => OpCode::SET_DATA,
            Self::Children(_) => OpCode::GET_CHILDREN,
            Self::Data { .. } => OpCode::GET_DATA,
        }
    }

    fn write(&self, writer: &mut Writer<'_>) {
        match self {
            Self::Children(names) => writer.names(names),
            Self::Data { data, stat } => {
                writer.data(data);
                writer.stat(stat);
            }
            Self::Checked | Self::Deleted => {}
            Self::Created { path, stat } => {
                writer.string(path);
                stat.iter().for_each(|stat| writer.stat(stat));
            }
            Self::Set(stat) => writer.stat(stat),
        }
    }

    fn read(op: OpCode, reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match op {
            OpCode::CHECK => Self::Checked,
            OpCode::CREATE => Self::Created {
                path: reader.string()?,
                stat: None,
            },
            OpCode::CREATE2 | OpCode::CREATE_CONTAINER => Self::Created {
                path: reader.string()?,
                stat: Some(reader.stat()?),
            },
            OpCode::DELETE => Self::Deleted,
            OpCode::SET_DATA => Self::Set(reader.stat()?),
            OpCode::GET_CHILDREN => Self::Children(reader.names()?),
            OpCode::GET_DATA => Self::Data {
                data: reader.data()?,
                stat: reader.stat()?,
            },
            _ => return Err(Malformed("an unknown result in a multi")),
        })
    }
}

pub(super) fn write_create(
    writer: &mut Writer<'_>,
    path: &str,
    data: &Data,
    acl: &[Access],
    mode: CreateMode,
) {
    writer.path(path);
    writer.data(data);
    writer.acl(acl);
    writer.int(mode.flag());
    if let CreateMode::Ttl { ms, .. } = mode {
        writer.long(ms);
    }
}

pub(super) fn write_set_data(writer: &mut Writer<'_>, path: &str, data: &Data, version: i32) {
    writer.path(path);
    writer.data(data);
    writer.int(version);
}

/// The fields of a create request: path, data, access list, mode.
pub(super) type Creation = (String, Data, Vec<Access>, CreateMode);

pub(super) fn read_create(op: OpCode, reader: &mut Reader<'_>) -> Result<Creation, Malformed> {
    let (path, data, acl) = (reader.string()?, reader.data()?, reader.acl()?);
    let flag = reader.int()?;
    let mode = match op {
        OpCode::CREATE_TTL => CreateMode::Ttl {
            flag,
            ms: reader.long()?,
        },
        _ => CreateMode::from_flag(flag),
    };
    Ok((path, data, acl, mode))
}
