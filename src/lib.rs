//! A distributed lock for blocking Rust programs.
#![allow(dead_code, unused_imports, missing_docs, unreachable_pub)]
mod clock;
mod error;
mod guard;
#[cfg(feature = "mysql")]
pub mod mysql;
mod proto;
#[doc(hidden)]
pub mod protocol;
mod session;

pub use crate::error::{Error, Result};
pub use crate::guard::{FencingToken, GuardEvent, GuardState, LockGuard};
pub use crate::protocol::dialect::{Dialect, Role};
pub use crate::session::hub::{SessionEvent, SessionState};
