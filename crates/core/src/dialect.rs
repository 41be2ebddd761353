//! The dialects: a set of tokens, and one table of which contenders wait for which.
//!
//! The tokens and the table were measured against the real libraries; see `docs/interop.md`. A contender
//! that would not wait for us is [`Stance::Refused`]: we must never pretend to exclude it.

/// How the nodes of a lock are named, and so which libraries the lock excludes with.
///
/// # Example
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zklock::embedded::Server::start()?;
/// use zklock::{Client, Dialect};
///
/// # let hosts = server.hosts();
/// let ours = Client::connect(hosts)?; // Curator's, unless told otherwise
/// let kazoo = Client::builder(hosts).dialect(Dialect::Kazoo).connect()?;
///
/// // The locks of this library exclude each other in every dialect. Where a lock of another one
/// // would not wait, as Curator's for kazoo's, it fails with `Error::ForeignContender`.
/// let _guard = ours.mutex("/locks/nightly-report")?.lock()?;
/// assert!(kazoo.mutex("/locks/nightly-report")?.try_lock()?.is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Dialect {
    /// Excludes with Apache Curator, go-zookeeper and kezhuw's client.
    #[default]
    Curator,
    /// Excludes with kazoo, and shares the permits of its semaphore.
    Kazoo,
    /// Excludes with clients that follow the ZooKeeper recipes page to the letter.
    Recipe,
    /// Excludes with Curator's `LeaderLatch`, which waits for nothing else. Read-write locks and
    /// semaphores are as in [`Curator`](Self::Curator).
    LeaderLatch,
}

/// What a contender asks of a queue.
///
/// # Example
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zklock::embedded::Server::start()?;
/// # let client = zklock::Client::connect(server.hosts())?;
/// use zklock::Role;
///
/// let _reading = client.rwlock("/locks/catalogue")?.read()?;
/// let contenders = client.contenders("/locks/catalogue")?;
/// assert!(contenders.iter().all(|contender| contender.role() == Role::Read));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Role {
    /// To be alone: a mutex.
    Exclusive,
    /// To share with other readers.
    Read,
    /// To be alone among readers and writers.
    Write,
    /// To be one of a limited number.
    Permit,
}

/// The kind of a contender, by the name of its node.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Kind {
    /// `..lock-`: the mutex of Curator, of the recipes page and of most others.
    Lock,
    /// `_c_<32 hex digits>-lock-`: go-zookeeper's, which also waits for kazoo's nodes.
    GoLock,
    /// `..__READ__`: Curator's read lock.
    CuratorRead,
    /// `..__WRIT__`: Curator's write lock.
    CuratorWrite,
    /// `..__lock__`: kazoo's lock and write lock.
    KazooLock,
    /// `..__rlock__`: kazoo's read lock.
    KazooRead,
    /// `..-read-`: the recipes' shared lock.
    RecipeRead,
    /// `..-write-`: the recipes' exclusive lock beside shared ones.
    RecipeWrite,
    /// `x-<session>-`: the lock that comes with ZooKeeper's own source.
    Apache,
    /// `..latch-`: Curator's leader latch.
    Latch,
    /// `..lease-`: a permit of Curator's semaphore.
    Lease,
    /// `<32 hex digits>`: a permit of kazoo's semaphore.
    KazooLease,
}

/// How a contender of some kind relates to ours.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Stance {
    /// The contender waits for us, and we for it unless both only read.
    Contends(Sharing),
    /// The contender takes no part in our lock.
    Ignored,
    /// The contender would not wait for us, but might with this dialect.
    Refused(Option<Dialect>),
}

/// Whether a contender can hold beside others.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Sharing {
    /// Alone.
    Alone,
    /// Beside readers.
    WithReaders,
}

