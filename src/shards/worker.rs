//! The thread that works on one shard.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::threads::{News, Stop, TellsTheEnd, join};
use crate::error::{Error, Result};
use crate::standby::{Standby, Term};
use crate::system::channel::{Sender, bounded};
use crate::system::thread::{self, JoinHandle};

/// The thread of a shard, which waits for the shard's lock and works.
pub(super) struct Worker {
    thread: JoinHandle<Result<ControlFlow<()>>>,
    /// Ends the terms when it is dropped.
    stop: Option<Sender<()>>,
}

impl Worker {
    pub(super) fn start<W>(
        standby: Standby,
        shard: u32,
        work: &Arc<W>,
        tell: &Sender<News>,
    ) -> Result<Self>
    where
        W: Fn(u32, &Term<'_>) -> ControlFlow<()> + Send + Sync + 'static,
    {
        let ((stop, cancel), work) = (bounded(0), work.clone());
        let ended = TellsTheEnd(tell.clone(), Some(shard));
        let run = move || {
            let _ended = ended;
            let mut flow = ControlFlow::Continue(());
            standby.run_until(cancel, |term| {
                flow = work(shard, term);
                flow
            })?;
            Ok(flow)
        };
        let thread = thread::spawn("zklock-shard", run);
        Ok(Self {
            thread: thread.map_err(Error::no_thread)?,
            stop: Some(stop),
        })
    }

    /// Ends the present term, and lets no other one begin.
    pub(super) fn stop(&mut self) {
        self.stop = None;
    }

    /// Waits for the thread; returns what the last term returned.
    pub(super) fn end(self) -> Result<ControlFlow<()>, Stop> {
        join(self.thread)
    }
}
