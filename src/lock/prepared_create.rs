//! Requests that a thread prepares before it sleeps in the line of its client.
//!
//! If other clients wait for the lock too, the next thread of this client goes to the end of the
//! queue when the thread ahead of it leaves: its create is sent with that release. If the thread
//! has given up meanwhile, the cleaner deletes the node that was created for it.

use std::sync::Arc;

use super::fresh_id::fresh_id;
use super::request::{LockRequest, Queue, creation};
use crate::session::Session;
use crate::session::caller::Caller;
use crate::session::early_create::EarlyCreate;
use crate::transport::CallId;
use zklock_core::acquisition::Acquisition;
use zklock_core::attempt::Orphan;
use zklock_core::validity::Stamp;
use zklock_jute::Request;

/// A create that another thread may have sent.
pub(crate) struct Early {
    session: Arc<Session>,
    dir: String,
    pub(super) id: String,
    pub(super) create: Arc<EarlyCreate>,
    /// The id of the create; the listing has the next id.
    pub(super) call_id: CallId,
}

impl Early {
    /// Prepares a create and a listing, with the caller that reads their answers. Returns `None` if an
    /// attempt would begin with another request, or if the transport has no transactions or does not
    /// resume sessions.
    pub(super) fn prepare(
        session: &Arc<Session>,
        queue: &Queue<'_>,
        request: &LockRequest<'_>,
    ) -> Option<(Caller, Self)> {
        if !(session.transport.transacts() && session.status.snapshot().resumes) {
            return None;
        }
        let (id, dir) = (fresh_id(), queue.dir.into());
        let asks = (queue.contest(session), request.patience);
        let prefix = Acquisition::enter(asks, (&dir, &id), None, None).begins_with_create()?;
        let create = creation(session, queue, request.note.as_deref(), &prefix);
        let mut caller = session.caller();
        let requests = [create, Request::list(queue.dir)].map(|request| (request, None));
        let (call_id, calls) = caller.prepare(requests);
        let early = Self {
            session: session.clone(),
            dir: queue.dir.to_owned(),
            id,
            create: EarlyCreate::new(prefix, calls),
            call_id,
        };
        Some((caller, early))
    }

    /// Returns itself and the stamp of its requests, if they were sent in this session.
    pub(super) fn sent_in(self, session: i64) -> Option<(Self, Stamp)> {
        let sent = self.create.settle()?;
        (sent.session == session).then_some((self, sent.stamp))
    }

    /// Notes that the answer has been read.
    pub(super) fn finish(self) {
        // Nothing is left to give up when this is dropped.
        let _ = self.create.give_up();
    }
}

impl Drop for Early {
    fn drop(&mut self) {
        if self.session.is_inherited() {
            return;
        }
        if let Some(sent) = self.create.give_up() {
            let node = Orphan::Prefix(self.create.prefix.clone());
            let cleaner = &self.session.cleaner;
            cleaner.add(&self.dir, sent.session, vec![node]);
        }
    }
}
