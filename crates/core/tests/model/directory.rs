//! The server's side: one directory of sequential ephemeral nodes.

use zklock_core::Names;
use zklock_core::attempt::Origin;
use zklock_core::dialect::{Dialect, Role};
use zklock_core::name::{NodeName, prefix};

/// How many nodes a directory has had before those of the clients (see the setting), so that a
/// new directory may use a number again.
pub(crate) const OTHERS: i64 = 10;

/// The owner of nodes that belong to no session.
pub(crate) const NOBODY: i64 = 0;

/// The id of a hold.
const HOLD: &str = "401d401d-0000-8000-8000-000000000000";

/// A lock's directory.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Directory {
    pub(crate) there: bool,
    /// The nodes, in the order of their creation.
    pub(crate) nodes: Vec<Node>,
    /// The next node's number.
    counter: i64,
    overflow: Overflow,
    /// The next transaction's id.
    zxid: i64,
}

/// The counter's behaviour after the largest number.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Overflow {
    /// The counter repeats it, as in ZooKeeper 3.6 and later.
    Sticks,
    /// The counter goes on with the most negative number, as in earlier versions.
    Wraps,
}

/// One contender's node.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) origin: Origin,
    pub(crate) maker: Maker,
}

/// The attempt that made a node. For the properties: no contender sees it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Maker {
    pub(crate) client: usize,
    /// The number of the client's attempt.
    pub(crate) attempt: u8,
    pub(crate) role: Role,
}

impl Directory {
    pub(crate) fn new(there: bool, counter: i64, overflow: Overflow) -> Self {
        Self {
            there,
            nodes: Vec::new(),
            counter,
            overflow,
            zxid: 100,
        }
    }

    /// Returns the new node's name and origin, or `None` if there is no directory.
    pub(crate) fn create(
        &mut self,
        prefix: &str,
        owner: i64,
        maker: Maker,
    ) -> Option<(String, Origin)> {
        if !self.there {
            return None;
        }
        let name = format!("{prefix}{:010}", self.counter);
        self.counter = match (self.counter, self.overflow) {
            (2_147_483_647, Overflow::Sticks) => self.counter,
            (2_147_483_647, Overflow::Wraps) => -2_147_483_648,
            _ => self.counter + 1,
        };
        let origin = self.plant(&name, owner, maker);
        Some((name, origin))
    }

    /// Creates a node with exactly this name.
    pub(crate) fn plant(&mut self, name: &str, owner: i64, maker: Maker) -> Origin {
        let origin = Origin {
            owner,
            czxid: self.zxid,
        };
        self.zxid += 1;
        self.nodes.push(Node {
            name: name.to_owned(),
            origin,
            maker,
        });
        origin
    }

    /// Creates a hold with the number of this node. The hold also uses up the next number, as every
    /// child does.
    pub(crate) fn put_in_place_of(&mut self, node: &str, maker: Maker) {
        let number = NodeName::parse(node).expect("a contender's").sequence;
        let prefix = prefix(Dialect::Curator, maker.role, HOLD);
        self.plant(&format!("{prefix}{number:010}"), NOBODY, maker);
        self.counter += 1;
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// Returns the names that a server shows which has applied no transaction from `until` on.
    pub(crate) fn names(&self, until: Option<i64>) -> Option<Names> {
        let shown = |node: &&Node| until.is_none_or(|until| node.origin.czxid < until);
        let names = self.nodes.iter().filter(shown);
        self.there.then(|| names.map(|node| &node.name).collect())
    }

    pub(crate) fn remove(&mut self, name: &str) -> Option<Node> {
        let at = self.nodes.iter().position(|node| node.name == name)?;
        Some(self.nodes.remove(at))
    }

    /// Removes the empty container, as the server does. The next one counts from 0; some other
    /// nodes come and go before a client sees it.
    pub(crate) fn vanish(&mut self) {
        self.there = false;
        self.counter = OTHERS;
        self.zxid += OTHERS;
    }

    /// Returns the number before the next one, and the id before the next one.
    pub(crate) fn latest(&self) -> (i64, i64) {
        (self.counter - 1, self.zxid - 1)
    }
}
