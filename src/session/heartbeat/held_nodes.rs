//! The watches on the nodes of locks that are held for a while.

use std::sync::Arc;

use super::{Heartbeat, REVOKE};
use crate::error::LostReason;
use crate::session::lease::{self, Lease};
use crate::session::leases::OpenLease;
use crate::transport::Answered;
use crate::transport::{Call, Failure, Fired, Watch, WatchId};
use zklock_jute::{ErrorCode, EventKind, Reply, Request};

impl Heartbeat {
    /// Reads and watches the nodes of these.
    pub(super) fn watch(&self, leases: Vec<(u64, OpenLease, u64)>) {
        let mut calls = Vec::new();
        for (id, OpenLease { lease, .. }, watch) in leases {
            calls.extend(lease.all_nodes().map(|path| {
                let read = self.read.0.clone();
                Call {
                    request: Request::GetData {
                        path: path.clone(),
                        watch: true,
                    },
                    watch: Some(Watch::new(WatchId(watch), self.fired.0.clone())),
                    answer: Box::new(move |answered| {
                        let _ = read.send((id, answered));
                    }),
                }
            }));
        }
        if !calls.is_empty() {
            self.transport.send(calls);
        }
    }

    /// A watch on a held node fired.
    pub(super) fn node_changed(&self, fired: Fired) {
        let watched = self.leases.renewals().watched_by(fired.id.0);
        let Some((id, OpenLease { lease, .. })) = watched else {
            return;
        };
        match fired.kind {
            EventKind::Deleted => {
                self.lose(id, &lease, LostReason::NodeGone);
                self.ask_why(id, &lease);
            }
            // The next look reads and watches the node again.
            _ => self.leases.unwatch(id),
        }
    }

    /// A held node was read, and has a watch if it exists.
    pub(super) fn node_read(&self, id: u64, answered: &Answered) {
        let Some(lease) = self.leases.get(id) else {
            return;
        };
        match answered {
            Ok(Reply::Data { data, .. }) if REVOKE.contains(&&data[..]) => lease.revoke_requested(),
            Err(Failure::Refused(ErrorCode::NO_NODE)) => {
                self.lose(id, &lease, lease::gone(self.transport.capabilities()));
            }
            Err(Failure::Lost | Failure::NotSent) => self.leases.unwatch(id),
            _ => {}
        }
    }

    /// The lock is lost, which the next look tells its guard.
    pub(super) fn lose(&self, id: u64, lease: &Arc<Lease>, why: LostReason) {
        lease.lose(why);
        self.leases.renewals().look_at_these(&[id]);
    }

    /// A node went: asks whether the session lasts, or the node went with it.
    fn ask_why(&self, id: u64, lease: &Lease) {
        let calls = lease.all_nodes().map(|path| {
            let read = self.read.0.clone();
            Call {
                request: Request::exists(path),
                watch: None,
                answer: Box::new(move |answered| {
                    let _ = read.send((id, answered));
                }),
            }
        });
        self.transport.send(calls.collect());
    }
}
