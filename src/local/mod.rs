//! The threads of one process, for every kind of lock.

pub(crate) mod owning_process;
pub(crate) mod thread_set;
pub(crate) mod turnstile;
