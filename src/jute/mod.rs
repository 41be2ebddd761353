//! ZooKeeper's wire format ("jute"), in both directions.
//!
//! The transport encodes requests and decodes replies; the embedded server does the
//! opposite. This is data and its encoding: no sockets, no clock, no session. The bytes come
//! from the network, so none may cause a panic, and a length among them allocates no more
//! than the bytes that follow can fill.

mod child_names;
mod codec;
mod connect;
mod error_code;
mod multi;
mod op_code;
mod reply;
mod request;
#[cfg(feature = "sasl")]
mod sasl;
#[cfg(test)]
mod tests;
mod types;

pub use self::child_names::Names;
pub(crate) use self::codec::Malformed;
#[cfg(feature = "embedded")]
pub(crate) use self::codec::{Reader, Writer};
pub(crate) use self::connect::{ConnectReply, ConnectRequest};
pub(crate) use self::error_code::ErrorCode;
pub(crate) use self::multi::{Op, OpReply, culprit, failure};
pub(crate) use self::op_code::OpCode;
pub(crate) use self::reply::{Event, EventKind, Reply, ReplyHeader, xid};
pub(crate) use self::request::Request;
#[cfg(feature = "sasl")]
pub(crate) use self::sasl::{SaslReply, encode_sasl};
pub(crate) use self::types::{
    Access, CreateMode, Permissions, Secret, Stat, WatchKind, WatchLists,
};
#[cfg(any(test, feature = "embedded"))]
pub(crate) use self::{multi::ReadOp, types::Data};
