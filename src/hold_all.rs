//! Going through several queues at once.
//!
//! With transactions, all nodes are created in one: they stand in the same order in every
//! queue, so waiting in one after the other cannot end in a circle. Without, the locks are
//! taken in the order of their paths; since somebody else's transaction may still stand
//! across that order, what is held is given back when the next one does not come.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::guard::FencingToken;
use crate::hold::{Hold, Queue};
use crate::options::LockOptions;
use crate::path;
use crate::proto::{CreateMode, ErrorCode, Op, OpReply, Reply, Request, failure};
use crate::protocol::attempt::{Born, Leftover, Mine, Patience};
use crate::protocol::dialect::Role;
use crate::protocol::name::prefix;
use crate::protocol::validity::Stamp;
use crate::session::ask::{Asker, over, refused};
use crate::session::drive::Progress;
use crate::session::hub::Link;
use crate::session::leftovers::Release;
use crate::session::limit::{GaveUp, Limit};
use crate::session::proof::Proven;
use crate::session::queries::Lasting;
use crate::session::transport::Failure;
use crate::session::vigil::Vigil;
use crate::session::{Session, fresh_id, list};

/// How long to wait for the next lock with others in hand, without transactions.
const PATIENCE: Duration = Duration::from_millis(300);

/// All locks, and the token of each.
type Taken = (Hold, Vec<FencingToken>);

