//! How each request is written and read.

use alloc::vec::Vec;

use super::Request;
use crate::codec::{Malformed, Reader, Writer};
use crate::error_code::ErrorCode;
use crate::multi::{READS, WRITES, read_parts, write_parts};
use crate::op_code::OpCode;
use crate::types::{Access, CreateMode, Data, Secret};

impl Request {
    pub(super) fn write(&self, writer: &mut Writer<'_>) {
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
            Self::Multi(ops) | Self::MultiRead(ops) => write_ops(ops, writer),
            Self::Auth {
                scheme,
                credentials,
            } => write_auth(writer, scheme, credentials),
            Self::SetWatches(lists) => writer.watch_lists(lists),
            Self::Delete { path, version } | Self::Check { path, version } => {
                write_path_int(writer, path, *version);
            }
            Self::CheckWatches { path, kind: number }
            | Self::RemoveWatches { path, kind: number }
            | Self::AddWatch { path, mode: number } => write_path_int(writer, path, *number),
            Self::Ping | Self::WhoAmI | Self::Close | Self::Unknown(_) => {}
        }
    }

    pub(super) fn read(op: OpCode, reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match op {
            OpCode::PING => Self::Ping,
            OpCode::WHO_AM_I => Self::WhoAmI,
            OpCode::CLOSE => Self::Close,
            OpCode::MULTI => Self::Multi(read_ops(&WRITES, reader)?),
            OpCode::MULTI_READ => Self::MultiRead(read_ops(&READS, reader)?),
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
                read_create(op, reader)?
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
            OpCode::CHECK => |path, version| Self::Check { path, version },
            OpCode::CHECK_WATCHES => |path, kind| Self::CheckWatches { path, kind },
            OpCode::REMOVE_WATCHES => |path, kind| Self::RemoveWatches { path, kind },
            OpCode::ADD_WATCH => |path, mode| Self::AddWatch { path, mode },
            _ => return Ok(Self::Unknown(op)),
        };
        Ok(request(reader.string()?, reader.int()?))
    }
}

fn write_ops(ops: &[Request], writer: &mut Writer<'_>) {
    let head = |op: &Request| (op.op(), ErrorCode(-1));
    write_parts(ops, writer, head, Request::write);
}

/// Reads the parts of a transaction, each of one of these kinds.
fn read_ops(kinds: &[OpCode], reader: &mut Reader<'_>) -> Result<Vec<Request>, Malformed> {
    read_parts(reader, |op, reader| {
        if !kinds.contains(&op) {
            return Err(Malformed("an unknown part of a multi"));
        }
        let mut part = Request::read(op, reader)?;
        if let Request::Create { mode, .. } = &mut part {
            *mode = mode.of_a_part();
        }
        Ok(part)
    })
}

fn write_create(
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

fn read_create(op: OpCode, reader: &mut Reader<'_>) -> Result<Request, Malformed> {
    let (path, data, acl) = (reader.string()?, reader.data()?, reader.acl()?);
    let flag = reader.int()?;
    let mode = match op {
        OpCode::CREATE_TTL => CreateMode::Ttl {
            flag,
            ms: reader.long()?,
        },
        _ => CreateMode::from_flag(flag),
    };
    Ok(Request::Create {
        path,
        data,
        acl,
        mode,
        stat: op != OpCode::CREATE,
    })
}

fn write_set_data(writer: &mut Writer<'_>, path: &str, data: &Data, version: i32) {
    writer.path(path);
    writer.data(data);
    writer.int(version);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reply;

    #[test]
    fn a_transaction_has_no_other_one_in_it_however_deep() {
        let path = || "/a".into();
        let all = [
            Request::Multi(vec![Request::Multi(Vec::new())]),
            Request::Multi(vec![Request::get("/a")]),
            Request::Multi(vec![Request::Ping]),
            Request::MultiRead(vec![Request::delete(path())]),
            Request::MultiRead(vec![Request::MultiRead(Vec::new())]),
        ];
        for request in all {
            let mut frame = Vec::new();
            request.encode(1, &mut frame);
            assert!(Request::decode(&frame[4..]).is_err(), "{request:?}");
        }
        let head = [&[0, 0, 0, 14, 0][..], &[0; 4]].concat();
        assert!(Reply::decode(OpCode::MULTI, &head.repeat(100_000)).is_err());
    }
}
