//! What all locks share.

mod downgrade;
pub(crate) mod driver;
pub(crate) mod mark;
mod multi;
pub(crate) mod raw_guard;
