//! Going through several queues at once.
//!
//! With transactions, all nodes are created in one: they stand in the same order in every
//! queue, so waiting in one after the other cannot end in a circle. Without, the locks are
//! taken in the order of their paths; since somebody else's transaction may still stand
//! across that order, what is held is given back when the next one does not come.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::driver::{self, Progress};
use super::fresh_id::fresh_id;
use super::raw_guard::RawGuard;
use super::request::{LockRequest, Queue};
use crate::error::{Error, Result};
use crate::guard::FencingToken;
use crate::jute::{CreateMode, ErrorCode, Op, OpReply, Reply, Request, failure};
use crate::path;
use crate::recipe::attempt::{Origin, Orphan, OwnNode, Patience};
use crate::recipe::dialect::Role;
use crate::recipe::name::prefix;
use crate::recipe::validity::Stamp;
use crate::session::Session;
use crate::session::caller::{Caller, over, refused};
use crate::session::cleaner::Release;
use crate::session::grant_proof::Proven;
use crate::session::lease::Lease;
use crate::session::queries::Lasting;
use crate::time::limit::{Limit, LimitReached};
use crate::transport::Failure;
use crate::transport::status::Snapshot;

/// How long to wait for the next lock with others in hand, without transactions.
const PATIENCE: Duration = Duration::from_millis(300);

/// All locks, and the token of each.
type Taken = (RawGuard, Vec<FencingToken>);

impl RawGuard {
    /// Goes through the queues of all `paths`, which are sorted; all or none.
    pub(crate) fn acquire_all(
        session: &Arc<Session>,
        paths: &[String],
        request: &mut LockRequest<'_>,
    ) -> Result<Option<Taken>> {
        request.hold_at_least = None;
        if !session.transport.capabilities().multi {
            return one_by_one(session, paths, request);
        }
        loop {
            match Together::place(session, paths, request)? {
                Placed::LimitReached => return Ok(None),
                Placed::Again => {}
                Placed::InQueue(together) => match together.wait(request)? {
                    Waited::LimitReached => return Ok(None),
                    Waited::Again => {}
                    Waited::Held(taken) => return Ok(Some(taken)),
                },
            }
        }
    }
}

/// Nodes of ours in all queues; dropping it gives them up.
struct Together<'a> {
    session: &'a Arc<Session>,
    paths: &'a [String],
    snapshot: Snapshot,
    stamp: Stamp,
    mine: Vec<OwnNode>,
    kept: bool,
}

enum Placed<'a> {
    InQueue(Together<'a>),
    Again,
    LimitReached,
}

enum Waited {
    Held(Taken),
    Again,
    LimitReached,
}

