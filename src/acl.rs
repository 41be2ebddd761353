//! Who may do what to the nodes of a lock.

use crate::jute::{Access, Permissions};

/// The access control list of the nodes that a client creates.
///
/// A lock needs CREATE, DELETE and READ on its directory; a waiter needs READ of its own node,
/// and READ or at least the existence of those ahead. The list goes to the nodes and to the
/// directories that are created on the way.
///
/// # Example
///
/// ```
/// use zklock::{Acl, Permission};
///
/// // Whoever connects with our credentials may do everything, the world may look.
/// let acl = Acl::creator_all().with(&[Permission::Read], "world", "anyone");
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Acl(Vec<Access>);

/// One thing that an [`Acl`] can allow.
///
/// # Example
///
/// ```
/// use zklock::{Acl, Permission};
///
/// // Anybody may lock, and look at the queue; nobody else may change the list.
/// let lock = [Permission::Read, Permission::Create, Permission::Delete];
/// let acl = Acl::creator_all().with(&lock, "world", "anyone");
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Permission {
    /// Read a node's data and list its children.
    Read,
    /// Change a node's data.
    Write,
    /// Create children.
    Create,
    /// Delete children.
    Delete,
    /// Change the list itself.
    Admin,
}

impl Acl {
    /// Everybody may do everything.
    pub fn open() -> Self {
        Self(vec![access(Permissions::ALL, "world", "anyone")])
    }

    /// Everybody may read, and nobody may do more: of use with [`with`](Self::with) only.
    pub fn read_only() -> Self {
        Self(vec![access(Permissions::READ, "world", "anyone")])
    }

    /// Whoever has the credentials that the creator connected with may do everything.
    ///
    /// Needs [`ClientBuilder::auth`](crate::ClientBuilder::auth).
    pub fn creator_all() -> Self {
        Self(vec![access(Permissions::ALL, "auth", "")])
    }

    /// Allows more, to whoever `scheme` knows as `id`: `digest` and `user:hash`, for example.
    #[must_use]
    pub fn with(mut self, allowed: &[Permission], scheme: &str, id: &str) -> Self {
        let bits = allowed.iter().map(|permission| permission.bits().0);
        let permissions = Permissions(bits.fold(0, |all, bit| all | bit));
        self.0.push(access(permissions, scheme, id));
        self
    }

    pub(crate) fn entries(&self) -> &[Access] {
        &self.0
    }
}

impl Default for Acl {
    fn default() -> Self {
        Self::open()
    }
}

impl Permission {
    fn bits(self) -> Permissions {
        match self {
            Self::Read => Permissions::READ,
            Self::Write => Permissions::WRITE,
            Self::Create => Permissions::CREATE,
            Self::Delete => Permissions::DELETE,
            Self::Admin => Permissions::ADMIN,
        }
    }
}

fn access(permissions: Permissions, scheme: &str, id: &str) -> Access {
    Access {
        permissions,
        scheme: scheme.to_owned(),
        id: id.to_owned(),
    }
}
