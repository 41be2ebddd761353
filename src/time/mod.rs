//! Clocks, and how long to wait.

pub(crate) mod clock;
pub(crate) mod limit;
