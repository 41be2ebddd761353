//! The state that the clones of a client and the mutexes made from it share.
//!
//! Guards and jobs share only the [`Database`] and, while they hold it, a turn in the line.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
use crate::local::turnstile::Turnstile;
use crate::mysql::database::{Database, Timings};
use crate::mysql::held::Held;
use crate::mysql::source::Source;

/// How long the last clone waits for the rows of released locks to be deleted.
const CLEANUP_LIMIT: Duration = Duration::from_secs(2);

/// See the module's documentation.
pub(super) struct SharedClient {
    pub(super) database: Arc<Database>,
    /// The lines of threads, so that only one thread of the client at a time asks the database for a name.
    pub(super) turnstile: Turnstile<(), Held>,
}

impl SharedClient {
    pub(super) fn start(source: Source, timings: Timings) -> Result<Self> {
        Ok(Self {
            database: Arc::new(Database::start(source, timings)?),
            turnstile: Turnstile::default(),
        })
    }

    pub(super) fn close(&self) {
        if self.database.is_inherited() {
            return;
        }
        self.database.close();
        self.turnstile.close();
    }

    /// Formats the client, or a lock of it with a name, for [`fmt::Debug`].
    pub(super) fn describe(
        &self,
        what: &str,
        name: Option<&str>,
        f: &mut fmt::Formatter<'_>,
    ) -> fmt::Result {
        let mut told = f.debug_struct(what);
        match name {
            Some(name) => told.field("path", &name),
            None => told.field("waiting", &self.turnstile.waiting()),
        };
        told.field("closed", &self.database.is_closed());
        told.field("lease", &self.database.lease());
        told.finish()
    }
}

impl Drop for SharedClient {
    fn drop(&mut self) {
        if self.database.is_inherited() {
            return;
        }
        self.database.backlog.wait(CLEANUP_LIMIT);
    }
}
