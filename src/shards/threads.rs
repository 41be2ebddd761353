//! What the threads of a call report to the calling thread, and how they end.

use std::any::Any;

use crate::error::{Error, Result};
use crate::system::channel::Sender;
use crate::system::thread::JoinHandle;

/// A report of a thread of the call to the calling thread.
pub(super) enum News {
    /// The nodes of the members, and this member's node.
    Members(Vec<String>, String),
    /// The thread of this shard has ended, or that of the members.
    Ended(Option<u32>),
}

/// Sends [`News::Ended`] when its thread ends, even in a panic.
pub(super) struct TellsTheEnd(pub(super) Sender<News>, pub(super) Option<u32>);

impl Drop for TellsTheEnd {
    fn drop(&mut self) {
        let _ = self.0.send(News::Ended(self.1));
    }
}

/// Why a thread of a call ended.
pub(super) enum Stop {
    Failed(Error),
    Panicked(Box<dyn Any + Send>),
}

/// Waits for a thread.
pub(super) fn join<T>(thread: JoinHandle<Result<T>>) -> Result<T, Stop> {
    let ended = thread.join().map_err(Stop::Panicked)?;
    ended.map_err(Stop::Failed)
}
