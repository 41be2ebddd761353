//! The kinds of contenders that meet each other, ours and theirs.

use zklock::Dialect;

use super::contender::Contender;
use super::libraries::Library;
use super::ours;
use super::peer::Peer;

/// A way to contend, under one name in the tables.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Kind {
    pub(crate) side: Side,
    /// The command for a contender. For a semaphore it contains the number of permits, how
    /// many of them to take at once, and the limit in milliseconds: `semaphore:4:3:500`.
    pub(crate) word: &'static str,
    pub(crate) label: &'static str,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Side {
    Ours(Dialect),
    Theirs(Library),
}

const fn of_theirs(library: Library, word: &'static str, label: &'static str) -> Kind {
    let side = Side::Theirs(library);
    Kind { side, word, label }
}

/// Returns one of our own kinds.
pub(crate) const fn of_ours(dialect: Dialect, word: &'static str) -> Kind {
    Kind {
        side: Side::Ours(dialect),
        word,
        label: word,
    }
}

/// Returns one of Curator's semaphores that is in no table.
pub(crate) const fn of_curator(word: &'static str) -> Kind {
    of_theirs(Library::Java, word, word)
}

pub(crate) const CURATOR_MUTEX: Kind =
    of_theirs(Library::Java, "mutex", "Curator InterProcessMutex");
pub(crate) const CURATOR_REVOCABLE: Kind = of_theirs(
    Library::Java,
    "revocable",
    "Curator InterProcessMutex, revocable",
);
pub(crate) const CURATOR_READ: Kind = of_theirs(
    Library::Java,
    "read",
    "Curator InterProcessReadWriteLock, read",
);
pub(crate) const CURATOR_WRITE: Kind = of_theirs(
    Library::Java,
    "write",
    "Curator InterProcessReadWriteLock, write",
);
pub(crate) const CURATOR_LEADER: Kind =
    of_theirs(Library::Java, "leader", "Curator LeaderSelector");
pub(crate) const CURATOR_LATCH: Kind = of_theirs(Library::Java, "latch", "Curator LeaderLatch");
pub(crate) const CURATOR_SEMAPHORE: Kind = of_theirs(
    Library::Java,
    "semaphore:1",
    "Curator InterProcessSemaphoreV2, 1 lease",
);
pub(crate) const CURATOR_SEMAPHORE_MUTEX: Kind = of_theirs(
    Library::Java,
    "semaphoreMutex",
    "Curator InterProcessSemaphoreMutex",
);
pub(crate) const APACHE: Kind = of_theirs(
    Library::Java,
    "apache",
    "ZooKeeper recipes WriteLock (Java)",
);
pub(crate) const GO: Kind = of_theirs(Library::Go, "lock", "go-zookeeper Lock");
pub(crate) const KAZOO_LOCK: Kind = of_theirs(Library::Kazoo, "lock", "kazoo Lock");
pub(crate) const KAZOO_READ: Kind = of_theirs(Library::Kazoo, "read", "kazoo ReadLock");
pub(crate) const KAZOO_WRITE: Kind = of_theirs(Library::Kazoo, "write", "kazoo WriteLock");
pub(crate) const KAZOO_ELECTION: Kind = of_theirs(Library::Kazoo, "election", "kazoo Election");
pub(crate) const KAZOO_SEMAPHORE: Kind =
    of_theirs(Library::Kazoo, "semaphore:1", "kazoo Semaphore, 1 lease");
pub(crate) const KAZOO_SEMAPHORE_OF_TWO: Kind =
    of_theirs(Library::Kazoo, "semaphore:2", "kazoo Semaphore, 2 leases");
pub(crate) const KAZOO_PATTERNED: Kind = of_theirs(
    Library::Kazoo,
    "patterned",
    "kazoo Lock with extra_lock_patterns=[\"lock-\"]",
);
pub(crate) const KAZOO_AS_CURATOR: Kind =
    of_theirs(Library::Kazoo, "curator-lock", "kazoo CuratorLock, below");
pub(crate) const KAZOO_AS_CURATOR_READ: Kind = of_theirs(
    Library::Kazoo,
    "curator-read",
    "kazoo CuratorReadLock, below",
);
pub(crate) const KAZOO_AS_CURATOR_WRITE: Kind = of_theirs(
    Library::Kazoo,
    "curator-write",
    "kazoo CuratorWriteLock, below",
);

/// All kinds of other libraries, in the order of the tables.
pub(crate) const THEIRS: [Kind; 18] = [
    CURATOR_MUTEX,
    CURATOR_LEADER,
    CURATOR_LATCH,
    CURATOR_READ,
    CURATOR_WRITE,
    CURATOR_SEMAPHORE,
    CURATOR_SEMAPHORE_MUTEX,
    GO,
    APACHE,
    KAZOO_LOCK,
    KAZOO_ELECTION,
    KAZOO_READ,
    KAZOO_WRITE,
    KAZOO_SEMAPHORE,
    KAZOO_PATTERNED,
    KAZOO_AS_CURATOR,
    KAZOO_AS_CURATOR_READ,
    KAZOO_AS_CURATOR_WRITE,
];

impl Kind {
    /// Returns whether the library of this kind is available.
    pub(crate) fn is_here(self) -> bool {
        match self.side {
            Side::Ours(_) => true,
            Side::Theirs(library) => Peer::shared(library).is_some(),
        }
    }

    /// Starts one more contender of this kind, connected to a server.
    pub(crate) fn contender(self, hosts: &str) -> Contender {
        match self.side {
            Side::Ours(dialect) => ours::contender(hosts, dialect),
            Side::Theirs(library) => Peer::shared(library)
                .expect("a library at hand")
                .contender(),
        }
    }

    pub(crate) fn is_ours(self) -> bool {
        matches!(self.side, Side::Ours(_))
    }

    /// Returns whether two of this kind may hold at once.
    pub(crate) fn only_reads(self) -> bool {
        self.word.ends_with("read")
    }

    /// Returns how many permits there are, unless the kind only reads.
    pub(crate) fn permits(self) -> usize {
        self.number(1)
    }

    /// Returns how many permits a contender of this kind takes.
    pub(crate) fn count(self) -> usize {
        self.number(2)
    }

    fn number(self, place: usize) -> usize {
        let number = self.word.split(':').nth(place);
        number.map_or(1, |number| number.parse().expect("a number of permits"))
    }

    /// Returns whether a contender of this kind gives up after a while.
    pub(crate) fn is_limited(self) -> bool {
        self.word.split(':').nth(3).is_some()
    }

    /// Returns whether a contender of this kind waits for the children of a directory rather than
    /// for a node.
    pub(crate) fn counts(self) -> bool {
        self.word.starts_with("semaphore")
    }
}
