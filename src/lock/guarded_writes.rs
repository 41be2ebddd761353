//! Writes that a guard protects: one transaction that first checks the guard's nodes.
//!
//! The node of a granted lock exists exactly as long as the lock is held, and no contender can come
//! ahead of it. A transaction that checks the node is therefore committed by the holder, whatever
//! any clock says.

use super::raw_guard::RawGuard;
use crate::error::{Error, Result};
use crate::session::call_error::{not_created, refused};
use crate::time::limit::{Limit, LimitReached};
use crate::transaction::{Lock, Transaction};
use crate::transport::Failure;
use zklock_core::validity::Stamp;
use zklock_jute::{Access, ErrorCode, Reply, Request, culprit};

impl Lock for RawGuard {
    fn acl(&self) -> Vec<Access> {
        self.session().acl()
    }

    fn commit(&self, ops: Vec<Request>) -> Result<()> {
        self.admit(&ops)?;
        self.check()?;
        let limit = Limit::after(self.valid_for());
        let checks = self.nodes().iter().map(|node| Request::check(node.clone()));
        let request = Request::Multi(checks.chain(ops.iter().cloned()).collect());
        let mut caller = self.session().caller();
        loop {
            if caller.connected(&limit)?.is_none() {
                self.check()?;
                return Err(self.suspect());
            }
            self.check()?;
            let stamp = self.session().status.stamp();
            let asked = caller.post([(request.clone(), None)]);
            match caller.wait(asked, &limit) {
                Ok(Ok(Reply::Multi(results))) => return self.committed(&results, &ops, stamp),
                Ok(Err(Failure::NotSent)) => {
                    // The next round checks the limit.
                    let _ = caller.breathe(&limit);
                }
                Ok(Err(Failure::Refused(code))) => return Err(refused(self.lease().path(), code)),
                Ok(Err(Failure::TooLong(long))) => {
                    return Err(Error::too_long(long, longest(&ops)));
                }
                Ok(Err(Failure::Closed)) if self.session().is_inherited() => {
                    return Err(Error::Closed);
                }
                // The transaction may have been carried out, or may still be.
                Ok(Err(Failure::Lost | Failure::Closed) | Ok(_)) | Err(LimitReached) => {
                    self.mark_in_doubt();
                    return Err(Error::unconfirmed_write("the transaction", limit.spent()));
                }
            }
        }
    }
}

/// Returns the node of the longest operation.
fn longest(ops: &[Request]) -> &str {
    let length = |op: &&Request| match op {
        Request::Create { path, data, .. } | Request::SetData { path, data, .. } => {
            path.len() + data.len()
        }
        op => op.path().len(),
    };
    ops.iter().max_by_key(length).map_or("", Request::path)
}

impl RawGuard {
    pub(crate) fn transaction(&self) -> Transaction<'_> {
        Transaction::new(Some(self))
    }

    fn admit(&self, ops: &[Request]) -> Result<()> {
        self.session().needs_transactions("a transaction")?;
        let deletes = |node: &String| {
            let delete = |op: &Request| matches!(op, Request::Delete { path, .. } if path == node);
            ops.iter().any(delete)
        };
        if self.nodes().iter().any(deletes) {
            return Err(Error::BadArgument {
                name: "delete",
                rule: "the node is the guard's own, and goes with the guard".into(),
            });
        }
        Ok(())
    }

    fn committed(
        &self,
        results: &[Result<Reply, ErrorCode>],
        ops: &[Request],
        stamp: Stamp,
    ) -> Result<()> {
        let Some((place, code)) = culprit(results) else {
            // The check of the nodes was committed too, which proves the lock.
            self.lease().confirm(stamp);
            return Ok(());
        };
        match self.nodes().get(place) {
            Some(_) if code == ErrorCode::NO_NODE => Err(self.found_gone()),
            Some(node) => Err(refused(node, code)),
            None => Err(match ops.get(place - self.nodes().len()) {
                Some(Request::Create { path, .. }) => not_created(path, code),
                op => refused(op.map_or("", Request::path), code),
            }),
        }
    }
}
