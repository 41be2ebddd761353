//! ZooKeeper's wire format ("jute"), in both directions.
//!
//! The transport encodes requests and decodes replies; the embedded server does the opposite. The crate is
//! data and its encoding: no sockets, no clock, no session. The bytes come from the network, so none may
//! cause a panic, and a length among them allocates no more than the bytes that follow can fill.

#![cfg_attr(not(test), no_std)]
// The names of fields are those of `zookeeper.jute`, which says what they mean.
#![allow(missing_docs)]

#[macro_use]
extern crate alloc;

mod child_names;
mod codec;
mod connect;
mod error_code;
mod multi;
mod op_code;
mod reply;
mod request;
mod sasl;
#[cfg(test)]
mod tests;
mod types;

pub use self::child_names::Names;
pub use self::codec::{Malformed, Reader, Writer};
pub use self::connect::{ConnectReply, ConnectRequest};
pub use self::error_code::ErrorCode;
pub use self::multi::{culprit, failure};
pub use self::op_code::OpCode;
pub use self::reply::{Event, EventKind, Reply, ReplyHeader, below, xid};
pub use self::request::Request;
pub use self::sasl::{SaslReply, encode_sasl};
pub use self::types::{
    Access, CreateMode, Data, Permissions, Secret, Stat, WatchKind, WatchLists, is_refused_in_paths,
};
