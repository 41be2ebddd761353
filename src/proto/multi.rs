//! Several operations in one transaction, and what came of each.

use super::code::ErrorCode;
use super::jute::{Malformed, Reader, Writer};
use super::request::OpCode;
use super::types::{Access, CreateMode, Stat};

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

/// Returns what a multi failed with, if it did: the error of the part that is to blame, not
/// of those before and after it, which share its fate.
pub(crate) fn failure(results: &[Result<OpReply, ErrorCode>]) -> Option<ErrorCode> {
    let errors = || {
        results
            .iter()
            .filter_map(|result| result.as_ref().err().copied())
    };
    let to_blame =
        |code: &ErrorCode| *code != ErrorCode::OK && *code != ErrorCode::RUNTIME_INCONSISTENCY;
    errors().find(to_blame).or_else(|| errors().next())
}

/// What came of one part of a multi.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum OpReply {
    Checked,
    Created { path: String, stat: Option<Stat> },
    Deleted,
    Set(Stat),
}

/// Stands before every part, and alone after the last.
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

/// Returns `None` if one of the operations is of a kind this crate does not know.
pub(super) fn read_ops(reader: &mut Reader<'_>) -> Result<Option<Vec<Op>>, Malformed> {
    let mut ops = Vec::new();
    loop {
        let head = Head::read(reader)?;
        if head.done {
            return Ok(Some(ops));
        }
        match Op::read(head.op, reader)? {
            Some(op) => ops.push(op),
            None => return Ok(None),
        }
    }
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
    let mut results = Vec::new();
    loop {
        let head = Head::read(reader)?;
        if head.done {
            return Ok(results);
        }
        results.push(match head.op {
            OpCode::ERROR => Err(ErrorCode(reader.int()?)),
            op => Ok(OpReply::read(op, reader)?),
        });
    }
}

impl Op {
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
            } => {
                writer.path(path);
                writer.bytes(data);
                writer.int(*version);
            }
        }
    }

    fn read(op: OpCode, reader: &mut Reader<'_>) -> Result<Option<Self>, Malformed> {
        Ok(Some(match op {
            OpCode::CHECK => Self::Check {
                path: reader.string()?,
                version: reader.int()?,
            },
            OpCode::CREATE | OpCode::CREATE2 | OpCode::CREATE_CONTAINER => {
                let Some((path, data, acl, mode)) = read_create(reader)? else {
                    return Ok(None);
                };
                Self::Create {
                    path,
                    data,
                    acl,
                    mode,
                    stat: op != OpCode::CREATE,
                }
            }
            OpCode::DELETE => Self::Delete {
                path: reader.string()?,
                version: reader.int()?,
            },
            OpCode::SET_DATA => Self::SetData {
                path: reader.string()?,
                data: reader.bytes()?.to_vec(),
                version: reader.int()?,
            },
            _ => return Ok(None),
        }))
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
        }
    }

    fn write(&self, writer: &mut Writer<'_>) {
        match self {
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
            _ => return Err(Malformed("an unknown result in a multi")),
        })
    }
}

pub(super) fn write_create(
    writer: &mut Writer<'_>,
    path: &str,
    data: &[u8],
    acl: &[Access],
    mode: CreateMode,
) {
    writer.path(path);
    writer.bytes(data);
    writer.acl(acl);
    writer.int(mode.flag());
}

/// A request to create: path, data, access list, mode.
pub(super) type Creation = (String, Vec<u8>, Vec<Access>, CreateMode);

/// Returns `None` if the mode is one this crate does not know.
pub(super) fn read_create(reader: &mut Reader<'_>) -> Result<Option<Creation>, Malformed> {
    let (path, data, acl) = (reader.string()?, reader.bytes()?.to_vec(), reader.acl()?);
    let mode = CreateMode::from_flag(reader.int()?);
    Ok(mode.map(|mode| (path, data, acl, mode)))
}
