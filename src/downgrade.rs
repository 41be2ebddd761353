//! From writer to reader.
//!
//! As Curator does it since 5.5: a plain ephemeral read node with the writer's own number
//! is created, then the writer's node is deleted. Between the two both are there, so
//! there is no gap, and whoever waits for the writer finds the reader at the same place.

use std::sync::Arc;

use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::hold::Hold;
use crate::path;
use crate::proto::{CreateMode, ErrorCode, Reply, Request};
use crate::protocol::attempt::Leftover;
use crate::protocol::dialect::Role;
use crate::protocol::name::{LAST_SEQUENCE, NodeName, prefix};
use crate::session::ask::{over, refused};
use crate::session::fresh_id;
use crate::session::hub::Link;
use crate::session::limit::Limit;
use crate::session::transport::Failure;
use crate::session::vigil::Vigil;

impl Hold {
    /// Turns a writer's hold into a reader's; whatever fails releases it.
    pub(crate) fn downgrade(mut self) -> Result<Self> {
        self.check()?;
        let path = self.vigil().path().to_owned();
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
            Ok((proven, link)) => {
                let current = self.session().hub.session();
                let vigil = Vigil::new(&path, vec![node], &link, current, proven);
                let mut reader = Self::with(self.session(), Arc::new(vigil), self.token());
                reader.at_least_until = self.at_least_until.take();
                // The writer's node goes only now.
                drop(self);
                Ok(reader)
            }
            Err(error) => {
                let leftover = vec![Leftover::Prefix(prefix)];
                self.session()
                    .leftovers
                    .add(&dir, self.vigil().session(), leftover);
                Err(error)
            }
        }
    }

    /// Creates the reader's node, until there is no time left to do it.
    fn make(&self, node: &str) -> Result<(Moment, Link)> {
        let session = self.session();
        let limit = Limit::after(self.valid_for());
        let suspect = || Error::Suspect {
            path: self.vigil().path().to_owned(),
        };
        let mut asker = session.asker();
        loop {
            let link = asker.connected(&limit)?.map_err(|_| suspect())?;
            if link.session != self.vigil().session() {
                return Err(self.vigil().lost());
            }
            let create = Request::Create {
                path: node.to_owned(),
                data: session.settings.card.text(None),
                acl: session.settings.acl.entries().to_vec(),
                mode: CreateMode::Ephemeral,
                stat: true,
            };
            let sent = Moment::now();
            match asker.ask(create, &limit).map_err(|_| suspect())? {
                // The name was never used before: if it is there, it is ours.
                Ok(Reply::Created { .. }) | Err(Failure::Refused(ErrorCode::NODE_EXISTS)) => {
                    self.check()?;
                    return Ok((sent, link));
                }
                Ok(_) | Err(Failure::Lost | Failure::NotSent) => asker.breathe(),
                Err(Failure::Refused(ErrorCode::NO_NODE)) => return Err(self.vigil().lost()),
                Err(Failure::Refused(code)) => return Err(refused(self.vigil().path(), code)),
                Err(Failure::TooLong(long)) => return Err(long.about(self.vigil().path())),
                Err(Failure::Closed) => return Err(over(&session.hub.link())),
            }
        }
    }
}
