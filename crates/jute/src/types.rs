//! Values that several requests and replies share.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Deref;

/// The server's account of a node.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Stat {
    pub czxid: i64,
    pub mzxid: i64,
    pub ctime: i64,
    pub mtime: i64,
    pub version: i32,
    pub cversion: i32,
    pub aversion: i32,
    pub ephemeral_owner: i64,
    pub data_length: i32,
    pub num_children: i32,
    pub pzxid: i64,
}

impl Stat {
    /// Returns whether a session owns the node. Servers show containers as persistent nodes.
    pub fn has_session(&self) -> bool {
        self.ephemeral_owner != 0
    }
}

/// A node's data. ZooKeeper distinguishes no data, which clients in Java and Python write as
/// null, from data of no bytes. The default is no data.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct Data(Option<Vec<u8>>);

impl Data {
    pub(super) fn as_option(&self) -> Option<&[u8]> {
        self.0.as_deref()
    }
}

impl From<Option<&[u8]>> for Data {
    fn from(bytes: Option<&[u8]>) -> Self {
        Self(bytes.map(<[u8]>::to_vec))
    }
}

impl From<Vec<u8>> for Data {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Some(bytes))
    }
}

impl From<Data> for Vec<u8> {
    fn from(data: Data) -> Self {
        data.0.unwrap_or_default()
    }
}

impl Deref for Data {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}

/// The kind of a node: how long it lives, and whether the server numbers it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum CreateMode {
    Persistent,
    Ephemeral,
    PersistentSequential,
    EphemeralSequential,
    Container,
    /// The mode 5 or 6, or a wrong one, with a time to live in milliseconds. This crate's client does
    /// not create them.
    Ttl {
        flag: i32,
        ms: i64,
    },
    /// A kind that this crate does not create.
    Other(i32),
}

impl CreateMode {
    pub fn flag(self) -> i32 {
        match self {
            Self::Persistent => 0,
            Self::Ephemeral => 1,
            Self::PersistentSequential => 2,
            Self::EphemeralSequential => 3,
            Self::Container => 4,
            Self::Ttl { flag, .. } | Self::Other(flag) => flag,
        }
    }

    /// Returns the mode that ZooKeeper makes of this one in a multi, where it ignores the time to live of
    /// every other kind of node.
    pub(super) fn of_a_part(self) -> Self {
        match self {
            Self::Ttl { flag: 5 | 6, .. } => self,
            _ => Self::from_flag(self.flag()),
        }
    }

    pub fn from_flag(flag: i32) -> Self {
        match flag {
            0 => Self::Persistent,
            1 => Self::Ephemeral,
            2 => Self::PersistentSequential,
            3 => Self::EphemeralSequential,
            4 => Self::Container,
            _ => Self::Other(flag),
        }
    }
}

/// One entry of an access control list.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Access {
    pub permissions: Permissions,
    pub scheme: String,
    pub id: String,
}

/// The set of bits that an [`Access`] allows.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Permissions(pub i32);

impl Permissions {
    pub const READ: Self = Self(1);
    pub const WRITE: Self = Self(2);
    pub const CREATE: Self = Self(4);
    pub const DELETE: Self = Self(8);
    pub const ADMIN: Self = Self(16);
    pub const ALL: Self = Self(31);
}

/// Credentials: sent, and never shown.
#[derive(Clone, Default, Eq, Hash, PartialEq)]
pub struct Secret(pub Vec<u8>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// A kind of watch, in removeWatches and checkWatches.
#[derive(Clone, Copy, Debug)]
pub struct WatchKind;

impl WatchKind {
    pub const CHILDREN: i32 = 1;
    pub const DATA: i32 = 2;
    pub const ANY: i32 = 3;
}

/// The watches that a client had on its last connection.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct WatchLists {
    /// The newest change that the client knows of: later events are due at once.
    pub since_zxid: i64,
    pub data: Vec<String>,
    pub exists: Vec<String>,
    pub children: Vec<String>,
    pub persistent: Vec<String>,
    pub recursive: Vec<String>,
}

impl WatchLists {
    /// Returns whether there are no watches in the lists.
    pub fn is_empty(&self) -> bool {
        let plain = [&self.data, &self.exists, &self.children];
        plain.iter().all(|list| list.is_empty()) && !self.has_persistent()
    }

    pub(super) fn has_persistent(&self) -> bool {
        !self.persistent.is_empty() || !self.recursive.is_empty()
    }
}

/// Returns whether ZooKeeper's `PathUtils` refuses this character in a path: a control character, one for
/// private use, the last 16 of two bytes, and whatever takes two UTF-16 units, such as an emoji.
pub fn is_refused_in_paths(c: char) -> bool {
    c.is_control() || matches!(c, '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..)
}
