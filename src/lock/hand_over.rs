//! Hands a lock to another process, together with its session.
//!
//! ```text
//!  old process                              new process
//!  check, version ─► guard Lost ─► leave ─► connect with the session ─► mark ─► prove ─► guard
//! ```
//!
//! The old process proves the lock, marks its guard Lost and leaves its connection without sending
//! the request that ends a session. ZooKeeper gives a session to the connection that asked for it
//! last, and would give it to any number of processes that know its password, one after the other.
//! The new process therefore first writes a mark of its own into the lock's node, over the version
//! that the old process has read: of all processes that try, one succeeds. The others leave without
//! ending the session. One of them may take the connection from the new holder meanwhile, which
//! then reconnects.
//!
//! The node has been at the head of its queue, where no contender comes ahead of it. The new guard
//! trusts its own messages only: when it connected, and when it wrote the mark. The old process
//! adds when the leader had last heard of the session, which shows that the session was not about
//! to end when the new process connected.

use std::sync::Arc;

use super::fresh_id::fresh_id;
use super::raw_guard::RawGuard;
use crate::error::{Error, LostReason, Result};
use crate::path;
use crate::session::Session;
use crate::session::call_error::{CallError, refused};
use crate::session::caller::{Caller, Replies};
use crate::session::confirm_grant::Proven;
use crate::session::lease::Lease;
use crate::system::clock;
use crate::time::limit::Limit;
use crate::token::FencingToken;
use crate::transport::handover::{Handover, Inherited, SessionKey};
use crate::transport::{CallId, Failure};
use zklock_core::attempt::Orphan;
use zklock_core::dialect::Kind;
use zklock_core::name::NodeName;
use zklock_core::renewals::REVOKE;
use zklock_core::validity::Stamp;
use zklock_jute::{ErrorCode, Reply, Request, Stat};

/// The password byte of ClickHouse Keeper, which resumes no session and gives all of them the same password.
const NO_PASSWORD: u8 = 0;

impl RawGuard {
    /// Leaves the lock and its session to another process; the guard is Lost afterwards. On
    /// failure, the guard stays valid. Blocks for a round trip, at most until the lock is lost.
    pub(crate) fn to_process(&self) -> Result<Handover> {
        self.check()?;
        self.may_go()?;
        let (version, is_asked_for) = self.version()?;
        let session = self.session();
        let left = self.alone_with()?;
        self.check()?;
        let key = self.key()?;
        let inherited = Inherited {
            key,
            timeout: session.status.snapshot().timeout,
            heard_of: session.status.heard_of(),
            is_kept: true,
        };
        // The guard must be lost before another process can learn of the handover.
        self.lease().lose(LostReason::HandedOver);
        session.transport.keep_session(true);
        session.transport.leave();
        Ok(Handover {
            session: inherited,
            clock: clock::name(),
            chroot: Some(session.transport.chroot().to_owned()),
            path: self.lease().path().to_owned(),
            node: self.node().to_owned(),
            token: self.token().get(),
            version,
            is_revoked: is_asked_for || self.lease().is_revoked(),
            left,
        })
    }

    /// Fails if this lock cannot be handed to another process.
    fn may_go(&self) -> Result<()> {
        self.key()?;
        let name = NodeName::parse(path::name(self.node()));
        let what = match name.map(|name| name.kind) {
            // Curator's latches look again only when the node before them is deleted.
            Some(Kind::Latch) => "a hand-over of a LeaderLatch",
            _ if self.has_duties() => {
                "a hand-over of a lock that does more at its release, or is still in doubt"
            }
            _ => return Ok(()),
        };
        Err(Error::Unsupported { what })
    }

    /// Returns the session's key, unless the transport does not know it or the servers do not check it.
    fn key(&self) -> Result<SessionKey> {
        let key = self.session().transport.key().filter(|key| {
            let is_random = key.password.0.iter().any(|byte| *byte != NO_PASSWORD);
            is_random && key.id == self.lease().session()
        });
        let what = "a hand-over of its session";
        key.ok_or(Error::Unsupported { what })
    }

    /// Returns what attempts of the client have left. Fails if the client has more than this lock, which would go
    /// with the session, or has to do more with it than to delete its nodes.
    fn alone_with(&self) -> Result<Vec<(String, Orphan)>> {
        let session = self.session();
        let left = session.cleaner.leftovers();
        let left = left.filter(|_| session.leases.len() == 1);
        left.ok_or(Error::Unsupported {
            what: "a hand-over while it has other locks, or is still giving them up",
        })
    }

