//! What can go wrong in an ensemble.

use std::time::Duration;

use zklock_embedded::RequestKind;

/// A fault, or its end.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Cuts a server off from all other servers. Its clients still reach it.
    Cut {
        /// The number of the server, from 0.
        server: usize,
    },
    /// Ends `Cut`; what was sent meanwhile arrives, as with TCP.
    Heal {
        /// The number of the server, from 0.
        server: usize,
    },
    /// Has a server apply each change this much later than it hears of it.
    Lag {
        /// The number of the server, from 0.
        server: usize,
        /// How much later.
        by: Duration,
    },
    /// Ends `Lag`; the server applies what it has heard of.
    CatchUp {
        /// The number of the server, from 0.
        server: usize,
    },
    /// Stops a server and all of its connections; its log stays.
    Crash {
        /// The number of the server, from 0.
        server: usize,
    },
    /// Starts a server that has crashed.
    Restart {
        /// The number of the server, from 0.
        server: usize,
    },
    /// Has a server do nothing for a while, and then all that it has missed.
    Pause {
        /// The number of the server, from 0.
        server: usize,
        /// For how long.
        time: Duration,
    },
    /// Has the leader resign. The servers elect `to`, unless others know of more changes.
    ChangeLeader {
        /// The number of the server, from 0.
        to: usize,
    },
    /// Sets a server's wall clock forward.
    SetClock {
        /// The number of the server, from 0.
        server: usize,
        /// By how much.
        by: Duration,
    },
    /// Ends a session, as an administrator can. Without a leader, nothing happens; the same
    /// holds for `Evict` and `Revoke`.
    Expire {
        /// The number of the session.
        session: i64,
    },
    /// Deletes a node, as an administrator can.
    Evict {
        /// The path of the node.
        path: String,
    },
    /// Writes Curator's request to release the lock into a node.
    Revoke {
        /// The path of the node.
        path: String,
    },
    /// Has a server keep a node that is deleted, as one whose data have diverged: its clients
    /// see the node for ever, and get no event. A server that is elected leader builds its
    /// data anew: with a leader whose data are wrong, nothing can be promised.
    Ghost {
        /// The number of the server, from 0.
        server: usize,
        /// The path of the node.
        path: String,
    },
    /// Has a server throw its data away, with its ghosts, and build them anew from the log. Its
    /// connections end.
    Rebuild {
        /// The number of the server, from 0.
        server: usize,
    },
    /// Carries out the next request, or the next one of a kind, and ends the connection
    /// instead of answering.
    LoseNextReply {
        /// `None` stands for any kind.
        kind: Option<RequestKind>,
    },
    /// Has a server accept no connections, or accept them again.
    Refuse {
        /// The number of the server, from 0.
        server: usize,
        /// Whether it refuses.
        on: bool,
    },
    /// Ends the connections of a server, or of all.
    Disconnect {
        /// `None` stands for all.
        server: Option<usize>,
    },
    /// Delays one in five of the leader's pings by up to this much; no later ping overtakes it.
    /// Zero ends this.
    LatePings {
        /// The longest delay.
        by: Duration,
    },
    /// Ends all lasting faults except `Ghost`.
    Calm,
}
