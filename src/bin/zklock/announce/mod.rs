//! Tells others whether this standby is active: a file, and the service manager.
//!
//! ```text
//!  waits ──► active ──► ready ──► stops ──► passive ──► waits
//!                       the command runs    the lock is released
//! ```
//!
//! Nothing in here can hold the command back, or keep it from being stopped in time.

mod ready_file;
mod service_manager;

use crate::args::Standby;
use crate::failure::Failure;

pub(crate) use self::ready_file::ReadyFile;
use self::service_manager::ServiceManager;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Announcer {
    path: String,
    file: Option<ReadyFile>,
    manager: Option<ServiceManager>,
}

impl Announcer {
    /// Removes what an earlier process has left.
    pub(crate) fn new(standby: &Standby) -> Result<Self, Failure> {
        let file = standby.ready_file.as_deref().map(ReadyFile::new);
        Ok(Self {
            path: standby.path.clone(),
            file: file.transpose()?,
            manager: ServiceManager::new(),
        })
    }

    /// This machine stands in line, behind this contender.
    pub(crate) fn waits(&self, behind: &str) {
        self.tell(|| format!("standing by for {}, behind {behind}", self.path));
    }

    /// The command begins.
    pub(crate) fn is_ready(&self, node: &str) {
        if let Some(file) = &self.file {
            file.make(node);
        }
        self.tell(|| format!("active for {}", self.path));
    }

    /// The command is to end, or has ended.
    pub(crate) fn stops(&self) {
        if let Some(file) = &self.file {
            file.remove();
        }
    }

    /// The lock is about to be released.
    pub(crate) fn is_passive(&self) {
        self.tell(|| format!("passive for {}", self.path));
    }

    fn tell(&self, status: impl FnOnce() -> String) {
        if let Some(manager) = &self.manager {
            manager.tell(&status());
        }
    }
}
