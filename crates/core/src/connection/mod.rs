//! What decides about connections: which server is asked next and for how long, when one is left, how
//! long a client pauses, and which requests a server knows.
//!
//! - [`candidates`] puts the addresses of a round in order, and says how long each one has,
//! - [`rotation`] remembers which were tried,
//! - [`backoff`] says how long to pause between two attempts,
//! - [`promptness`] says when to leave a server that answers no request,
//! - [`server_features`] puts a request into the form that a server knows,
//! - [`watches`] says whom an event is for, and sets watches again.

pub mod backoff;
pub mod candidates;
pub mod promptness;
pub mod rotation;
pub mod server_features;
pub mod watches;

use alloc::borrow::ToOwned;

use zklock_jute::Request;

/// No node has this version: a write that names it fails, even if the node exists.
pub const NO_VERSION: i32 = i32::MIN;

/// What a transport can do.
#[derive(Clone, Copy, Debug)]
pub struct Capabilities {
    /// `Request::Multi` works.
    pub multi: bool,
    /// `Request::Sync` works: it waits for all earlier requests, and is sent as a refused write.
    pub sync: bool,
    /// The same session may continue after a break, and the transport reports whether it does.
    pub resumes: bool,
}

impl Capabilities {
    /// The request after whose answer a read in `dir` is up to date: a write that is refused.
    ///
    /// A refusal passes through the quorum, too. ZooKeeper's own sync is answered even by a
    /// leader that has been deposed and does not know it.
    pub fn sync(self, dir: &str) -> Request {
        match self.sync {
            true => Request::Sync {
                path: dir.to_owned(),
            },
            false => Request::Delete {
                path: format!("{dir}/_sync"),
                version: NO_VERSION,
            },
        }
    }
}

#[cfg(test)]
mod tests;
