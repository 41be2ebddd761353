//! Values that several requests and replies share.

/// What the server knows about a node.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Stat {
    pub(crate) czxid: i64,
    pub(crate) mzxid: i64,
    pub(crate) ctime: i64,
    pub(crate) mtime: i64,
    pub(crate) version: i32,
    pub(crate) cversion: i32,
    pub(crate) aversion: i32,
    pub(crate) ephemeral_owner: i64,
    pub(crate) data_length: i32,
    pub(crate) num_children: i32,
    pub(crate) pzxid: i64,
}

/// What a node is: how long it lives, and whether the server numbers it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum CreateMode {
    Persistent,
    Ephemeral,
    PersistentSequential,
    EphemeralSequential,
    Container,
}

/// One entry of an access control list.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Access {
    pub(crate) permissions: Permissions,
    pub(crate) scheme: String,
    pub(crate) id: String,
}

/// What an [`Access`] allows: a set of bits.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Permissions(pub(crate) i32);

impl Permissions {
    pub(crate) const READ: Self = Self(1);
    pub(crate) const WRITE: Self = Self(2);
    pub(crate) const CREATE: Self = Self(4);
    pub(crate) const DELETE: Self = Self(8);
    pub(crate) const ADMIN: Self = Self(16);
    pub(crate) const ALL: Self = Self(31);
}
