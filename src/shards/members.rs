//! A member's node among the others, and the reports of changes.

use std::sync::Arc;

use super::threads::{News, Stop, TellsTheEnd, join};
use crate::error::{Error, Result};
use crate::lock::Locks;
use crate::options::LockOptions;
use crate::path;
use crate::rwlock::{RwLock, RwLockReadGuard};
use crate::system::channel::{Receiver, Sender, bounded};
use crate::system::thread::{self, JoinHandle};
use crate::time::limit::Limit;

/// The thread that is a member, and reports the other members.
pub(super) struct Members {
    thread: JoinHandle<Result<()>>,
    /// Ends the thread when it is dropped.
    quit: Sender<()>,
}

impl Members {
    pub(super) fn join(locks: &Arc<Locks>, path: &str, tell: Sender<News>) -> Result<Self> {
        let ((quit, leave), locks) = (bounded(0), locks.clone());
        let lock = RwLock::new(&locks, path)?;
        let run = move || {
            let _ended = TellsTheEnd(tell.clone(), None);
            while let Some(member) = enter(&lock, &leave)? {
                if follow(&locks, &lock, &member, &leave, &tell)? {
                    break;
                }
            }
            Ok(())
        };
        let thread = thread::spawn("zklock-members", run);
        Ok(Self {
            thread: thread.map_err(Error::no_thread)?,
            quit,
        })
    }

    /// Leaves, and waits for the thread.
    pub(super) fn leave(self) -> Result<(), Stop> {
        drop(self.quit);
        join(self.thread)
    }
}

/// Becomes a member; returns `None` if it is told to leave before.
fn enter(lock: &RwLock, leave: &Receiver<()>) -> Result<Option<RwLockReadGuard>> {
    loop {
        match lock.read_with(LockOptions::new().cancel(leave.clone())) {
            Err(Error::Evicted { .. }) => {}
            entered => return entered,
        }
    }
}

/// Reports each change of the members. Returns `true` when the member is told to leave, and `false`
/// when its node is gone.
fn follow(
    locks: &Arc<Locks>,
    lock: &RwLock,
    member: &RwLockReadGuard,
    leave: &Receiver<()>,
    tell: &Sender<News>,
) -> Result<bool> {
    let limit = Limit::new(None, Some(leave.clone()));
    let mine = path::name(member.node());
    let mut present = None;
    loop {
        if limit.is_over() {
            return Ok(true);
        }
        let (session, known) = (&locks.session, present.as_ref());
        let Some(names) = session.other_readers(lock.path(), known, &limit)? else {
            continue;
        };
        if names.contains(mine) {
            let _ = tell.send(News::Members(
                names.iter().cloned().collect(),
                mine.to_owned(),
            ));
        } else if member.verify().is_err() {
            // Without this proof, the guard itself may not know of the loss yet, and no other change may follow.
            return Ok(false);
        }
        present = Some(names);
    }
}