// For the protocol, not for programs.
#[doc(hidden)]
impl Dialect {
    /// Returns the text between the contender's id and its number.
    pub fn token(self, role: Role) -> &'static str {
        match (self, role) {
            (Self::Curator | Self::Recipe, Role::Exclusive) => "-lock-",
            (Self::LeaderLatch, Role::Exclusive) => "-latch-",
            (Self::Curator | Self::LeaderLatch, Role::Read) => "-__READ__",
            (Self::Curator | Self::LeaderLatch, Role::Write) => "-__WRIT__",
            (Self::Kazoo, Role::Exclusive | Role::Write) => "__lock__",
            (Self::Kazoo, Role::Read) => "__rlock__",
            (Self::Recipe, Role::Read) => "-read-",
            (Self::Recipe, Role::Write) => "-write-",
            (Self::Curator | Self::LeaderLatch | Self::Recipe, Role::Permit) => "-lease-",
            (Self::Kazoo, Role::Permit) => "",
        }
    }

    /// Returns whether ZooKeeper puts a number behind the name.
    pub fn is_numbered(self, role: Role) -> bool {
        (self, role) != (Self::Kazoo, Role::Permit)
    }

    /// Returns the data by which a holder is asked to release its lock.
    pub fn revocation(self) -> &'static [u8] {
        match self {
            Self::Recipe => b"unlock",
            Self::Curator | Self::Kazoo | Self::LeaderLatch => b"__REVOKE__",
        }
    }

    /// Returns whether a lock's directory may be a container. kazoo remembers that a directory
    /// exists, and fails if a container was deleted since.
    pub fn takes_containers(self) -> bool {
        self != Self::Kazoo
    }

    /// Returns what follows a semaphore's path in the path of its permits' numbers. kazoo counts what is
    /// below the path, so with kazoo the numbers are beside the path.
    pub fn suffix_of_numbers(self) -> &'static str {
        match self {
            Self::Kazoo => "-__numbers__",
            Self::Curator | Self::LeaderLatch | Self::Recipe => "/numbers",
        }
    }

    /// Returns how a contender of this `kind` relates to one of ours.
    pub fn stance(self, role: Role, kind: Kind) -> Stance {
        use Dialect::{Curator, Kazoo, LeaderLatch, Recipe};
        use Kind::{
            Apache, CuratorRead, CuratorWrite, GoLock, KazooLease, KazooLock, KazooRead, Latch,
            Lease, Lock, RecipeRead, RecipeWrite,
        };
        use Role::{Exclusive, Permit, Read, Write};

        let alone = Stance::Contends(Sharing::Alone);
        let reader = Stance::Contends(Sharing::WithReaders);
        match (self, role, kind) {
            (LeaderLatch, Read | Write | Permit, kind) => Curator.stance(role, kind),
            (Curator | Recipe, Permit, Lease) | (Kazoo, Permit, KazooLease) => alone,
            (_, Permit, _) | (_, _, Lease) => Stance::Ignored,

            (Curator | Recipe, Exclusive, Lock | GoLock | Apache) => alone,
            (LeaderLatch, Exclusive, Latch) => alone,
            (Curator, Read | Write, CuratorRead) => reader,
            (Curator, Read | Write, CuratorWrite) => alone,
            (Kazoo, _, KazooLock | GoLock) => alone,
            (Kazoo, _, KazooRead) => reader,
            (Recipe, Read | Write, RecipeRead) => reader,
            (Recipe, Read | Write, RecipeWrite) => alone,

            // The remaining kinds would not wait for us. Another dialect helps if this
            // contender waits for that dialect's names for the same role.
            (Curator | LeaderLatch | Recipe, _, KazooLock | KazooRead) => {
                Stance::Refused(Some(Kazoo))
            }
            (_, Exclusive, Latch) => Stance::Refused(Some(LeaderLatch)),
            (Kazoo | LeaderLatch, Exclusive, Lock) => Stance::Refused(Some(Curator)),
            (Kazoo | Recipe, Read | Write, CuratorRead | CuratorWrite) => {
                Stance::Refused(Some(Curator))
            }
            (Curator | Kazoo, Read | Write, RecipeRead | RecipeWrite) => {
                Stance::Refused(Some(Recipe))
            }
            _ => Stance::Refused(None),
        }
    }
}

#[doc(hidden)]
impl Role {
    /// Returns whether a contender of this role can hold beside others.
    pub fn sharing(self) -> Sharing {
        match self {
            Self::Read => Sharing::WithReaders,
            Self::Exclusive | Self::Permit | Self::Write => Sharing::Alone,
        }
    }
}

impl Sharing {
    /// Returns whether two contenders cannot hold at the same time.
    pub fn conflicts(self, other: Self) -> bool {
        (self, other) != (Self::WithReaders, Self::WithReaders)
    }
}

impl Kind {
    /// Returns the library that creates such nodes, for messages.
    pub fn library(self) -> &'static str {
        match self {
            Self::Lock => "Curator's InterProcessMutex",
            Self::GoLock => "go-zookeeper's Lock",
            Self::CuratorRead | Self::CuratorWrite => "Curator's InterProcessReadWriteLock",
            Self::KazooLock => "kazoo's Lock or WriteLock",
            Self::KazooRead => "kazoo's ReadLock",
            Self::RecipeRead | Self::RecipeWrite => "the recipes' shared lock",
            Self::Apache => "the WriteLock of ZooKeeper's own recipes",
            Self::Latch => "Curator's LeaderLatch",
            Self::Lease => "a semaphore of this library or Curator's InterProcessSemaphoreV2",
            Self::KazooLease => "kazoo's Semaphore",
        }
    }

    /// Returns whether a contender of this role that waits for such a node, which is the only one ahead that it
    /// cannot share with, may take its deletion for its turn, without another look. A writer may have become a
    /// reader, with the same number.
    pub fn passes_on(self, to: Role) -> bool {
        match self {
            Self::Lock | Self::GoLock => true,
            Self::CuratorRead | Self::KazooRead | Self::RecipeRead => true,
            Self::CuratorWrite | Self::KazooLock | Self::RecipeWrite => to == Role::Read,
            Self::Apache | Self::Latch | Self::Lease | Self::KazooLease => false,
        }
    }

    /// Returns what such a contender asks of its queue.
    pub fn role(self) -> Role {
        match self {
            Self::Lock | Self::GoLock | Self::KazooLock | Self::Apache | Self::Latch => {
                Role::Exclusive
            }
            Self::CuratorRead | Self::KazooRead | Self::RecipeRead => Role::Read,
            Self::CuratorWrite | Self::RecipeWrite => Role::Write,
            Self::Lease | Self::KazooLease => Role::Permit,
        }
    }
}
