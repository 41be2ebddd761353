//! Everything behind the server's one lock: the state, and what every change does to it.
//!
//! All changes happen in one order, and what clients see of them goes into their outboxes in that order: an
//! event comes before the reply of any later state. Nothing here waits.
//!
//! ZooKeeper guarantees this, and no more. `FinalRequestProcessor` has `DataTree.processTxn` trigger the
//! watches, which queues the events, and queues the reply after that; one client's queue is written in
//! order. The queues of different clients are written by different threads: `NIOServerCnxnFactory` shuffles
//! the connections that are ready and hands them to a pool of workers, `NettyServerCnxn` leaves each to the
//! event loop of its channel. So a writer may read its reply before another client can read the event, here
//! as there: of 100 events 2 to 13 were late on a busy machine with two cores, on either server.
//!
//! More methods of the state are in other files: `clients` (connections and sessions that
//! begin), `requests` and `reads` (the answers to requests), `lag` (what a client of a lagging
//! follower sees), `expiry` (sessions that end) and `four_letter_words`.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crossbeam_channel::{Receiver, Sender, bounded};

use super::acl::Identity;
use super::change::TreeChange;
use super::config::ServerConfig;
use super::faults::Faults;
use super::follower::LaggingFollower;
use super::journal::Journal;
use super::node::ChangeTime;
use super::outbox::Outbox;
use super::sessions::Sessions;
use super::view::ServerView;
use super::watches::{ConnectionId, Notice};

pub(super) struct ServerState {
    pub(super) config: ServerConfig,
    pub(super) view: ServerView,
    pub(super) sessions: Sessions,
    pub(super) faults: Faults,
    pub(super) lag: Option<LaggingFollower>,
    pub(super) connections: BTreeMap<ConnectionId, ConnectionState>,
    pub(super) traffic: Traffic,
    /// How many credentials were of an unknown scheme.
    pub(super) refused_identities: u64,
    pub(super) started: Instant,
    pub(super) latest_connection: ConnectionId,
    /// Sessions that have ended, and when their nodes are removed.
    pub(super) lingering: Vec<(Instant, i64)>,
    pub(super) next_container_check: Instant,
    /// The log of a server with a data folder.
    pub(super) journal: Option<Journal>,
    /// Why there is no log any more.
    pub(super) failure: (Sender<io::Error>, Receiver<io::Error>),
}

#[derive(Debug)]
pub(super) struct ConnectionState {
    pub(super) peer: SocketAddr,
    pub(super) session: Option<i64>,
    pub(super) identities: Vec<Identity>,
    pub(super) traffic: Traffic,
    /// When the connection began, in milliseconds since the epoch.
    pub(super) since_ms: i64,
    pub(super) timeout_ms: i32,
    pub(super) last: LastRequest,
    pub(super) outbox: Arc<Outbox>,
}

/// The last request of a client, and when it was answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastRequest {
    pub(super) op: &'static str,
    pub(super) xid: i32,
    pub(super) zxid: i64,
    /// When the request was answered, in milliseconds since the server started.
    pub(super) at_ms: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Traffic {
    pub(super) received: u64,
    pub(super) sent: u64,
}

impl ServerState {
    pub(super) fn new(config: ServerConfig) -> Self {
        let now = Instant::now();
        // As in ZooKeeper, so that no session has the number of an earlier server's session.
        let first = (epoch_ms() << 24) >> 8 & (i64::MAX >> 8);
        Self {
            view: ServerView::new(first_zxid(), config.counters.clone()),
            sessions: Sessions::new(config.timeouts(), first),
            faults: Faults::default(),
            lag: None,
            connections: BTreeMap::new(),
            traffic: Traffic::default(),
            refused_identities: 0,
            started: now,
            latest_connection: 0,
            lingering: Vec::new(),
            next_container_check: now + config.container_check,
            journal: None,
            failure: bounded(1),
            config,
        }
    }

    /// Forgets a connection that is closed; its session goes on until its timeout.
    pub(super) fn disconnected(&mut self, id: ConnectionId) {
        self.view.watches.forget(id);
        if let Some(lag) = &mut self.lag {
            lag.forget(id);
        }
        let connection = self.connections.remove(&id);
        let session = connection.and_then(|connection| connection.session);
        if let Some(session) = session.and_then(|session| self.sessions.get_mut(session)) {
            session.connection = session.connection.filter(|other| *other != id);
        }
    }

    /// Cuts the connections for which `which` is true; returns whether there were any.
    pub(super) fn disconnect(&mut self, which: impl Fn(&ConnectionState) -> bool) -> bool {
        let wanted =
            |(id, connection): (&ConnectionId, &ConnectionState)| which(connection).then_some(*id);
        let ids: Vec<_> = self.connections.iter().filter_map(wanted).collect();
        ids.iter().for_each(|id| self.cut(*id));
        !ids.is_empty()
    }

    /// Begins the next change, and returns its time.
    pub(super) fn advance(&mut self) -> ChangeTime {
        self.view.zxid += 1;
        ChangeTime {
            zxid: self.view.zxid,
            ms: epoch_ms(),
        }
    }

    /// Fires the watches on each change.
    pub(super) fn announce(&mut self, changes: &[TreeChange]) {
        for change in changes {
            if let Some(lag) = &mut self.lag {
                lag.miss(change);
            }
            for notice in self.view.watches.fire(change) {
                self.tell(notice);
            }
        }
    }

    pub(super) fn tell(&mut self, notice: Notice) {
        let Some(connection) = self.connections.get_mut(&notice.watcher) else {
            return;
        };
        // The watch has fired, even if the client may not learn why.
        if let Some(frame) = notice.frame_for(&connection.identities) {
            connection.put(frame);
        }
    }

    pub(super) fn cut(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get(&id) {
            connection.outbox.cut();
        }
        self.disconnected(id);
    }

    /// Converts a time on the server's clock to one since the epoch.
    pub(super) fn epoch_ms_at(&self, ms: u64) -> u64 {
        let ahead = ms.saturating_sub(self.now_ms());
        u64::try_from(epoch_ms()).unwrap_or(0) + ahead
    }

    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl ConnectionState {
    pub(super) fn put(&mut self, frame: Vec<u8>) {
        self.traffic.sent += 1;
        self.outbox.put(frame);
    }
}

/// Returns a zxid above those of any earlier server at this address, also of one that began in this millisecond.
///
/// A server refuses a client that has seen more than the server has. With lower zxids, the clients of an earlier
/// server could not connect to learn that their sessions have ended. There are 4096 zxids a millisecond: more than
/// a server can use, and few enough that a double-precision number can still tell them apart.
fn first_zxid() -> i64 {
    i64::try_from(since_epoch().as_nanos() * 4096 / 1_000_000).unwrap_or(i64::MAX)
}

pub(super) fn epoch_ms() -> i64 {
    i64::try_from(since_epoch().as_millis()).unwrap_or(i64::MAX)
}

fn since_epoch() -> Duration {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}
