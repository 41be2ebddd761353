//! From writer to reader.
//!
//! As Curator does it since 5.5: a plain ephemeral read node with the writer's own number
//! is created, then the writer's node is deleted. Between the two both are there, so
//! there is no gap, and whoever waits for the writer finds the reader at the same place.

use super::fresh_id::fresh_id;
use super::raw_guard::RawGuard;
use crate::error::{Error, Result};
use crate::jute::{CreateMode, ErrorCode, Op, Reply, Request, failure};
use crate::path;
use crate::recipe::attempt::Orphan;
use crate::recipe::dialect::Role;
use crate::recipe::name::{LAST_SEQUENCE, NodeName, prefix};
use crate::recipe::validity::Stamp;
use crate::session::caller::{over, refused};
use crate::session::grant_proof::Proven;
use crate::session::lease::Lease;
use crate::time::limit::Limit;
use crate::transport::Failure;

impl RawGuard {
    /// Turns a writer's hold into a reader's; whatever fails releases it.
    pub(crate) fn downgrade(mut self) -> Result<Self> {
        self.check()?;
        let path = self.lease().path().to_owned();
        let name = path::name(self.node());
        let dir = self.node()[..self.node().len() - name.len() - 1].to_owned();
        let sequence = NodeName::parse(name).map(|name| name.sequence);
        // Where numbers are used up, births are what counts, and the reader's is late.
        let Some(sequence) = sequence.filter(|number| (0..LAST_SEQUENCE / 2).contains(number))
        else {
            return Err(Error::Exhausted {
                path,
                reason: "a downgrade would lose its place",
            });
        };
        let id = fresh_id();
        let prefix = prefix(self.session().settings.dialect, Role::Read, &id);
        let node = format!("{dir}/{prefix}{sequence:010}");
        match self.make(&node) {
            Ok(stamp) => {
                let session = self.lease().session();
                let bounds = self.session().status.bounds(session);
                let lease = Lease::new(&path, vec![node], session, bounds, stamp);
                let reader = self.renewed(lease);
                // The writer's node goes only now.
                drop(self);
                Ok(reader)
            }
            Err(error) => {
                let orphan = vec![Orphan::Prefix(prefix)];
                self.session()
                    .cleaner
                    .add(&dir, self.lease().session(), orphan);
                Err(error)
            }
        }
    }

    /// Creates the reader's node, until there is no time left to do it.
    fn make(&self, node: &str) -> Result<Stamp> {
        let session = self.session();
        let limit = Limit::after(self.valid_for());
        let suspect = || Error::Suspect {
            path: self.lease().path().to_owned(),
        };
        let mut caller = session.caller();
        loop {
            let snapshot = caller.connected(&limit)?.map_err(|_| suspect())?;
            if snapshot.session != self.lease().session() {
                return Err(self.lease().lost());
            }
            let transacts = session.transport.capabilities().multi;
            let stamp = session.status.stamp();
            let answered = caller.ask(self.request(node, transacts), &limit);
            match answered.map_err(|_| suspect())? {
                Ok(Reply::Multi(results)) => match failure(&results) {
                    // The name was never used before: if it is there, it is ours, and the
                    // writer's node was there before it in this transaction, too.
                    None | Some(ErrorCode::NODE_EXISTS) => return self.still(stamp),
                    Some(ErrorCode::NO_NODE) => return Err(self.gone()),
                    Some(code) => return Err(refused(self.lease().path(), code)),
                },
                Ok(Reply::Created { .. }) | Err(Failure::Refused(ErrorCode::NODE_EXISTS)) => {
                    // Without a transaction, the writer's node is asked for afterwards.
                    return match session.prove(self.nodes(), &limit)? {
                        Proven::By(stamp) => self.still(stamp),
                        Proven::Gone(_) => Err(self.gone()),
                        Proven::LimitReached => Err(suspect()),
                    };
                }
                Ok(_) | Err(Failure::Lost | Failure::NotSent) => caller.breathe(),
                Err(Failure::Refused(ErrorCode::NO_NODE)) => return Err(self.gone()),
                Err(Failure::Refused(code)) => return Err(refused(self.lease().path(), code)),
                Err(Failure::TooLong(long)) => return Err(long.about(self.lease().path())),
                Err(Failure::Closed) => return Err(over(&session.status.snapshot())),
            }
        }
    }

    /// Creates the reader's node if the writer's is there.
    fn request(&self, node: &str, transacts: bool) -> Request {
        let settings = &self.session().settings;
        let (path, data) = (node.to_owned(), settings.card.text(None).into());
        let (acl, mode) = (settings.acl.entries().to_vec(), CreateMode::Ephemeral);
        if !transacts {
            return Request::Create {
                path,
                data,
                acl,
                mode,
                stat: true,
            };
        }
        let check = Op::Check {
            path: self.node().to_owned(),
            version: -1,
        };
        let create = Op::Create {
            path,
            data,
            acl,
            mode,
            stat: false,
        };
        Request::Multi(vec![check, create])
    }

    fn still(&self, stamp: Stamp) -> Result<Stamp> {
        self.check()?;
        Ok(stamp)
    }

    /// The writer's node is gone, and the lock with it.
    fn gone(&self) -> Error {
        self.lease().lose();
        self.lease().lost()
    }
}
