//! Who may do what.

use super::words::Encoder;
use super::{Raw, op};

impl Raw {
    /// Leaves everybody all rights to a node except the right to create others under it.
    pub fn forbid_creates(&mut self, path: &str) -> Result<(), i32> {
        const ALL_BUT_CREATE: i32 = 27;
        self.allow(path, ALL_BUT_CREATE)
    }

    /// Leaves everybody all rights to a node except the right to delete others under it.
    pub fn forbid_deletes(&mut self, path: &str) -> Result<(), i32> {
        const ALL_BUT_DELETE: i32 = 23;
        self.allow(path, ALL_BUT_DELETE)
    }

    /// Leaves everybody all rights to a node except the right to write its data.
    pub fn forbid_writes(&mut self, path: &str) -> Result<(), i32> {
        const ALL_BUT_WRITE: i32 = 29;
        self.allow(path, ALL_BUT_WRITE)
    }

    /// Leaves everybody all rights to a node except the right to read it.
    pub fn forbid_reads(&mut self, path: &str) -> Result<(), i32> {
        const ALL_BUT_READ: i32 = 30;
        self.allow(path, ALL_BUT_READ)
    }

    /// Leaves everybody no right to a node except the right to read it.
    pub fn allow_reads_only(&mut self, path: &str) -> Result<(), i32> {
        const READ: i32 = 1;
        self.allow(path, READ)
    }

    fn allow(&mut self, path: &str, rights: i32) -> Result<(), i32> {
        let mut body = Encoder::default();
        body.string(&self.full(path)).int(1).int(rights);
        body.string("world").string("anyone").int(-1);
        self.call(op::SET_ACL, &body.0).map(drop)
    }

    /// Returns whether the server does not tell whether this node exists, which may not be read: ZooKeeper 3.8.0 tells,
    /// and 3.9.3 does not.
    pub fn is_hidden(&mut self, path: &str) -> bool {
        const NO_AUTH: i32 = -102;
        let body = self.read_request(path);
        self.call(op::EXISTS, &body.0).err() == Some(NO_AUTH)
    }

    /// Adds credentials, such as `("digest", "user:password")`.
    pub fn auth(&mut self, scheme: &str, credentials: &str) -> Result<(), i32> {
        let mut body = Encoder::default();
        body.int(0).string(scheme).buffer(credentials.as_bytes());
        self.call_as(-4, op::AUTH, &body.0).map(drop)
    }
}
