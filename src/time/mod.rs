//! A clock, limits to waits, and times in messages.

pub(crate) mod clock;
pub(crate) mod limit;
pub(crate) mod utc;
