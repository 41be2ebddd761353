//! A distributed lock for blocking Rust programs.

mod abandonment;
mod acl;
mod client;
mod clock;
mod contender;
mod downgrade;
#[cfg(feature = "embedded")]
pub mod embedded;
mod error;
mod guard;
mod hold;
mod hold_all;
mod metrics;
mod multi_lock;
mod mutex;
#[cfg(feature = "mysql")]
pub mod mysql;
mod options;
mod owner;
mod path;
mod proto;
#[doc(hidden)]
pub mod protocol;
mod reentrant_mutex;
mod rwlock;
mod semaphore;
mod session;
/// What tests in here share with those in `tests`.
#[cfg(test)]
#[path = "../tests/support/mod.rs"]
mod support;
#[cfg(feature = "tls")]
mod tls;

pub use crate::acl::{Acl, Permission};
pub use crate::client::{Client, ClientBuilder};
pub use crate::contender::Contender;
pub use crate::error::{Error, Result};
pub use crate::guard::{FencingToken, GuardEvent, GuardState, LockGuard};
pub use crate::metrics::{Histogram, Metrics, Requests};
pub use crate::multi_lock::{MultiGuard, MultiLock};
pub use crate::mutex::{Mutex, MutexGuard, SendGuard};
pub use crate::options::{LockOptions, Waiting};
pub use crate::owner::Owner;
pub use crate::protocol::dialect::{Dialect, Role};
pub use crate::reentrant_mutex::{ReentrantMutex, ReentrantMutexGuard};
pub use crate::rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use crate::semaphore::{Permit, Semaphore};
pub use crate::session::hub::{SessionEvent, SessionState};
#[cfg(feature = "tls")]
pub use crate::tls::Tls;