impl<'a> Together<'a> {
    /// Creates a node in every queue.
    fn place(
        session: &'a Arc<Session>,
        paths: &'a [String],
        request: &LockRequest<'_>,
    ) -> Result<Placed<'a>> {
        let (limit, note) = (&request.limit, request.note.as_deref());
        let mut caller = session.caller();
        let Ok(snapshot) = caller.connected(limit)? else {
            return Ok(Placed::LimitReached);
        };
        if request.patience == Patience::Tries && any_taken(session, &mut caller, paths, limit)? {
            return Ok(Placed::LimitReached);
        }
        let prefix = prefix(session.settings.dialect, Role::Exclusive, &fresh_id());
        let stamp = session.status.stamp();
        let call_id = caller.post([(Request::Multi(creates(session, paths, &prefix, note)), None)]);
        let answered = caller.wait(call_id, limit);
        let names = match answered {
            Ok(Ok(Reply::Multi(results))) => match created(&results) {
                Ok(names) => names,
                Err(ErrorCode::NO_NODE) => {
                    session.make_directories(&mut caller, paths, Lasting::WhileUsed, limit)?;
                    return Ok(Placed::Again);
                }
                Err(code) => return Err(refused(&paths.join(", "), code)),
            },
            Ok(Err(Failure::Refused(ErrorCode::NO_NODE))) => {
                session.make_directories(&mut caller, paths, Lasting::WhileUsed, limit)?;
                return Ok(Placed::Again);
            }
            Ok(Err(Failure::Refused(code))) => return Err(refused(&paths.join(", "), code)),
            Ok(Err(Failure::TooLong(long))) => return Err(long.about(&paths.join(", "))),
            Ok(Err(Failure::Closed)) => return Err(over(&session.status.snapshot())),
            Ok(Err(Failure::NotSent)) => {
                caller.breathe();
                return Ok(Placed::Again);
            }
            // It may have been carried out: whatever it made must go.
            Ok(_) | Err(LimitReached) => {
                abandon(session, paths, snapshot.session, &prefix);
                return Ok(match answered {
                    Err(LimitReached) => Placed::LimitReached,
                    Ok(_) => Placed::Again,
                });
            }
        };
        let Some(mine) = births(&mut caller, paths, names, limit) else {
            abandon(session, paths, snapshot.session, &prefix);
            return Ok(match limit.is_over() {
                true => Placed::LimitReached,
                false => Placed::Again,
            });
        };
        Ok(Placed::InQueue(Self {
            session,
            paths,
            snapshot,
            stamp,
            mine,
            kept: false,
        }))
    }

    /// Waits in one queue after the other.
    fn wait(mut self, request: &mut LockRequest<'_>) -> Result<Waited> {
        for (path, mine) in self.paths.iter().zip(&self.mine) {
            let queue = Queue::of(path, Role::Exclusive);
            let start = (mine.clone(), self.snapshot, self.stamp);
            match driver::stand(self.session, &queue, request, start)? {
                Progress::Reached(_) => {}
                Progress::LimitReached => return Ok(Waited::LimitReached),
                Progress::Restart => return Ok(Waited::Again),
            }
        }
        let nodes: Vec<_> = self.nodes().collect();
        // While one queue was waited for, the nodes in the others may have gone.
        let stamp = match self.session.prove(&nodes, &request.limit)? {
            Proven::By(stamp) => stamp,
            Proven::LimitReached => return Ok(Waited::LimitReached),
            _ if self.session.status.snapshot().session != self.snapshot.session => {
                return Ok(Waited::Again);
            }
            Proven::Gone(at) => {
                let node = nodes.get(at).cloned().unwrap_or_default();
                return Err(Error::Evicted { node });
            }
        };
        self.kept = true;
        let path = self.paths.join(", ");
        let session = self.snapshot.session;
        let bounds = self.session.status.bounds(session);
        let lease = Lease::new(&path, nodes, session, bounds, stamp);
        let tokens: Vec<_> = self
            .mine
            .iter()
            .map(|mine| FencingToken::new(mine.origin.czxid))
            .collect();
        let token = tokens
            .iter()
            .max()
            .copied()
            .unwrap_or_else(|| FencingToken::new(0));
        Ok(Waited::Held((
            RawGuard::new(self.session, lease, token),
            tokens,
        )))
    }

    fn nodes(&self) -> impl Iterator<Item = String> {
        self.paths
            .iter()
            .zip(&self.mine)
            .map(|(path, mine)| format!("{path}/{}", mine.name))
    }
}

impl Drop for Together<'_> {
    fn drop(&mut self) {
        if !self.kept {
            let nodes: Vec<_> = self.nodes().collect();
            // The session may have changed unnoticed before the nodes were created.
            let owner = self.mine.first().map(|mine| mine.origin.owner);
            let release = Release {
                session: owner.unwrap_or(self.snapshot.session),
                waiter: None,
                closing: None,
                not_before: None,
            };
            self.session.cleaner.release(&nodes, &release);
        }
    }
}

/// Leaves it to others to look for nodes and to delete them.
fn abandon(session: &Session, paths: &[String], owner: i64, prefix: &str) {
    for path in paths {
        let orphan = vec![Orphan::Prefix(prefix.to_owned())];
        session.cleaner.add(path, owner, orphan);
    }
}

fn creates(session: &Session, paths: &[String], prefix: &str, note: Option<&str>) -> Vec<Op> {
    let create = |path: &String| Op::Create {
        path: format!("{path}/{prefix}"),
        data: session.settings.card.text(note).into(),
        acl: session.settings.acl.entries().to_vec(),
        mode: CreateMode::EphemeralSequential,
        stat: false,
    };
    paths.iter().map(create).collect()
}

/// The nodes that a multi created, or what it failed with.
fn created(
    results: &[std::result::Result<OpReply, ErrorCode>],
) -> std::result::Result<Vec<String>, ErrorCode> {
    if let Some(code) = failure(results) {
        return Err(code);
    }
    let name = |result: &std::result::Result<OpReply, ErrorCode>| match result {
        Ok(OpReply::Created { path, .. }) => Ok(path::name(path).to_owned()),
        _ => Err(ErrorCode::MARSHALLING_ERROR),
    };
    results.iter().map(name).collect()
}

