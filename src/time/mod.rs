//! A clock, and limits to waits.

pub(crate) mod clock;
pub(crate) mod limit;
pub(crate) mod utc;
