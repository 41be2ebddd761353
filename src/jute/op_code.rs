//! The numbers of the requests.

use super::types::CreateMode;

/// The number that stands for a kind of request.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct OpCode(pub(crate) i32);

impl OpCode {
    pub(crate) const CLOSE: Self = Self(-11);
    /// A part of a multi that failed.
    pub(crate) const ERROR: Self = Self(-1);
    pub(crate) const CREATE: Self = Self(1);
    pub(crate) const DELETE: Self = Self(2);
    pub(crate) const EXISTS: Self = Self(3);
    pub(crate) const GET_DATA: Self = Self(4);
    pub(crate) const SET_DATA: Self = Self(5);
    pub(crate) const GET_ACL: Self = Self(6);
    pub(crate) const SET_ACL: Self = Self(7);
    pub(crate) const GET_CHILDREN: Self = Self(8);
    pub(crate) const SYNC: Self = Self(9);
    pub(crate) const PING: Self = Self(11);
    pub(crate) const GET_CHILDREN2: Self = Self(12);
    /// Only as a part of a multi.
    pub(crate) const CHECK: Self = Self(13);
    pub(crate) const MULTI: Self = Self(14);
    pub(crate) const CREATE2: Self = Self(15);
    pub(crate) const RECONFIG: Self = Self(16);
    pub(crate) const CHECK_WATCHES: Self = Self(17);
    pub(crate) const REMOVE_WATCHES: Self = Self(18);
    pub(crate) const CREATE_CONTAINER: Self = Self(19);
    /// With a time to live.
    pub(crate) const CREATE_TTL: Self = Self(21);
    pub(crate) const MULTI_READ: Self = Self(22);
    pub(crate) const AUTH: Self = Self(100);
    pub(crate) const SET_WATCHES: Self = Self(101);
    #[cfg(any(feature = "embedded", feature = "sasl"))]
    pub(crate) const SASL: Self = Self(102);
    pub(crate) const GET_EPHEMERALS: Self = Self(103);
    pub(crate) const COUNT_DESCENDANTS: Self = Self(104);
    pub(crate) const SET_WATCHES2: Self = Self(105);
    pub(crate) const ADD_WATCH: Self = Self(106);
    pub(crate) const WHO_AM_I: Self = Self(107);

    /// The code of a creation; containers and nodes with a time to live have their own, whose
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
