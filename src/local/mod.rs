//! The threads of one process, for every kind of lock.

pub(crate) mod process;
pub(crate) mod thread_set;
pub(crate) mod turnstile;
