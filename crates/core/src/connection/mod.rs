//! The decisions about connections: which server is asked next and for how long, when to leave a server,
//! how long a client pauses, and which requests a server knows.
//!
//! - [`rotation`] remembers which servers were tried, puts the addresses of a round in order, and sets the time
//!   for each,
//! - [`backoff`] says how long to pause between two attempts,
//! - [`session`] judges greetings, and says when a session is given up that goes on without its client,
//! - [`promptness`] says when to leave a server that answers no request,
//! - [`link`] says what a connection does with each call and each frame, and what becomes of the calls in flight,
//! - [`server_features`] puts a request into the form that a server knows,
//! - [`watches`] says which users an event is for, and sets watches again.

pub mod backoff;
pub mod link;
pub mod promptness;
pub mod rotation;
pub mod server_features;
pub mod session;
pub mod watches;

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::path::{name, node_in};
use zklock_jute::{Malformed, Request};

/// Why a connection ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum End {
    /// The client asked for the end of the session.
    Closed,
    /// The server refused the credentials, which ends the client. A login names its principal, and the reason.
    Refused(Option<(String, String)>),
    /// The session expired.
    Expired,
    /// The server closed the connection.
    HungUp,
    /// The client leaves a server that does not answer its requests.
    Unanswered,
    /// The client leaves a server that is no longer a member of the ensemble.
    LeftOut,
    /// The client leaves a server whose data are wrong.
    Diverged,
    /// It broke, or the server broke the protocol.
    Broken(String),
}

/// A version that no node has: a write that names it fails, even if the node exists.
pub const NO_VERSION: i32 = i32::MIN;

/// The name of a node that nobody creates.
const SYNC: &str = "_sync";

/// Returns the request after whose answer a read in `dir` is up to date: a write that is refused.
///
/// A refusal passes through the quorum, too. ZooKeeper's own sync is answered even by a leader that has been deposed
/// and does not know it. A leader answers that of its own client at once, and it waits for what the session asked of
/// another server only if the leader passes that through its commit processor (ZOOKEEPER-3690).
pub fn sync(dir: &str) -> Request {
    refused_write(node_in(dir, SYNC))
}

/// Returns whether this is a [`sync`], which is sent after the answers to all earlier requests.
pub fn is_sync(request: &Request) -> bool {
    matches!(request, Request::SetData { path, version: NO_VERSION, .. } if name(path) == SYNC)
}

/// Returns a write to a node that does not exist: the quorum refuses it.
///
/// With `enableEagerACLCheck`, a follower refuses a write by itself if the rights to the written node, or to the
/// parent of a created or deleted one, do not allow it. A missing node has no rights that could be checked.
pub fn refused_write(path: String) -> Request {
    Request::set(path, Vec::new(), NO_VERSION)
}

impl From<Malformed> for End {
    fn from(malformed: Malformed) -> Self {
        Self::Broken(malformed.to_string())
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "the client was closed",
            Self::Refused(_) => "the server refused the credentials",
            Self::Expired => "the session expired",
            Self::HungUp => "the server closed the connection",
            Self::LeftOut => "the ensemble goes on without this server",
            Self::Diverged => "its data differ from those of the ensemble",
            Self::Unanswered => "it answers nothing any more",
            Self::Broken(reason) => reason,
        })
    }
}

#[cfg(test)]
mod tests;
