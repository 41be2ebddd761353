//! The faults that tests inject.
//!
//! Faults of the network concern every connection: the threads that read and write look them
//! up. The others happen once, inside the server, at the request that they were set for.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use zklock_jute::{OpCode, Request};

/// A kind of request, to choose whose reply is lost.
///
/// ```
/// use zklock::Client;
/// use zklock::embedded::{RequestKind, Server};
///
/// let server = Server::start()?;
/// let client = Client::connect(server.hosts())?;
/// let mutex = client.mutex("/locks/report")?;
/// drop(mutex.lock()?); // now the lock's directory is there
///
/// // The lock's node is made, and the client does not hear of it.
/// server.drop_next_reply_to(RequestKind::Create);
/// let guard = mutex.lock()?;
/// assert_eq!(guard.node().rsplit_once('/').unwrap().0, "/locks/report");
/// assert_eq!(server.nodes().last().unwrap(), guard.node());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum RequestKind {
    /// Creating a node, of any kind.
    Create,
    /// Deleting a node.
    Delete,
    /// Writing a node's data or its access control list.
    Set,
    /// Reading a node: its data, its access control list, or whether it exists.
    Get,
    /// Listing a node's children.
    List,
    /// Several operations in one transaction.
    Multi,
    /// Waiting for the server to catch up.
    Sync,
    /// Ending the session.
    Close,
}

/// Faults of the network.
#[derive(Debug, Default)]
pub(super) struct NetworkFaults {
    blackhole: AtomicBool,
    delay_micros: AtomicU64,
}

/// Faults inside the server.
#[derive(Debug, Default)]
pub struct Faults {
    drop_reply: Option<LostReply>,
    hide_next: bool,
    pub(super) linger: Duration,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum LostReply {
    Any,
    Of(RequestKind),
}

impl RequestKind {
    fn of(request: &Request) -> Option<Self> {
        Some(match request.op() {
            OpCode::CREATE | OpCode::CREATE2 | OpCode::CREATE_CONTAINER | OpCode::CREATE_TTL => {
                Self::Create
            }
            OpCode::DELETE => Self::Delete,
            OpCode::SET_DATA | OpCode::SET_ACL => Self::Set,
            OpCode::EXISTS | OpCode::GET_DATA | OpCode::GET_ACL => Self::Get,
            OpCode::GET_CHILDREN | OpCode::GET_CHILDREN2 => Self::List,
            OpCode::MULTI => Self::Multi,
            OpCode::SYNC => Self::Sync,
            OpCode::CLOSE => Self::Close,
            _ => return None,
        })
    }
}

impl NetworkFaults {
    pub(super) fn is_blackhole(&self) -> bool {
        self.blackhole.load(Ordering::SeqCst)
    }

    pub(super) fn set_blackhole(&self, on: bool) {
        self.blackhole.store(on, Ordering::SeqCst);
    }

    pub(super) fn delay(&self) -> Duration {
        Duration::from_micros(self.delay_micros.load(Ordering::SeqCst))
    }

    pub(super) fn set_delay(&self, delay: Duration) {
        // A day is as good as forever, and cannot overflow a time.
        let delay = delay.min(Duration::from_secs(24 * 60 * 60));
        let micros = u64::try_from(delay.as_micros()).unwrap_or(0);
        self.delay_micros.store(micros, Ordering::SeqCst);
    }
}

impl Faults {
    /// Loses the next reply, to a request of this kind if there is one.
    pub fn drop_next_reply(&mut self, kind: Option<RequestKind>) {
        self.drop_reply = Some(kind.map_or(LostReply::Any, LostReply::Of));
    }

    pub(super) fn hide_next_create(&mut self) {
        self.hide_next = true;
    }

    /// Returns whether the reply to this request is lost.
    pub fn loses_reply_to(&mut self, kind: Option<RequestKind>) -> bool {
        let lost = match (self.drop_reply, kind) {
            (Some(LostReply::Any), Some(_)) => true,
            (Some(LostReply::Of(wanted)), Some(kind)) => wanted == kind,
            _ => false,
        };
        if lost {
            self.drop_reply = None;
        }
        lost
    }

    /// Returns the kind of a request that can be named.
    pub fn kind(request: &Request) -> Option<RequestKind> {
        RequestKind::of(request)
    }

    /// Returns whether a follower begins to lag with the next ephemeral node.
    pub(super) fn hides_next(&self) -> bool {
        self.hide_next
    }

    pub(super) fn hide_none(&mut self) {
        self.hide_next = false;
    }
}
