//! The process that owns a session: after a fork, two processes have the same memory.
//!
//! A forked child has a copy of every client and every guard, and shares their sockets, but has
//! none of their threads. The session stays with the parent: the child uses, closes and releases
//! nothing of it.

use crate::system::process;

/// The process that created a client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Process(u32);

impl Process {
    pub(crate) fn this() -> Self {
        Self(process::id())
    }

    /// Returns whether this code runs in another process: a forked child. Costs a system call.
    pub(crate) fn is_another(self) -> bool {
        self != Self::this()
    }
}

impl Default for Process {
    fn default() -> Self {
        Self::this()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_knows_itself_from_another() {
        assert!(!Process::this().is_another());
        assert!(Process(process::id() + 1).is_another());
    }
}