    /// Returns the version of the node, and whether another client asks for the lock there, as read
    /// from a server that has just proven the lock.
    fn version(&self) -> Result<(i32, bool)> {
        let node = self.node();
        let check = Request::Multi(vec![Request::check(node)]);
        let (limit, mut caller) = (Limit::after(self.valid_for()), self.session().caller());
        let requests = [check, Request::get(node)];
        let answers = match caller.call_all(&requests, node, &limit) {
            Ok(answers) => answers,
            Err(error) => return Err(error.into_error(node, || self.suspect())),
        };
        match answers.into_iter().nth(1) {
            Some(Ok(Reply::Data { data, stat })) => Ok((stat.version, REVOKE.contains(&&data[..]))),
            Some(Err(ErrorCode::NO_NODE)) => Err(self.found_gone()),
            Some(Err(code)) => Err(refused(node, code)),
            _ => Err(self.suspect()),
        }
    }
}

/// An attempt to take over a lock.
struct Attempt<'a> {
    session: &'a Arc<Session>,
    handover: &'a Handover,
    caller: Caller,
    /// The mark: data that only this attempt writes into the node.
    data: Vec<u8>,
    version: i32,
    is_revoked: bool,
    /// The listing of the session's nodes, behind a write of the mark that may have succeeded.
    list: Option<CallId>,
}

impl Session {
    /// Takes over a lock. On success, this client may end the session from then on. On failure, it
    /// may not, unless the lock is this client's. Blocks at most until the limit, and for a part of
    /// the session timeout.
    pub(crate) fn take_over(
        self: &Arc<Self>,
        handover: &Handover,
        limit: &Limit,
    ) -> Result<RawGuard> {
        let mut attempt = Attempt {
            session: self,
            handover,
            caller: self.caller(),
            data: self.settings.card.text_of_taker(&fresh_id()),
            version: handover.version,
            is_revoked: handover.is_revoked,
            list: None,
        };
        let stamp = attempt.mark(limit)?;
        self.transport.keep_session(false);
        attempt.give_up_the_rest(limit);
        attempt.guard(stamp, limit)
    }
}

/// Returns the request that lists all nodes of the session that sends it.
fn list_all() -> Request {
    Request::GetEphemerals {
        below: "/".to_owned(),
    }
}

