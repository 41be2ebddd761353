//! Who holds a lock, who waits for it and for which lock, and what a client has done: for programs
//! that look after locks rather than use them.
//!
//! | To learn | Call |
//! |---|---|
//! | who holds one lock, and who waits for it | [`Client::contenders`](crate::Client::contenders) |
//! | the same of all locks below a path | [`Client::locks`](crate::Client::locks) |
//! | who keeps a lock from its waiters, through other locks | [`Client::blockers`](crate::Client::blockers) |
//! | what this client has sent, waited for and lost | [`Client::metrics`](crate::Client::metrics) |

pub use crate::contender::Contender;
pub use crate::histogram::Histogram;
pub use crate::hold::Hold;
pub use crate::metrics::{LockMetrics, Metrics, Requests};
pub use crate::owner::Owner;
pub use crate::queues::{Blocker, Blockers, LockQueue, Locks};
