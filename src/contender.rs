//! Who is in a queue.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::error::{Error, Result};
use crate::guard::FencingToken;
use crate::owner::Owner;
use crate::path;
use crate::proto::{Reply, Request, Stat};
use crate::protocol::dialect::Role;
use crate::protocol::name::NodeName;
use crate::session::Session;

/// Someone who holds a lock or waits for it, of this library or another.
///
/// It is a picture of the moment at which it was asked for.
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
///     println!("{} {does} since {:?}", contender.node(), contender.since());
///     assert_eq!(contender.node(), guard.node());
///     contender.revoke()?; // asks it to let go
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
        Self {
            session: session.clone(),
            role: name.map_or(Role::Exclusive, |name| name.kind.role()),
            node,
            holds,
            stat,
            owner: Owner::parse(data),
        }
    }

    /// Returns the full path of its node.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// Returns what it asks for.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Returns whether it was at the head of the queue when we looked.
    pub fn holds(&self) -> bool {
        self.holds
    }

    /// Returns the session that its node belongs to.
    pub fn session_id(&self) -> i64 {
        self.stat.ephemeral_owner
    }

    /// Returns the token that it has, or will have when its turn comes.
    pub fn token(&self) -> FencingToken {
        FencingToken::new(self.stat.czxid)
    }

    /// Returns when it joined the queue, by the server's clock.
    pub fn since(&self) -> SystemTime {
        let since = Duration::from_millis(u64::try_from(self.stat.ctime).unwrap_or(0));
        SystemTime::UNIX_EPOCH
            .checked_add(since)
            .unwrap_or(SystemTime::UNIX_EPOCH)
    }

    /// Returns who it is, by its own words.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Asks it to let go.
    ///
    /// A holder of this library hears of it through its guard's
    /// [`events`](crate::MutexGuard::events), a revocable mutex of Curator's through its
    /// listener; both decide for themselves, and one that never looks goes on. Blocks for
    /// one round trip, 15 s at most, also when the connection is lost.
    ///
    /// # Errors
    ///
    /// Fails if the server turns the request down or the client is closed. That the
    /// contender has gone meanwhile is not an error.
    pub fn revoke(&self) -> Result<()> {
        log::info!("asking {} to let go", self.node);
        let revocation = self.session.revocation(&self.node);
        self.session.read(&revocation, &self.node)?;
        Ok(())
    }

    /// Removes it from the queue, whether it wants or not.
    ///
    /// Its node is deleted after a look that it is still the same node of the same
    /// session. **A holder may go on for a moment**: it hears of it as soon as its client
    /// does, and one that is paused or cut off not before its deadline. Ask first, with
    /// [`revoke`](Self::revoke), and evict only who does not answer. Blocks for two round
    /// trips, 15 s at most each, also when the connection is lost.
    ///
    /// # Errors
    ///
    /// Fails if the server turns the request down or the client is closed. That the
    /// contender has gone meanwhile is not an error.
    pub fn evict(&self) -> Result<()> {
        let look = Request::Exists {
            path: self.node.clone(),
            watch: false,
        };
        let same = |stat: &Stat| {
            stat.czxid == self.stat.czxid && stat.ephemeral_owner == self.stat.ephemeral_owner
        };
        match self.session.read(&look, &self.node)? {
            Some(Reply::Stat(stat)) if same(&stat) => {}
            _ => return Ok(()),
        }
        log::warn!("evicting {}", self.node);
        let eviction = self.session.eviction(&self.node);
        self.session.read(&eviction, &self.node)?;
        Ok(())
    }
}

impl Session {
    /// Lists who is in a queue, first come first.
    pub(crate) fn contenders(self: &Arc<Self>, dir: &str) -> Result<Vec<Contender>> {
        let Some(Reply::Children { names, .. }) = self.read(&crate::session::list(dir), dir)?
        else {
            return Ok(Vec::new());
        };
        let mut names: Vec<_> = names.iter().filter_map(NodeName::parse).collect();
        names.sort_by_key(|name| name.sequence);
        let mut contenders = Vec::with_capacity(names.len());
        for (place, name) in names.iter().enumerate() {
            let sharing = |name: &NodeName<'_>| name.kind.role().sharing();
            let ahead = &names[..place];
            // Who has a permit's node has the permit.
            let permit = name.kind.role() == Role::Permit;
            let holds = permit
                || !ahead
                    .iter()
                    .any(|other| sharing(other).conflicts(sharing(name)));
            let node = format!("{dir}/{}", name.text);
            let read = Request::GetData {
                path: node.clone(),
                watch: false,
            };
            match self.read(&read, &node) {
                Ok(Some(Reply::Data { data, stat })) => {
                    contenders.push(Contender::new(self, node, holds, stat, &data));
                }
                Err(Error::NoAuth { .. }) => {
                    let look = Request::Exists {
                        path: node.clone(),
                        watch: false,
                    };
                    if let Some(Reply::Stat(stat)) = self.read(&look, &node)? {
                        contenders.push(Contender::new(self, node, holds, stat, &[]));
                    }
                }
                Ok(_) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(contenders)
    }
}

impl fmt::Debug for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contender")
            .field("node", &self.node)
            .field("role", &self.role)
            .field("holds", &self.holds)
            .field("session_id", &self.session_id())
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}
