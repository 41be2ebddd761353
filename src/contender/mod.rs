//! The contenders of a lock: its holders and its waiters.

mod changes;

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use serde_json::Value;

use crate::error::{Error, Result};
use crate::hold::Hold;
use crate::owner::Owner;
use crate::path;
use crate::session::Session;
use crate::session::call_error::{CallError, refused};
use crate::session::queries::Seen;
use crate::system::process;
use crate::time::limit::Limit;
use crate::time::utc;
use crate::token::FencingToken;
use zklock_core::connection::sync;
use zklock_core::dialect::Role;
use zklock_core::name::{NodeName, may_ask};
use zklock_core::permits::number;
use zklock_core::places::{Places, Spot, Spots};
use zklock_jute::{ErrorCode, Reply, Request, Stat};

/// A holder of a lock or a waiter for it, of this library or another.
///
/// A contender shows its state when it was listed.
///
/// # Example
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zklock::embedded::Server::start()?;
/// # let client = zklock::Client::connect(server.hosts())?;
/// let guard = client.mutex("/locks/nightly-report")?.lock()?;
/// for contender in client.contenders("/locks/nightly-report")? {
///     let does = if contender.holds() { "holds" } else { "waits" };
///     println!("{contender} {does} since {:?}", contender.since()); // db1 pid 4711 (report)
///     assert_eq!(contender.node(), guard.node());
///     contender.revoke()?; // asks it to release the lock
/// }
/// assert_eq!(guard.events().recv()?, zklock::GuardEvent::RevokeRequested);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Contender {
    session: Arc<Session>,
    node: String,
    role: Role,
    holds: bool,
    stat: Stat,
    owner: Owner,
    hold: Option<Hold>,
    /// The number of its thread, if its data has one; it tells threads of one name apart.
    thread: Option<u64>,
    token: FencingToken,
}

impl Contender {
    pub(crate) fn new(
        session: &Arc<Session>,
        node: String,
        holds: bool,
        stat: Stat,
        data: &[u8],
    ) -> Self {
        let name = NodeName::parse(path::name(&node));
        let card = serde_json::from_slice(data).unwrap_or(Value::Null);
        // A writer that became a reader keeps its token. No client can claim a later one.
        let kept = card["token"].as_i64().filter(|token| *token < stat.czxid);
        let is_hold = name.is_some_and(|name| name.is_hold() && !stat.has_session());
        Self {
            session: session.clone(),
            role: name.map_or(Role::Exclusive, |name| name.kind.role()),
            node,
            holds,
            stat,
            owner: Owner::parse(data),
            hold: is_hold.then(|| Hold::read(data, &stat)),
            thread: card["thread_id"].as_u64(),
            token: FencingToken::new(kept.unwrap_or(stat.czxid)),
        }
    }

    /// Returns the full path of the contender's node.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// Returns what the contender asks for.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Returns whether the contender held the lock, or one of the permits, when it was listed.
    pub fn holds(&self) -> bool {
        self.holds
    }

    /// Returns the session that the node belongs to.
    pub fn session_id(&self) -> i64 {
        self.stat.ephemeral_owner
    }

    /// Returns the token that the contender has, or will have when its turn comes.
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// Returns when the contender joined the queue, by the server's clock.
    pub fn since(&self) -> SystemTime {
        utc::time(self.stat.ctime)
    }

    /// Returns who the contender is, as it describes itself.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Returns the description of a hold, which outlives its process; `None` for contenders of a
    /// session.
    pub fn hold(&self) -> Option<&Hold> {
        self.hold.as_ref()
    }

    /// Returns whether both belong to one thread of one session; `None` if their data names no thread.
    pub(crate) fn is_same_thread(&self, other: &Self) -> Option<bool> {
        if self.session_id() != other.session_id() || !self.has_session() {
            return Some(false);
        }
        match (self.thread, other.thread) {
            (Some(one), Some(other)) => Some(one == other),
            _ => {
                let names = self.owner.thread.as_ref().zip(other.owner.thread.as_ref());
                names.map(|(one, other)| one == other)
            }
        }
    }

    /// Returns whether a session owns the node.
    pub(crate) fn has_session(&self) -> bool {
        self.stat.has_session()
    }

    pub(crate) fn has_children(&self) -> bool {
        0 < self.stat.num_children
    }

