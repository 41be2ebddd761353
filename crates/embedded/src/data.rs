//! The changes that a server with a data folder writes there, and replays at its start.

use std::io;
use std::path::Path;

use super::entry::{Act, Entry};
use super::journal::Journal;
use super::state::ServerState;
use super::tree::Author;

impl ServerState {
    /// Continues with what is in a data folder, and writes every change there from now on.
    pub(super) fn open_data(&mut self, folder: &Path) -> io::Result<()> {
        let (journal, entries) = Journal::open(folder).map_err(|error| {
            let text = format!("the data folder {}: {error}", folder.display());
            io::Error::new(error.kind(), text)
        })?;
        let latest = self.view.zxid;
        entries.into_iter().for_each(|entry| self.replay(entry));
        self.view.zxid = self.view.zxid.max(latest);
        // The replay may have taken longer than a session lasts.
        self.sessions.touch_all(self.now_ms());
        self.journal = Some(journal);
        Ok(())
    }

    /// Records a change, before anybody learns of it.
    pub(super) fn keep(&mut self, entry: Entry) {
        let Some(journal) = &mut self.journal else {
            return;
        };
        if let Err(error) = journal.append(&entry) {
            log::error!(
                "the data folder cannot be written, so nobody is served until the server is started \
                 again: {error}"
            );
            self.journal = None;
            let _ = self.failure.0.try_send(error);
            // What is in memory now would be gone after the next start.
            self.config.max_connections = 0;
            self.disconnect(|_| true);
        }
    }

    fn replay(&mut self, Entry { at, session, act }: Entry) {
        self.view.zxid = at.zxid;
        match act {
            Act::Begin {
                timeout_ms,
                password,
            } => {
                let now_ms = self.now_ms();
                self.sessions.restore(session, timeout_ms, password, now_ms);
            }
            Act::End => {
                self.sessions.end(session);
                self.view.tree.end_session(session, at);
            }
            Act::Write { who, write } => {
                let by = Author { session, who: &who };
                // The write was carried out before, so nothing is refused.
                let _ = self.view.write(write, by, at);
            }
            Act::Remove { path } => {
                let _ = self.view.tree.remove_over(&path, at);
            }
        }
    }
}
