//! Carries out the search for a permit's number; [`PermitNumber`] decides.

use std::sync::OnceLock;

use super::Permit;
use crate::error::{Error, Result};
use crate::lock::raw_guard::RawGuard;
use crate::path;
use crate::session::call_error::{CallError, refused};
use crate::session::caller::Caller;
use crate::session::lease::Claim;
use crate::time::limit::Limit;
use zklock_core::directories::Lasting;
use zklock_core::permit_number::{Action, Event, Outcome, PermitNumber, prefix};
use zklock_jute::{CreateMode, ErrorCode, Reply, Request};

/// One search for a number.
pub(super) struct NumberDriver<'a> {
    raw: &'a RawGuard,
    claim: &'a Claim,
    number: PermitNumber,
    caller: Caller,
    /// Reached when the permit is lost.
    limit: Limit,
    /// The data of the permits' directory, as last read.
    data: Vec<u8>,
}

impl Permit {
    /// Returns the number of this permit: from 0 on, below the number of permits, and different
    /// from that of every other permit that is held at the time. For worker ids, shards, ports.
    ///
    /// The permit keeps the number as long as it is held, with the same promise: no other permit
    /// gets it as long as [`check`](Self::check) passes. Several permits that were acquired
    /// together have one number. Only permits that ask for a number have one, so it costs nothing
    /// where it is not used. Curator's and kazoo's clients have none, and count as before. The
    /// first call finds the number and blocks for two round trips, a few more if others ask at the
    /// same time, and at most as long as the permit is valid. Later calls do no I/O.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Lost`] if the permit is lost, with [`Error::Suspect`] if no server
    /// answers while it is valid, with [`Error::NoAuth`] if this client may not write the data of
    /// the permits' directory, with [`Error::Exhausted`] if more permits than this client knows of
    /// have numbers, and with [`Error::Unsupported`] over a handle of the `zookeeper` crate, which
    /// has no transactions.
    ///
    /// # Example
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zklock::embedded::Server::start()?;
    /// # let client = zklock::Client::connect(server.hosts())?;
    /// // Eight workers at most, each with a partition of its own.
    /// let permit = client.semaphore("/workers/import", 8)?.acquire()?;
    /// let partition = permit.number()?;
    /// assert!(partition < 8);
    /// # Ok(())
    /// # }
    /// ```
    pub fn number(&self) -> Result<u32> {
        self.raw.check()?;
        let claim = self.raw.lease().claim();
        if let Some(node) = claim.and_then(|claim| claim.node.get()) {
            let number = node.rsplit('.').next().map(str::parse);
            return Ok(number.and_then(|number| number.ok()).unwrap_or_default());
        }
        self.raw
            .session()
            .needs_transactions("the number of a permit")?;
        NumberDriver::new(&self.raw, self.permits).run()
    }
}

impl<'a> NumberDriver<'a> {
    fn new(raw: &'a RawGuard, permits: u32) -> Self {
        let lease = path::name(raw.node());
        // The release must know which node to delete before a claim is sent.
        let claim = raw.lease().claim_or(|| Claim {
            dir: directory(raw),
            prefix: prefix(lease),
            node: OnceLock::new(),
        });
        Self {
            raw,
            claim,
            number: PermitNumber::new(lease, permits),
            caller: raw.session().caller(),
            limit: Limit::after(raw.valid_for()),
            data: Vec::new(),
        }
    }

    fn run(mut self) -> Result<u32> {
        loop {
            let event = match self.number.action() {
                Action::Look => self.look()?,
                Action::Make => self.make()?,
                Action::Claim(name, version) => self.claim(&name, version)?,
                Action::Finish(Outcome::Held(number)) => return self.held(number),
                Action::Finish(Outcome::Lost) => return Err(self.raw.found_gone()),
                Action::Finish(Outcome::Gone) => {
                    self.raw.check()?;
                    return Err(self.raw.suspect());
                }
                Action::Finish(Outcome::Full) => {
                    return Err(Error::Exhausted {
                        path: self.raw.lease().path().to_owned(),
                        reason: "more permits are out than this client counts, and all its numbers are taken",
                    });
                }
            };
            self.number.handle(event);
        }
    }

    fn held(&self, number: u32) -> Result<u32> {
        let node = format!("{}/{}{number}", self.claim.dir, self.claim.prefix);
        let _ = self.claim.node.set(node);
        self.raw.watch_anew();
        self.raw.check()?;
        Ok(number)
    }

    fn look(&mut self) -> Result<Event> {
        let leases = path::parent(self.raw.node());
        let looks = [
            Request::get(leases),
            Request::list(&self.claim.dir),
            Request::list(leases),
        ];
        let answers = match self.caller.call_all(&looks, leases, &self.limit) {
            Ok(answers) => answers,
            Err(error) => return error.or(leases, Event::Cancel),
        };
        let mut answers = answers.into_iter();
        let version = match answers.next() {
            Some(Ok(Reply::Data { data, stat })) => {
                self.data = data.into();
                stat.version
            }
            Some(Err(ErrorCode::NO_NODE)) => return Err(self.raw.found_gone()),
            Some(Err(code)) => return Err(refused(leases, code)),
            _ => return Ok(Event::Cancel),
        };
        let mut names = |dir: &str| match answers.next() {
            Some(Ok(Reply::Children { names, .. })) => Ok(Some(names)),
            Some(Err(code)) if code != ErrorCode::NO_NODE => Err(refused(dir, code)),
            _ => Ok(None),
        };
        let claims = names(&self.claim.dir)?;
        let permits = names(leases)?.unwrap_or_default();
        Ok(Event::Looked(version, claims, permits))
    }

    fn make(&mut self) -> Result<Event> {
        let (session, dirs) = (self.raw.session(), [self.claim.dir.clone()]);
        let made = session.make_directories(&dirs, Lasting::WhileUsed, &self.limit)?;
        Ok(made.map_or(Event::Cancel, |()| Event::Made))
    }

    fn claim(&mut self, name: &str, version: i32) -> Result<Event> {
        let leases = path::parent(self.raw.node());
        let node = format!("{}/{name}", self.claim.dir);
        let acl = self.raw.session().acl();
        let claim = Request::Multi(vec![
            Request::check(self.raw.node()),
            Request::set(leases, self.data.clone(), version),
            Request::create(node, Vec::new(), acl, CreateMode::Ephemeral),
        ]);
        match self.caller.call_once(&claim, leases, &self.limit) {
            Ok(Some(_)) => Ok(Event::Claimed),
            Ok(None) => Ok(Event::ReplyLost),
            // The next look tells which is missing: the permit, or the directory of the claims.
            Err(CallError::Refused(
                ErrorCode::BAD_VERSION | ErrorCode::NO_NODE | ErrorCode::NODE_EXISTS,
            )) => Ok(Event::Changed),
            Err(error) => error.or(leases, Event::Cancel),
        }
    }
}

/// Returns the directory of the claims.
fn directory(raw: &RawGuard) -> String {
    let suffix = raw.session().settings.dialect.suffix_of_numbers();
    format!("{}{suffix}", raw.lease().path())
}