    /// Returns whether the calling thread created the node, through the client that listed it.
    pub(crate) fn is_of_this_thread(&self) -> bool {
        let session = self.session.status.snapshot().session;
        self.session_id() == session && self.thread == Some(process::thread())
    }

    /// Returns whether the data names a thread, as that of this library does until it is asked to release.
    pub(crate) fn tells_its_thread(&self) -> bool {
        self.thread.is_some() || self.owner.thread.is_some()
    }

    /// Names the contender in a message, as its `Display` does.
    pub(crate) fn named(&self) -> String {
        let named = self.owner.named();
        named.unwrap_or_else(|| format!("the client that made {}", self.node))
    }

    /// Asks the contender to release the lock.
    ///
    /// A holder of this library gets an event, see [`events`](crate::MutexGuard::events), and a revocable mutex of
    /// Curator's calls its listener. The holder decides: if it does not read the event, it keeps the lock. The
    /// request replaces the data of the contender's node, and no other data. Blocks for one round trip, or for two
    /// more each time that another client has changed that data, at most 15 s each, also when the connection is lost.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Unmarked`] if the node belongs to no session, so that it is not a contender's, and with
    /// [`Error::Unsupported`] in the queue of Curator's `LeaderLatch`, where the client behind would never lead after
    /// such a change. Fails if the server refuses the request, if no server answers in time, and if the client is
    /// closed. A contender that has left meanwhile is not an error.
    pub fn revoke(&self) -> Result<()> {
        if !self.has_session() {
            return Err(Error::Unmarked {
                path: self.node.clone(),
                what: "a contender's node",
            });
        }
        if !may_ask(path::name(&self.node)) {
            return Err(Error::Unsupported {
                what: "asking a contender in the queue of Curator's LeaderLatch to release: one \
                       behind it would never lead. It can be evicted",
            });
        }
        log::info!("asking {} to release the lock", self.node);
        let mut version = Some(self.stat.version);
        while let Some(seen) = version {
            let asking = self.session.settings.dialect.revocation().to_vec();
            let revocation = Request::set(&*self.node, asking, seen);
            let limit = Session::query_limit();
            match self.session.caller().call(&revocation, &self.node, &limit) {
                Ok(_) | Err(CallError::Refused(ErrorCode::NO_NODE)) => break,
                // Another client has asked too, or the answer to this request was lost.
                Err(CallError::Refused(ErrorCode::BAD_VERSION)) => version = self.version()?,
                Err(error) => {
                    return Err(error.into_error(&self.node, || self.session.unanswered()));
                }
            }
        }
        Ok(())
    }

    /// Deletes the contender's node, whatever the contender does.
    ///
    /// The node is checked first: it must be the same node of the same session. **A holder may go on for a moment**:
    /// its guard fails as soon as its client learns of the deletion, and at its deadline if that client is paused or
    /// cut off. Ask first, with [`revoke`](Self::revoke), and evict only a contender that does not react. Blocks for
    /// three round trips, at most 15 s each, also when the connection is lost.
    ///
    /// # Errors
    ///
    /// Fails if the server refuses a request, if no server answers in time, and if the client
    /// is closed. A contender that has left meanwhile is not an error.
    pub fn evict(&self) -> Result<()> {
        let limit = Session::query_limit();
        // If the answer is lost, another node may get the name before the deletion is repeated.
        while let Some(version) = self.version()? {
            log::warn!("evicting {}", self.node);
            if self.session.delete_once(&self.node, version, &limit)? {
                break;
            }
        }
        Ok(())
    }

    /// Returns the version of the node's data, if it is the same node of the same session.
    fn version(&self) -> Result<Option<i32>> {
        // A lagging server may show an earlier node of the same name.
        let seen = self
            .session
            .read_latest(Request::exists(&self.node), &self.node)?;
        Ok(match seen {
            Some(Reply::Stat(stat)) => {
                let same = stat.czxid == self.stat.czxid
                    && stat.ephemeral_owner == self.stat.ephemeral_owner;
                same.then_some(stat.version)
            }
            _ => None,
        })
    }
}

impl Session {
    /// Lists the holders of the lock at a path, and then its waiters, in the order of the queue, at
    /// a server that has caught up with its leader.
    pub(crate) fn contenders(self: &Arc<Self>, path: &str) -> Result<Vec<Contender>> {
        let listed = self.contenders_behind(&[sync(path)], path, Self::query_limit);
        listed.map_err(|error| error.into_error(path, || self.unanswered()))
    }

