//! The requests that a server has not answered yet, in the order in which it answers them.
//!
//! They are kept as ZooKeeper's `CommitProcessor` keeps them: a queue for each session, whatever the
//! connection, and one for the requests of all sessions that wait for the leader. A transaction
//! answers the first of these if its session and number are the same; who asked for the transaction is not
//! compared. So of two processes that use one session through two servers, and whose requests have
//! one number, one gets the answer to the other's. Its own transaction then answers nobody.
//!
//! A leader keeps the requests of its followers too. It has all of them in the order of the log, so
//! that it takes none for another.

use std::collections::{BTreeMap, VecDeque};

use super::connection::ConnectionNo;
use super::message::Deed;
use zklock_embedded::RequestKind;
use zklock_embedded::parts::Write;
use zklock_jute::{CreateMode, ErrorCode, Reply, Request, Stat, failure};

/// The requests that wait at a server.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// The queues of the sessions.
    queues: BTreeMap<i64, VecDeque<Pending>>,
    /// The session and the number of each request that has gone to the leader.
    ordered: VecDeque<(i64, i32)>,
}

/// A request that waits for those before it, or for the leader.
#[derive(Debug)]
pub(super) struct Pending {
    /// It may have ended.
    pub(super) connection: ConnectionNo,
    pub(super) xid: i32,
    pub(super) kind: Option<RequestKind>,
    pub(super) work: Work,
}

#[derive(Debug)]
pub(super) enum Work {
    Read(Request),
    Ping,
    Fail(ErrorCode),
    /// It was sent to the leader.
    Ordered(Shape),
    /// As `Ordered`, for a sync.
    Sync {
        path: String,
    },
    /// As `Ordered`, for the end of the session.
    Close,
}

/// What the answer to a request consists of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Shape {
    Nothing,
    Path,
    PathAndStat,
    Stat,
    Parts,
}

impl Waiting {
    pub(super) fn push(&mut self, session: i64, pending: Pending) {
        if pending.work.is_ordered() {
            self.ordered.push_back((session, pending.xid));
        }
        self.queues.entry(session).or_default().push_back(pending);
    }

    /// Takes the request that is answered by what has this session and number, if there is one.
    pub(super) fn take(&mut self, session: i64, xid: i32) -> Option<Pending> {
        self.ordered
            .pop_front_if(|first| *first == (session, xid))?;
        self.pop(session, Work::is_ordered)
    }

    /// Takes the first request of a session, if it waits for nothing.
    pub(super) fn take_ready(&mut self, session: i64) -> Option<Pending> {
        self.pop(session, |work| !work.is_ordered())
    }

    fn pop(&mut self, session: i64, is_it: impl FnOnce(&Work) -> bool) -> Option<Pending> {
        let queue = self.queues.get_mut(&session)?;
        let first = queue.pop_front_if(|pending| is_it(&pending.work));
        if queue.is_empty() {
            self.queues.remove(&session);
        }
        first
    }
}

impl Work {
    fn is_ordered(&self) -> bool {
        match self {
            Self::Read(_) | Self::Ping | Self::Fail(_) => false,
            Self::Ordered(_) | Self::Sync { .. } | Self::Close => true,
        }
    }

    /// Returns what a server answers when a transaction was taken for that of this request: it makes
    /// the answer from what the transaction did. If a part of it is missing, it fails to send any.
    pub(super) fn answer(
        self,
        deed: &Deed,
        result: Result<Reply, ErrorCode>,
    ) -> Option<Result<Reply, ErrorCode>> {
        let shape = match self {
            Self::Sync { path } => return Some(result.map(|_| Reply::Synced { path })),
            Self::Ordered(shape) => shape,
            _ => Shape::Nothing,
        };
        match result {
            Ok(reply) if shape != Shape::of(deed) => shape.filled(deed, &reply),
            result => Some(result),
        }
    }
}

impl Shape {
    pub(super) fn of(deed: &Deed) -> Self {
        match deed {
            Deed::Write(Write::One(Request::Create { mode, stat, .. })) => match mode {
                CreateMode::Container | CreateMode::Ttl { .. } => Self::PathAndStat,
                _ if *stat => Self::PathAndStat,
                _ => Self::Path,
            },
            Deed::Write(Write::One(Request::SetData { .. }) | Write::SetAcl { .. }) => Self::Stat,
            Deed::Write(Write::Multi(_)) => Self::Parts,
            _ => Self::Nothing,
        }
    }

    /// Fills in what another kind of transaction did.
    fn filled(self, deed: &Deed, reply: &Reply) -> Option<Result<Reply, ErrorCode>> {
        let path = match (deed, reply) {
            (_, Reply::Created { path, .. }) => path,
            (
                Deed::Write(Write::One(
                    Request::SetData { path, .. } | Request::Delete { path, .. },
                )),
                _,
            ) => path,
            _ => "",
        };
        let stat = match reply {
            Reply::Created { stat, .. } => *stat,
            Reply::Stat(stat) => Some(*stat),
            _ => None,
        };
        let failed = match reply {
            Reply::Multi(results) => failure(results),
            _ => None,
        };
        let created = |stat: Option<Stat>| Reply::Created {
            path: path.to_owned(),
            stat,
        };
        match self {
            Self::Nothing => Some(failed.map_or(Ok(Reply::Nothing), Err)),
            Self::Path => Some(failed.map_or_else(|| Ok(created(None)), Err)),
            Self::PathAndStat => stat.map(|stat| Ok(created(Some(stat)))),
            Self::Stat => stat.map(|stat| Ok(Reply::Stat(stat))),
            Self::Parts => Some(Err(ErrorCode::MARSHALLING_ERROR)),
        }
    }
}
