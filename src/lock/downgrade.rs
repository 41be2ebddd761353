//! Carries out a downgrade from writer to reader; [`Downgrade`] decides.

use super::fresh_id::fresh_id;
use super::raw_guard::RawGuard;
use crate::error::{Error, Result};
use crate::path;
use crate::session::call_error::CallError;
use crate::session::caller::Caller;
use crate::session::confirm_grant::Proven;
use crate::session::lease::Lease;
use crate::time::limit::Limit;
use zklock_core::downgrade::{Action, Downgrade, Event, Outcome};
use zklock_core::validity::Stamp;
use zklock_jute::{CreateMode, ErrorCode, Request};

impl RawGuard {
    /// Downgrades a writer's lock to a reader's; a failure releases it.
    pub(crate) fn downgrade(mut self) -> Result<Self> {
        self.check()?;
        let path = self.lease().path().to_owned();
        let (node, stamp) = DowngradeDriver::new(&self)?.run()?;
        let session = self.lease().session();
        let bounds = self.session().status.bounds(session);
        let lease = Lease::new(&path, vec![node], session, bounds, stamp);
        let reader = self.renewed(lease);
        // The reader's node stands by now, so the writer's can go.
        drop(self);
        Ok(reader)
    }
}

/// A downgrade in progress.
struct DowngradeDriver<'a> {
    writer: &'a RawGuard,
    dir: &'a str,
    downgrade: Downgrade,
    caller: Caller,
    /// Reached when the writer's lock is lost.
    limit: Limit,
    /// The stamp of the last request that proved anything.
    stamp: Stamp,
}

impl<'a> DowngradeDriver<'a> {
    fn new(writer: &'a RawGuard) -> Result<Self> {
        let name = path::name(writer.node());
        let dialect = writer.session().settings.dialect;
        let downgrade = Downgrade::new(dialect, name, &fresh_id());
        Ok(Self {
            writer,
            dir: path::parent(writer.node()),
            downgrade: downgrade.ok_or_else(|| Error::Exhausted {
                path: writer.lease().path().to_owned(),
                reason: "a downgrade would lose its place",
            })?,
            caller: writer.session().caller(),
            limit: Limit::after(writer.valid_for()),
            stamp: Stamp::NEVER,
        })
    }

    /// Returns the reader's node, and the stamp of its proof.
    fn run(mut self) -> Result<(String, Stamp)> {
        loop {
            let event = match self.downgrade.action() {
                Action::Make(reader) => self.make(&self.full(&reader))?,
                Action::Prove(nodes) => self.prove(&nodes.map(|name| self.full(&name)))?,
                Action::Finish(Outcome::Reader(name)) => return Ok((self.full(&name), self.stamp)),
                Action::Finish(Outcome::Lost) => return Err(self.writer.found_gone()),
                Action::Finish(Outcome::Gone) => return Err(self.writer.suspect()),
            };
            self.downgrade.handle(match event {
                Event::Made | Event::Proved if self.writer.check().is_err() => Event::Lost,
                event => event,
            });
        }
    }

    fn make(&mut self, reader: &str) -> Result<Event> {
        let session = self.writer.session();
        let Some(snapshot) = self.caller.connected(&self.limit)? else {
            return Ok(Event::Cancel);
        };
        if snapshot.session != self.writer.lease().session() {
            return Ok(Event::Lost);
        }
        let transacts = session.transport.transacts();
        self.stamp = session.status.stamp();
        let path = self.writer.lease().path();
        let request = self.request(reader, transacts);
        Ok(match self.caller.call_once(&request, path, &self.limit) {
            // The name is fresh: if the node exists, an earlier request created it. If a
            // transaction created it, the writer's node was there.
            Ok(Some(_)) | Err(CallError::Refused(ErrorCode::NODE_EXISTS)) => match transacts {
                true => Event::Made,
                false => Event::MadeBeside,
            },
            Err(CallError::Refused(ErrorCode::NO_NODE)) => Event::NoNode,
            Ok(None) => {
                // The next request notices the limit.
                let _ = self.caller.breathe(&self.limit);
                Event::ReplyLost
            }
            Err(error) => return error.or(path, Event::Cancel),
        })
    }

    fn prove(&mut self, nodes: &[String]) -> Result<Event> {
        Ok(match self.writer.session().prove(nodes, &self.limit)? {
            Proven::By(stamp) => {
                self.stamp = stamp;
                Event::Proved
            }
            Proven::Gone(_) => Event::NoNode,
            Proven::LimitReached => Event::Cancel,
        })
    }

    /// Creates the reader's node if the writer's is there.
    fn request(&self, reader: &str, transacts: bool) -> Request {
        let (session, token) = (self.writer.session(), self.writer.token().get());
        let data = session.settings.card.text_with(token).into();
        let path = reader.to_owned();
        let (acl, mode) = (session.acl(), CreateMode::Ephemeral);
        if !transacts {
            return Request::Create {
                path,
                data,
                acl,
                mode,
                stat: true,
            };
        }
        let check = Request::check(self.writer.node());
        let create = Request::create(path, data, acl, mode);
        Request::Multi(vec![check, create])
    }

    fn full(&self, name: &str) -> String {
        format!("{}/{name}", self.dir)
    }
}

impl Drop for DowngradeDriver<'_> {
    fn drop(&mut self) {
        // This changes nothing if the downgrade has finished.
        self.downgrade.handle(Event::Cancel);
        let (orphans, session) = (self.downgrade.orphans(), self.writer.lease().session());
        if !orphans.is_empty() {
            let cleaner = &self.writer.session().cleaner;
            cleaner.add(self.dir, session, orphans);
        }
    }
}
