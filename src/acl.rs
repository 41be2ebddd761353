//! Access control lists of nodes.

use zklock_jute::{Access, Permissions};

/// The access control list of the nodes that a client creates.
///
/// A lock needs CREATE, DELETE and READ on its directory. A waiter needs READ on its own node; on
/// the nodes ahead it needs READ, or at least a way to see that they exist. The list applies to the
/// nodes, and to the directories that are created for them.
///
/// # Example
///
/// ```
/// use zklock::{Acl, Permission};
///
/// // Clients with the same credentials may do everything, all others may read.
/// let acl = Acl::creator_all().with(&[Permission::Read], "world", "anyone");
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Acl(Vec<Access>);

/// A permission that an [`Acl`] can grant.
///
/// # Example
///
/// ```
/// use zklock::{Acl, Permission};
///
/// // Every client may lock and list the queue; only the creator may change the list.
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
    /// Allows every client everything.
    pub fn open() -> Self {
        Self(vec![access(Permissions::ALL, "world", "anyone")])
    }

    /// Allows every client to read, and nothing else; extend it using [`with`](Self::with).
    pub fn read_only() -> Self {
        Self(vec![access(Permissions::READ, "world", "anyone")])
    }

    /// Allows everything to clients that have the creator's credentials.
    ///
    /// Needs [`ClientBuilder::auth`](crate::ClientBuilder::auth), a SASL login, or a client's
    /// certificate: connecting without any fails with
    /// [`Error::BadArgument`](crate::Error::BadArgument).
    pub fn creator_all() -> Self {
        Self(vec![access(Permissions::ALL, "auth", "")])
    }

    /// Allows everything to clients that have logged in with SASL as this user.
    ///
    /// The user is the name that the servers derive from the login: the user name, for DIGEST-MD5.
    ///
    /// # Example
    ///
    /// ```
    /// use zklock::{Acl, Permission};
    ///
    /// let acl = Acl::sasl("report").with(&[Permission::Read], "sasl", "monitor");
    /// ```
    pub fn sasl(user: &str) -> Self {
        Self(vec![access(Permissions::ALL, "sasl", user)])
    }

    /// Also grants these permissions to what `scheme` knows as `id`: `digest` and `user:hash`, for example.
    #[must_use]
    pub fn with(mut self, allowed: &[Permission], scheme: &str, id: &str) -> Self {
        let bits = allowed.iter().map(|permission| permission.bits().0);
        let permissions = Permissions(bits.fold(0, |all, bit| all | bit));
        self.0.push(access(permissions, scheme, id));
        self
    }

    /// Returns whether the list names the creator's credentials.
    pub(crate) fn needs_credentials(&self) -> bool {
        self.0.iter().any(|access| access.scheme == "auth")
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
