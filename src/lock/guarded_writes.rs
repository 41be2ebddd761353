//! Writes that a guard protects, as `zklock_core::guarded_write` says: the calling thread sends the transaction, waits for
//! its answer while the lock can be trusted, and has an error in words.

use super::raw_guard::RawGuard;
use crate::error::{Error, Result};
use crate::session::call_error::{not_created, refused};
use crate::time::limit::Limit;
use crate::transaction::{Lock, Transaction};
use crate::transport::Failure;
use zklock_core::guarded_write::{self, Written};
use zklock_jute::{Access, Request};

impl Lock for RawGuard {
    fn acl(&self) -> Vec<Access> {
        self.session().acl()
    }

    fn commit(&self, ops: Vec<Request>) -> Result<()> {
        self.admit(&ops)?;
        self.check()?;
        let limit = Limit::after(self.valid_for());
        let request = guarded_write::request(self.nodes(), &ops);
        let mut caller = self.session().caller();
        loop {
            if caller.connected(&limit)?.is_none() {
                self.check()?;
                return Err(self.suspect());
            }
            self.check()?;
            let stamp = self.session().status.stamp();
            let asked = caller.post([(request.clone(), None)]);
            let answered = caller.wait(asked, &limit);
            if answered == Ok(Err(Failure::Closed)) && self.session().is_inherited() {
                return Err(Error::Closed);
            }
            let checks = self.nodes().len();
            let written = answered.map(|answered| guarded_write::judge(checks, &answered));
            match written.unwrap_or(Written::InDoubt) {
                Written::Committed => {
                    self.lease().confirm(stamp);
                    return Ok(());
                }
                Written::NotSent => {
                    // The next round checks the limit.
                    let _ = caller.breathe(&limit);
                }
                Written::InDoubt => {
                    self.mark_in_doubt();
                    return Err(Error::unconfirmed_write("the transaction", limit.spent()));
                }
                refused => return Err(self.refused(refused, &ops)),
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
        if guarded_write::deletes(self.nodes(), ops).is_some() {
            return Err(Error::BadArgument {
                name: "delete",
                rule: "the node is the guard's own, and goes with the guard".into(),
            });
        }
        Ok(())
    }

    fn refused(&self, written: Written, ops: &[Request]) -> Error {
        match written {
            Written::CheckRefused(node, code) => {
                refused(self.nodes().get(node).map_or("", String::as_str), code)
            }
            Written::Refused(op, code) => match ops.get(op) {
                Some(Request::Create { path, .. }) => not_created(path, code),
                op => refused(op.map_or("", Request::path), code),
            },
            Written::AllRefused(code) => refused(self.lease().path(), code),
            Written::TooLong(long) => Error::too_long(long, longest(ops)),
            _ => self.found_gone(),
        }
    }
}
