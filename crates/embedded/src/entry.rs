//! One change in the log of a data folder, and its bytes.
//!
//! A change is recorded as what was asked for, with its time and the client that asked. The tree is pure,
//! so the same entries in the same order make the same tree.

use super::acl::Identity;
use super::node::ChangeTime;
use super::sessions::Password;
use super::write::Write;
use zklock_jute::{Malformed, Reader, Request, Writer};

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) at: ChangeTime,
    /// 0 for a change that the server makes by itself.
    pub(super) session: i64,
    pub(super) act: Act,
}

// Not `Debug` by itself: the password is a secret.
#[derive(Clone)]
pub(super) enum Act {
    /// A session has begun, or was resumed with another timeout.
    Begin {
        timeout_ms: i32,
        password: Password,
    },
    /// The session has ended, and its nodes with it.
    End,
    Write {
        who: Vec<Identity>,
        write: Write,
    },
    /// A node whose time is over is removed.
    Remove {
        path: String,
    },
}

impl std::fmt::Debug for Act {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.number())
    }
}

impl Act {
    fn number(&self) -> i32 {
        match self {
            Self::Begin { .. } => 1,
            Self::End => 2,
            Self::Write { .. } => 3,
            Self::Remove { .. } => 4,
        }
    }
}

impl Entry {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer::rooted(&mut bytes, "");
        writer.int(self.act.number());
        writer.long(self.at.zxid);
        writer.long(self.at.ms);
        writer.long(self.session);
        match &self.act {
            Act::Begin {
                timeout_ms,
                password,
            } => {
                writer.int(*timeout_ms);
                writer.bytes(password);
            }
            Act::End => {}
            Act::Write { who, write } => {
                writer.vector(who, |writer, identity| {
                    writer.string(&identity.scheme);
                    writer.string(&identity.id);
                });
                let mut frame = Vec::new();
                write.clone().into_request().encode(0, &mut frame);
                writer.bytes(frame.get(4..).unwrap_or_default());
            }
            Act::Remove { path } => writer.string(path),
        }
        bytes
    }

    /// Returns whether these bytes can be the beginning of an entry, or of a part of one.
    pub(super) fn may_begin_with(bytes: &[u8]) -> bool {
        let number = bytes
            .first_chunk()
            .map(|number| i32::from_be_bytes(*number));
        number.is_none_or(|number| (1..=4).contains(&number))
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let number = reader.int()?;
        let (zxid, ms) = (reader.long()?, reader.long()?);
        let session = reader.long()?;
        let act = match number {
            1 => Act::Begin {
                timeout_ms: reader.int()?,
                password: reader.bytes()?.try_into().map_err(|_| UNKNOWN)?,
            },
            2 => Act::End,
            3 => Act::Write {
                who: reader.vector(8, |reader| {
                    let (scheme, id) = (reader.string()?, reader.string()?);
                    Ok(Identity { scheme, id })
                })?,
                write: Write::from_request(Request::decode(reader.bytes()?)?.1).ok_or(UNKNOWN)?,
            },
            4 => Act::Remove {
                path: reader.string()?,
            },
            _ => return Err(UNKNOWN),
        };
        let at = ChangeTime { zxid, ms };
        Ok(Self { at, session, act })
    }
}

const UNKNOWN: Malformed = Malformed("an entry of another version");
