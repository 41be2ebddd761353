//! The dialects: which names contenders of each library have, and who waits for whom.

/// How the nodes of a lock are named, and so with whom the lock excludes.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Dialect {
    /// Apache Curator's, which is also go-zookeeper's.
    #[default]
    Curator,
    /// kazoo's.
    Kazoo,
    /// That of the ZooKeeper recipes page.
    Recipe,
}