impl Attempt<'_> {
    /// Writes this process's mark into the node; returns the stamp of that write.
    fn mark(&mut self, limit: &Limit) -> Result<Stamp> {
        loop {
            self.connect(limit)?;
            let stamp = self.session.status.stamp();
            if self.write(limit)? {
                return Ok(stamp);
            }
        }
    }

    /// Writes the mark and reads the node. Returns whether the mark there is this attempt's;
    /// `false` if the mark must be written again.
    ///
    /// The answer to the write does not tell: ZooKeeper finds the connection for an answer by the
    /// session and the number of the request, so the answer may be to another process's write.
    fn write(&mut self, limit: &Limit) -> Result<bool> {
        let node = &self.handover.node;
        let write = Request::set(node.clone(), self.data.clone(), self.version);
        let answers = match self.ask(&[write, Request::get(node)], limit) {
            Ok(Some(answers)) => answers,
            Ok(None) => return Ok(false),
            Err(error) => return Err(error.into_error(node, || self.unanswered(limit))),
        };
        match <[_; 2]>::try_from(answers) {
            Ok(
                [
                    Ok(_) | Err(ErrorCode::BAD_VERSION | ErrorCode::NO_NODE),
                    Ok(Reply::Data { data, stat }),
                ],
            ) => {
                self.is_ours(stat)?;
                self.is_marked(&data, stat.version)
            }
            Ok([.., Err(ErrorCode::NO_NODE)]) => Err(self.gone()),
            Ok([Err(code), _] | [_, Err(code)]) => Err(refused(node, code)),
            _ => Err(self.unanswered(limit)),
        }
    }

    /// Sends these requests, followed by a listing of the session's other nodes; returns `None` if
    /// an answer was lost.
    ///
    /// ZooKeeper before 3.6 does not know that listing, and closes the connection before it has
    /// answered the other requests: after a loss, they are sent without it.
    fn ask(&mut self, requests: &[Request], limit: &Limit) -> Result<Option<Replies>, CallError> {
        let node = &self.handover.node;
        if self.list.is_some() {
            return self.caller.call_all(requests, node, limit).map(Some);
        }
        let (first, list) = self.caller.post_before(requests, list_all());
        self.list = Some(list);
        let answers = self.caller.replies((requests, first), node, limit)?;
        if answers.is_err() {
            self.caller.breathe(limit)?;
        }
        Ok(answers.ok())
    }

    /// Returns whether this data of the node is the mark; `false` if only a request to release the
    /// lock was written before the mark.
    fn is_marked(&mut self, data: &[u8], version: i32) -> Result<bool> {
        if *data == self.data {
            return Ok(true);
        }
        // That request must be the only write since then: of two writes, one could be another process's mark.
        let next = self.version.checked_add(1);
        if REVOKE.contains(&data) && next == Some(version) {
            self.version = version;
            self.is_revoked = true;
            self.list = None;
            return Ok(false);
        }
        Err(self.lost(LostReason::HandedOver))
    }

    /// Waits for a connection with the session that was handed over.
    fn connect(&mut self, limit: &Limit) -> Result<()> {
        match self.caller.connected(limit)? {
            Some(snapshot) if snapshot.session == self.id() => Ok(()),
            Some(_) => Err(self.lost(LostReason::SessionExpired)),
            None => Err(self.unanswered(limit)),
        }
    }

    /// Fails unless the answer came through the session that the node belongs to.
    fn is_ours(&self, stat: Stat) -> Result<()> {
        let (id, now) = (self.id(), self.session.status.snapshot().session);
        match now == id && stat.ephemeral_owner == id {
            true => Ok(()),
            false => Err(self.lost(LostReason::SessionExpired)),
        }
    }

    /// Gives up the session's other nodes, and those that may still appear: they belong to threads
    /// that waited in the old process.
    fn give_up_the_rest(&mut self, limit: &Limit) {
        for (dir, orphan) in &self.handover.left {
            let cleaner = &self.session.cleaner;
            cleaner.add(dir, self.id(), vec![orphan.clone()]);
        }
        match self.listed(limit) {
            Ok(Some(Reply::Ephemerals(nodes))) => {
                for node in nodes.iter().filter(|node| **node != self.handover.node) {
                    let orphan = Orphan::Node(path::name(node).to_owned());
                    let (cleaner, dir) = (&self.session.cleaner, path::parent(node));
                    cleaner.add(dir, self.id(), vec![orphan]);
                }
            }
            // ZooKeeper before 3.6 cannot list them.
            other => log::warn!(
                "what else the session {:#x} has is not known, and stays until it ends: {other:?}",
                self.id()
            ),
        }
    }

    /// Waits for the answer to the listing behind the mark; lists again if that answer was lost.
    fn listed(&mut self, limit: &Limit) -> Result<Option<Reply>, CallError> {
        let list = self.list.map(|list| self.caller.wait(list, limit));
        match list.transpose()? {
            Some(Ok(reply)) => Ok(Some(reply)),
            Some(Err(Failure::Refused(code))) => Err(CallError::Refused(code)),
            _ => self.caller.call_once(&list_all(), "/", limit),
        }
    }

    /// Proves the lock; if that fails, the session is this client's to end. Servers have until the limit for that,
    /// not counting the wait that a session takes which may be due.
    fn guard(self, stamp: Stamp, limit: &Limit) -> Result<RawGuard> {
        let Handover {
            path, node, token, ..
        } = self.handover;
        let (session, nodes) = (self.session, vec![node.clone()]);
        let timeout = self.handover.session_timeout();
        let until = limit.deadline().and_then(|at| at.checked_add(timeout / 4));
        let limit = Limit::after(timeout).until(until);
        let stamp = match session.prove_on(Some(stamp), &nodes, &limit)? {
            Proven::By(stamp) => stamp,
            Proven::Gone(_) => return Err(self.gone()),
            Proven::LimitReached => return Err(self.lost(LostReason::NotConfirmed)),
        };
        let bounds = session.status.bounds(self.id());
        let lease = Lease::new(path, nodes, self.id(), bounds, stamp);
        lease.check()?;
        if self.is_revoked {
            lease.note_revoke_request();
        }
        let mut raw = RawGuard::new(session, lease, FencingToken::new(*token));
        raw.granted(limit.spent());
        Ok(raw)
    }

    fn id(&self) -> i64 {
        self.handover.session.key.id
    }

    /// Returns the error of a missing node. An answer in the session itself shows that the session was alive.
    fn gone(&self) -> Error {
        self.lost(match self.session.status.snapshot().session == self.id() {
            true => LostReason::Evicted,
            false => LostReason::SessionExpired,
        })
    }

    fn lost(&self, why: LostReason) -> Error {
        Error::Lost {
            path: self.handover.path.clone(),
            why,
        }
    }

    fn unanswered(&self, limit: &Limit) -> Error {
        self.session.unanswered_within(limit.spent())
    }
}