impl Hold {
    /// Goes through the queues of all `paths`, which are sorted; all or none.
    pub(crate) fn take_all(
        session: &Arc<Session>,
        paths: &[String],
        patience: Patience,
        options: &mut LockOptions<'_>,
        limit: &Limit,
    ) -> Result<Option<Taken>> {
        options.hold_at_least = None;
        if !session.transport.abilities().multi {
            return one_by_one(session, paths, patience, options, limit);
        }
        loop {
            match Together::place(session, paths, patience, options.note.as_deref(), limit)? {
                Placed::GaveUp => return Ok(None),
                Placed::Again => {}
                Placed::InQueue(together) => match together.wait(patience, options, limit)? {
                    Waited::GaveUp => return Ok(None),
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
    link: Link,
    stamp: Stamp,
    mine: Vec<Mine>,
    kept: bool,
}

enum Placed<'a> {
    InQueue(Together<'a>),
    Again,
    GaveUp,
}

enum Waited {
    Held(Taken),
    Again,
    GaveUp,
}

impl<'a> Together<'a> {
    /// Creates a node in every queue.
    fn place(
        session: &'a Arc<Session>,
        paths: &'a [String],
        patience: Patience,
        note: Option<&str>,
        limit: &Limit,
    ) -> Result<Placed<'a>> {
        let mut asker = session.asker();
        let Ok(link) = asker.connected(limit)? else {
            return Ok(Placed::GaveUp);
        };
        if patience == Patience::Tries && any_taken(session, &mut asker, paths, limit)? {
            return Ok(Placed::GaveUp);
        }
        let prefix = prefix(session.settings.dialect, Role::Exclusive, &fresh_id());
        let stamp = session.hub.stamp();
        let ticket = asker.post([(Request::Multi(creates(session, paths, &prefix, note)), None)]);
        let answered = asker.wait(ticket, limit);
        let names = match answered {
            Ok(Ok(Reply::Multi(results))) => match created(&results) {
                Ok(names) => names,
                Err(ErrorCode::NO_NODE) => {
                    session.make_directories(&mut asker, paths, Lasting::WhileUsed, limit)?;
                    return Ok(Placed::Again);
                }
                Err(code) => return Err(refused(&paths.join(", "), code)),
            },
            Ok(Err(Failure::Refused(ErrorCode::NO_NODE))) => {
                session.make_directories(&mut asker, paths, Lasting::WhileUsed, limit)?;
                return Ok(Placed::Again);
            }
            Ok(Err(Failure::Refused(code))) => return Err(refused(&paths.join(", "), code)),
            Ok(Err(Failure::TooLong(long))) => return Err(long.about(&paths.join(", "))),
            Ok(Err(Failure::Closed)) => return Err(over(&session.hub.link())),
            Ok(Err(Failure::NotSent)) => {
                asker.breathe();
                return Ok(Placed::Again);
            }
            // It may have been carried out: whatever it made must go.
            Ok(_) | Err(GaveUp) => {
                abandon(session, paths, link.session, &prefix);
                return Ok(match answered {
                    Err(GaveUp) => Placed::GaveUp,
                    Ok(_) => Placed::Again,
                });
            }
        };
        let Some(mine) = births(&mut asker, paths, names, limit) else {
            abandon(session, paths, link.session, &prefix);
            return Ok(match limit.is_over() {
                true => Placed::GaveUp,
                false => Placed::Again,
            });
        };
        Ok(Placed::InQueue(Self {
            session,
            paths,
            link,
            stamp,
            mine,
            kept: false,
        }))
    }

    /// Waits in one queue after the other.
    fn wait(
        mut self,
        patience: Patience,
        options: &mut LockOptions<'_>,
        limit: &Limit,
    ) -> Result<Waited> {
        for (path, mine) in self.paths.iter().zip(&self.mine) {
            let queue = Queue::of(path, Role::Exclusive);
            let mut quest = queue.quest(self.session, patience, options);
            let start = (mine.clone(), self.link, self.stamp);
            match self.session.stand(&mut quest, start, limit)? {
                Progress::Reached(_) => {}
                Progress::GaveUp => return Ok(Waited::GaveUp),
                Progress::Restart => return Ok(Waited::Again),
            }
        }
        let nodes: Vec<_> = self.nodes().collect();
        // While one queue was waited for, the nodes in the others may have gone.
        let stamp = match self.session.prove(&nodes, limit)? {
            Proven::By(stamp) => stamp,
            Proven::GaveUp => return Ok(Waited::GaveUp),
            _ if self.session.hub.link().session != self.link.session => {
                return Ok(Waited::Again);
            }
            Proven::Gone(at) => {
                let node = nodes.get(at).cloned().unwrap_or_default();
                return Err(Error::Evicted { node });
            }
        };
        self.kept = true;
        let path = self.paths.join(", ");
        let session = self.link.session;
        let bounds = self.session.hub.bounds(session);
        let vigil = Vigil::new(&path, nodes, session, bounds, stamp);
        let tokens: Vec<_> = self
            .mine
            .iter()
            .map(|mine| FencingToken::new(mine.born.czxid))
            .collect();
        let token = tokens
            .iter()
            .max()
            .copied()
            .unwrap_or_else(|| FencingToken::new(0));
        Ok(Waited::Held((
            Hold::with(self.session, Arc::new(vigil), token),
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
            let owner = self.mine.first().map(|mine| mine.born.owner);
            let release = Release {
                session: owner.unwrap_or(self.link.session),
                waiter: None,
                clears: false,
                not_before: None,
            };
            self.session.leftovers.release(&nodes, &release);
        }
    }
}

/// Leaves it to others to look for nodes and to delete them.
fn abandon(session: &Session, paths: &[String], owner: i64, prefix: &str) {
    for path in paths {
        let leftover = vec![Leftover::Prefix(prefix.to_owned())];
        session.leftovers.add(path, owner, leftover);
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
    asker: &mut Asker,
    paths: &[String],
    names: Vec<String>,
    limit: &Limit,
) -> Option<Vec<Mine>> {
    let look = |(path, name): (&String, &String)| {
        let path = format!("{path}/{name}");
        (Request::Exists { path, watch: false }, None)
    };
    let mut ticket = asker.post(paths.iter().zip(&names).map(look));
    let mut mine = Vec::with_capacity(names.len());
    for name in names {
        let Ok(Ok(Reply::Stat(stat))) = asker.wait(ticket, limit) else {
            return None;
        };
        mine.push(Mine {
            name,
            born: Born {
                owner: stat.ephemeral_owner,
                czxid: stat.czxid,
            },
        });
        ticket = ticket.next();
    }
    Some(mine)
}

/// Looks whether somebody is in one of the queues.
fn any_taken(
    session: &Session,
    asker: &mut Asker,
    paths: &[String],
    limit: &Limit,
) -> Result<bool> {
    for path in paths {
        match asker.insist(&list(path), limit)? {
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
            Ok(Err(Failure::Closed)) => return Err(over(&session.hub.link())),
            Ok(_) | Err(GaveUp) => return Ok(true),
        }
    }
    Ok(false)
}

/// Takes the locks in the order of their paths.
fn one_by_one(
    session: &Arc<Session>,
    paths: &[String],
    patience: Patience,
    options: &mut LockOptions<'_>,
    limit: &Limit,
) -> Result<Option<Taken>> {
    loop {
        let mut holds = Vec::with_capacity(paths.len());
        for path in paths {
            // With others in hand, nobody may wait for long.
            let spread = Duration::from_millis(fastrand::u64(0..200));
            let short = Instant::now().checked_add(PATIENCE + spread);
            let limit = match holds.is_empty() {
                true => limit.clone(),
                false => limit.clone().until(short),
            };
            let queue = Queue::of(path, Role::Exclusive);
            match Hold::take(session, &queue, patience, options, &limit)? {
                Some(hold) => holds.push(hold),
                None => break,
            }
        }
        if holds.len() == paths.len() {
            if let Some(taken) = merge(session, paths, holds, limit)? {
                return Ok(Some(taken));
            }
        } else if patience == Patience::Tries || limit.is_over() {
            return Ok(None);
        }
    }
}

/// Makes one hold of several.
fn merge(
    session: &Arc<Session>,
    paths: &[String],
    holds: Vec<Hold>,
    limit: &Limit,
) -> Result<Option<Taken>> {
    let nodes: Vec<_> = holds
        .iter()
        .flat_map(|hold| hold.nodes().to_vec())
        .collect();
    let link = session.hub.link();
    let Proven::By(stamp) = session.prove(&nodes, limit)? else {
        return Ok(None);
    };
    let same = |hold: &Hold| hold.check().is_ok() && hold.vigil().session() == link.session;
    if !holds.iter().all(same) {
        return Ok(None);
    }
    let tokens: Vec<_> = holds.iter().map(Hold::token).collect();
    let bounds = session.hub.bounds(link.session);
    let vigil = Vigil::new(&paths.join(", "), nodes, link.session, bounds, stamp);
    let token = tokens
        .iter()
        .max()
        .copied()
        .unwrap_or_else(|| FencingToken::new(0));
    let all = Hold::with(session, Arc::new(vigil), token);
    holds.into_iter().for_each(Hold::hand_over);
    Ok(Some((all, tokens)))
}