/// Asks for the birth of each node: in a transaction, the server does not tell it.
///
/// `None` if one of them is gone already, or the limit was reached.
fn births(
    caller: &mut Caller,
    paths: &[String],
    names: Vec<String>,
    limit: &Limit,
) -> Option<Vec<OwnNode>> {
    let look = |(path, name): (&String, &String)| {
        let path = format!("{path}/{name}");
        (Request::Exists { path, watch: false }, None)
    };
    let mut call_id = caller.post(paths.iter().zip(&names).map(look));
    let mut mine = Vec::with_capacity(names.len());
    for name in names {
        let Ok(Ok(Reply::Stat(stat))) = caller.wait(call_id, limit) else {
            return None;
        };
        mine.push(OwnNode {
            name,
            origin: Origin {
                owner: stat.ephemeral_owner,
                czxid: stat.czxid,
            },
        });
        call_id = call_id.next();
    }
    Some(mine)
}

/// Looks whether somebody is in one of the queues.
fn any_taken(
    session: &Session,
    caller: &mut Caller,
    paths: &[String],
    limit: &Limit,
) -> Result<bool> {
    for path in paths {
        match caller.insist(&Request::list(path), limit)? {
            Ok(Ok(Reply::Children { names, .. })) => {
                let contest = session.contest(Role::Exclusive, 0);
                match contest.is_taken(&names) {
                    Ok(false) => {}
                    Ok(true) => return Ok(true),
                    Err(foreign) => return Err(session.foreign(path, foreign)),
                }
            }
            Ok(Err(Failure::Refused(ErrorCode::NO_NODE))) => {}
            Ok(Err(Failure::Refused(code))) => return Err(refused(path, code)),
            Ok(Err(Failure::TooLong(long))) => return Err(long.about(path)),
            Ok(Err(Failure::Closed)) => return Err(over(&session.status.snapshot())),
            Ok(_) | Err(LimitReached) => return Ok(true),
        }
    }
    Ok(false)
}

/// Takes the locks in the order of their paths.
fn one_by_one(
    session: &Arc<Session>,
    paths: &[String],
    request: &mut LockRequest<'_>,
) -> Result<Option<Taken>> {
    let limit = request.limit.clone();
    loop {
        let mut raws = Vec::with_capacity(paths.len());
        for path in paths {
            // With others in hand, nobody may wait for long.
            let spread = Duration::from_millis(fastrand::u64(0..200));
            let short = Instant::now().checked_add(PATIENCE + spread);
            request.limit = match raws.is_empty() {
                true => limit.clone(),
                false => limit.clone().until(short),
            };
            let queue = Queue::of(path, Role::Exclusive);
            match RawGuard::acquire(session, &queue, request)? {
                Some(raw) => raws.push(raw),
                None => break,
            }
        }
        if raws.len() == paths.len() {
            if let Some(taken) = merge(session, paths, raws, &limit)? {
                return Ok(Some(taken));
            }
        } else if request.patience == Patience::Tries || limit.is_over() {
            return Ok(None);
        }
    }
}

/// Makes one hold of several.
fn merge(
    session: &Arc<Session>,
    paths: &[String],
    raws: Vec<RawGuard>,
    limit: &Limit,
) -> Result<Option<Taken>> {
    let nodes: Vec<_> = raws.iter().flat_map(|raw| raw.nodes().to_vec()).collect();
    let snapshot = session.status.snapshot();
    let Proven::By(stamp) = session.prove(&nodes, limit)? else {
        return Ok(None);
    };
    let same = |raw: &RawGuard| raw.check().is_ok() && raw.lease().session() == snapshot.session;
    if !raws.iter().all(same) {
        return Ok(None);
    }
    let tokens: Vec<_> = raws.iter().map(RawGuard::token).collect();
    let bounds = session.status.bounds(snapshot.session);
    let lease = Lease::new(&paths.join(", "), nodes, snapshot.session, bounds, stamp);
    let token = tokens
        .iter()
        .max()
        .copied()
        .unwrap_or_else(|| FencingToken::new(0));
    let all = RawGuard::new(session, lease, token);
    raws.into_iter().for_each(RawGuard::hand_over);
    Ok(Some((all, tokens)))
}
