//! The numbers of the requests.

use super::types::CreateMode;

/// The number that stands for a kind of request.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct OpCode(pub i32);

impl OpCode {
    pub const CLOSE: Self = Self(-11);
    /// A part of a multi that failed.
    pub const ERROR: Self = Self(-1);
    pub const CREATE: Self = Self(1);
    pub const DELETE: Self = Self(2);
    pub const EXISTS: Self = Self(3);
    pub const GET_DATA: Self = Self(4);
    pub const SET_DATA: Self = Self(5);
    pub const GET_ACL: Self = Self(6);
    pub const SET_ACL: Self = Self(7);
    pub const GET_CHILDREN: Self = Self(8);
    pub const SYNC: Self = Self(9);
    pub const PING: Self = Self(11);
    pub const GET_CHILDREN2: Self = Self(12);
    /// A check, which is only a part of a multi.
    pub const CHECK: Self = Self(13);
    pub const MULTI: Self = Self(14);
    pub const CREATE2: Self = Self(15);
    pub const RECONFIG: Self = Self(16);
    pub const CHECK_WATCHES: Self = Self(17);
    pub const REMOVE_WATCHES: Self = Self(18);
    pub const CREATE_CONTAINER: Self = Self(19);
    /// The creation of a node with a time to live.
    pub const CREATE_TTL: Self = Self(21);
    pub const MULTI_READ: Self = Self(22);
    pub const AUTH: Self = Self(100);
    pub const SET_WATCHES: Self = Self(101);
    pub const SASL: Self = Self(102);
    pub const GET_EPHEMERALS: Self = Self(103);
    pub const COUNT_DESCENDANTS: Self = Self(104);
    pub const SET_WATCHES2: Self = Self(105);
    pub const ADD_WATCH: Self = Self(106);
    pub const WHO_AM_I: Self = Self(107);

    /// Returns the code of a creation. Containers and nodes with a time to live have their own codes, whose
    /// replies have a stat.
    pub(super) fn create(mode: CreateMode, stat: bool) -> Self {
        match (mode, stat) {
            (CreateMode::Container, _) => Self::CREATE_CONTAINER,
            (CreateMode::Ttl { .. }, _) => Self::CREATE_TTL,
            (_, true) => Self::CREATE2,
            (_, false) => Self::CREATE,
        }
    }
}