    /// Returns whether the holder with this token has the lock at a path.
    pub(crate) fn is_held_with(self: &Arc<Self>, path: &str, token: FencingToken) -> Result<bool> {
        let look = || -> Result<bool> {
            let contenders = self.contenders(path)?;
            let mut holders = contenders.iter().filter(|contender| contender.holds());
            Ok(holders.any(|holder| holder.token() == token))
        };
        // A writer that becomes a reader replaces its node. If the first node goes between the
        // listing and its read, only another look finds the second one.
        Ok(look()? || look()?)
    }

    /// Like [`contenders`](Self::contenders), behind these requests at a server that may lag, with a limit for each
    /// request.
    pub(crate) fn contenders_behind(
        self: &Arc<Self>,
        first: &[Request],
        path: &str,
        limit: impl Fn() -> Limit,
    ) -> Result<Vec<Contender>, CallError> {
        let dirs = Places::of(path);
        let mut looks = first.to_vec();
        looks.extend([
            Request::list(&dirs.own),
            Request::list(&dirs.leases),
            Request::list(&dirs.locks),
            Request::list(&dirs.beside),
            Request::get(path),
        ]);
        let answers = self.caller().call_all(&looks, path, &limit())?;
        let mut answers = answers.into_iter().skip(first.len());
        let names = |dir: &str, counts: bool| match answers.next() {
            Some(Ok(Reply::Children { names, .. })) => Ok(Some(names)),
            Some(Err(code)) if counts && code != ErrorCode::NO_NODE => Err(refused(dir, code)),
            _ => Ok(None),
        };
        let spots = dirs.spots(names)?;
        let permits = match answers.next() {
            Some(Ok(Reply::Data { data, .. })) => number(&data).map(|number| number as usize),
            _ => None,
        };
        let nodes: Vec<_> = spots.all().map(|spot| spot.node.clone()).collect();
        let seen = self.describe_within(&nodes, &limit)?;
        Ok(assemble(self, &spots, seen, permits))
    }
}

/// Puts the nodes of a lock that were read in the order of its queue, holders first. Omits
/// contenders that have left.
pub(crate) fn assemble(
    session: &Arc<Session>,
    spots: &Spots,
    seen: Vec<Option<Seen>>,
    permits: Option<usize>,
) -> Vec<Contender> {
    let mut seen = seen.into_iter();
    let mut read = |spots: &[Spot]| -> Vec<Contender> {
        let both = spots.iter().zip(seen.by_ref());
        let contender = |(spot, seen): (&Spot, Option<Seen>)| {
            let Seen { data, stat } = seen?;
            let contender = Contender::new(session, spot.node.clone(), spot.holds, stat, &data);
            Some(Contender {
                role: spot.role,
                ..contender
            })
        };
        both.filter_map(contender).collect()
    };
    let (mut own, holders, line) = (read(&spots.own), read(&spots.permits), read(&spots.line));
    if own.iter().all(|one| one.role == Role::Permit) {
        // The names of kazoo's permits show no order.
        own.sort_by_key(|permit| permit.stat.czxid);
    }
    own.extend(merged(holders, line, permits));
    own
}

/// Merges the waiters for a semaphore behind its permits.
///
/// In Curator's layout the first waiter asks for a permit by creating the last node among them. It
/// has the permit if there is room, and then leaves the queue.
fn merged(
    mut permits: Vec<Contender>,
    mut line: Vec<Contender>,
    most: Option<usize>,
) -> Vec<Contender> {
    let both = |(last, first): (&Contender, &Contender)| last.is_same_thread(first) != Some(false);
    if permits.last().zip(line.first()).is_some_and(both) {
        match most {
            Some(most) if permits.len() <= most => drop(line.remove(0)),
            _ => drop(permits.pop()),
        }
    }
    permits.append(&mut line);
    permits
}

/// Names the contender, as `db1 pid 4711 (report.sh)`.
impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.named())
    }
}

impl fmt::Debug for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contender")
            .field("node", &self.node)
            .field("role", &self.role)
            .field("holds", &self.holds)
            .field("session_id", &format_args!("{:#x}", self.session_id()))
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}

/// Returns whether such a contender is a reader that holds.
pub(crate) fn reads(role: Role, holds: bool) -> bool {
    role == Role::Read && holds
}
