//! Gives a job the path of a lock that no client uses any more.
//!
//! Such a lock leaves a node without data, or with the note of its last release. The server removes
//! the node a minute or two later, or never if another library created it. A job need not wait for
//! that. No server tells whether the node is a container, which would not keep a record. The node
//! is therefore replaced in one transaction, which fails if anything is below it but the empty
//! directories of a semaphore. A path that is in use, or is the directory of other paths, stays as
//! it is.
//!
//! A path that was a job's is never taken over, whoever has written there since: [`is_free`].
//!
//! A version tells the states of one node apart, but not those of two: another job may have
//! replaced the node, and the new one may have come to the same version. A node of this session,
//! the stake, is therefore created below the old node first. Nobody replaces that node meanwhile,
//! and the transaction deletes the stake too.

use std::time::Duration;

use super::Job;
use super::driver::JobDriver;
use crate::error::Result;
use crate::lock::fresh_id::fresh_id;
use crate::session::call_error::CallError;
use crate::session::caller::Caller;
use crate::system::clock;
use crate::time::limit::{Limit, from_now};
use zklock_core::attempt::{Orphan, Patience};
use zklock_core::connection::sync;
use zklock_core::journal::Journal;
use zklock_core::mending::{Standing, is_free, standing};
use zklock_core::release_note::is_note;
use zklock_jute::{Access, CreateMode, ErrorCode, Reply, Request, Stat};

/// The name of the stake.
const STAKE: &str = "taken-over-by-a-job";

/// How long to wait while another client has its stake at the path.
pub(super) const PAUSE: Duration = Duration::from_millis(50);

/// How long a `try_` call waits for a stake. Its owner needs one round trip, but may have been killed.
const PASSING: Duration = Duration::from_secs(1);

/// Another client, or the server that removes containers, was faster: look again.
const FASTER: CallError = CallError::Refused(ErrorCode::BAD_VERSION);

/// The stake is another client's or thread's, or is left from a request whose answer was lost and will be deleted.
pub(super) const STAKED: ErrorCode = ErrorCode::NODE_EXISTS;

/// A node that may be free.
struct Idle {
    stat: Stat,
    /// The access control list; `None` if the server does not show it as it is.
    acl: Option<Vec<Access>>,
    /// The deletions of the nodes below it.
    rest: Vec<Request>,
}

/// The outcome of a look at a path that is not a job's.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Takeover {
    /// The path may be a job's now: look again.
    Tried,
    /// Another client has its stake there, or had a moment ago.
    Staked,
    /// The path stays as it is.
    Refused,
}

impl JobDriver<'_, '_> {
    /// Returns whether the path is worth another look. A `try_` call that another client's stake
    /// outlasts has found the path taken.
    pub(super) fn take_over(&mut self) -> Result<bool> {
        let job = Job {
            locks: self.locks.clone(),
            path: self.path.clone(),
        };
        let found = job.take_over(&self.request.limit)?;
        if found == Takeover::Staked {
            // The call has found the path taken, even if the limit ends the next look.
            self.request.taken = true;
            let until = *self.stake_until.get_or_insert_with(|| from_now(PASSING));
            if self.request.patience == Patience::Tries && until <= clock::now() {
                return Err(self.gave_up());
            }
        }
        Ok(found != Takeover::Refused)
    }
}

impl Job {
    /// Turns the path of an unused lock into a job's.
    pub(crate) fn take_over(&self, limit: &Limit) -> Result<Takeover> {
        // The stake that is seen may be this client's own.
        self.locks.session.cleaner.may_delete_in(&self.path)?;
        let mut caller = self.locks.session.caller();
        let looked = self.idle(&mut caller, limit);
        let taken = looked.and_then(|idle| match idle {
            Some(idle) => self.replace(&mut caller, idle, limit),
            None => Err(CallError::Refused(ErrorCode::NOT_EMPTY)),
        });
        match taken {
            Ok(()) | Err(CallError::Refused(ErrorCode::BAD_VERSION | ErrorCode::NO_NODE)) => {
                Ok(Takeover::Tried)
            }
            Err(CallError::Refused(STAKED)) => {
                // If the limit ends the pause, the next look reports it.
                let _ = caller.pause(PAUSE, limit);
                Ok(Takeover::Staked)
            }
            Err(CallError::Refused(_)) => Ok(Takeover::Refused),
            Err(error) => error.or(&self.path, Takeover::Tried),
        }
    }

    /// Returns the path's node, if nobody uses it and no run was recorded there.
    fn idle(&self, caller: &mut Caller, limit: &Limit) -> Result<Option<Idle>, CallError> {
        let mut answers = caller
            .call_all(&self.looks(), &self.path, limit)?
            .into_iter()
            .skip(1);
        let mut answer = || answers.next().unwrap_or(Err(ErrorCode::NO_NODE));
        let (data, names, acl) = (answer(), answer(), answer());
        let (Reply::Data { data, stat }, Reply::Children { names, .. }) = (
            data.map_err(CallError::Refused)?,
            names.map_err(CallError::Refused)?,
        ) else {
            return Ok(None);
        };
        let data = Vec::from(data);
        if standing(&data) == Standing::Whole {
            return Err(FASTER);
        }
        if !is_free(&data, stat.version) || stat.has_session() {
            return Ok(None);
        }
        if names.iter().any(|name| name == STAKE) {
            return Err(CallError::Refused(STAKED));
        }
        let rest = self.unused_directories()?;
        let acl = match acl {
            Err(ErrorCode::NO_NODE) => return Err(FASTER),
            acl => acl.ok().and_then(whole),
        };
        // Any program may write a number; that of a semaphore has a directory below it.
        let is_ours = data.is_empty() || is_note(&data) || !rest.is_empty();
        if is_ours && names.len() == rest.len() {
            return Ok(Some(Idle { stat, acl, rest }));
        }
        // The looks at a path that was replaced between them do not fit together.
        let fits = self.is_still(caller, &stat, limit)?;
        fits.then_some(None).ok_or(FASTER)
    }

    fn looks(&self) -> [Request; 4] {
        let path = &*self.path;
        [
            sync(path),
            Request::get(path),
            Request::list(path),
            Request::GetAcl {
                path: path.to_owned(),
            },
        ]
    }

    /// Returns whether the path's node is the one that was seen.
    fn is_still(&self, caller: &mut Caller, seen: &Stat, limit: &Limit) -> Result<bool, CallError> {
        let now = caller.call(&Request::exists(&self.path), &self.path, limit)?;
        let same = |now: Stat| (now.czxid, now.version) == (seen.czxid, seen.version);
        Ok(matches!(now, Reply::Stat(now) if same(now)))
    }

    fn replace(&self, caller: &mut Caller, idle: Idle, limit: &Limit) -> Result<(), CallError> {
        let Idle { stat, acl, rest } = idle;
        let was_never_used = (stat.version, stat.cversion) == (0, 0);
        let replaced = match acl {
            // A stake would count as a use.
            Some(acl) if was_never_used && !self.may_replace(caller, &acl, limit)? => {
                Err(CallError::Refused(ErrorCode::NO_AUTH))
            }
            Some(acl) => self
                .replace_under_a_stake(caller, (stat, acl, rest), limit)
                .map(drop),
            None => Err(CallError::Refused(ErrorCode::NO_AUTH)),
        };
        match replaced {
            // Whoever created the node lets nobody create another: it is not a lock's directory.
            Err(CallError::Refused(ErrorCode::NO_AUTH)) if was_never_used => {
                let record = Request::set(&*self.path, Journal::EMPTY.to_vec(), stat.version);
                caller.call_once(&record, &self.path, limit).map(drop)
            }
            replaced => replaced,
        }
    }

    /// Returns whether this client may replace the node and delete its stake, by a transaction that changes nothing.
    fn may_replace(
        &self,
        caller: &mut Caller,
        acl: &[Access],
        limit: &Limit,
    ) -> Result<bool, CallError> {
        let stake = format!("{}/{STAKE}", self.path);
        let mut ops = vec![self.stake(&stake, ""), Request::delete(stake)];
        ops.extend(self.replacement(-1, acl.to_vec()));
        ops.push(Request::Check {
            path: self.path.to_string(),
            version: i32::MAX,
        });
        match caller.call(&Request::Multi(ops), &self.path, limit) {
            Err(CallError::Refused(ErrorCode::NO_AUTH)) => Ok(false),
            Ok(_) | Err(CallError::Refused(_)) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Replaces the node that was seen and the nodes below it; returns whether that is confirmed.
    pub(super) fn replace_under_a_stake(
        &self,
        caller: &mut Caller,
        what: (Stat, Vec<Access>, Vec<Request>),
        limit: &Limit,
    ) -> Result<bool, CallError> {
        let (session, stake) = (&self.locks.session, format!("{}/{STAKE}", self.path));
        let mark = fresh_id();
        let replaced = match caller.call_once(&self.stake(&stake, &mark), &stake, limit) {
            Ok(Some(_)) => self.replace_with(caller, &stake, what, limit),
            Err(error @ (CallError::Refused(_) | CallError::Over(_))) => return Err(error),
            // The stake may still be created, even after the next look.
            unanswered => unanswered.map(|_| false),
        };
        if !matches!(replaced, Ok(true)) {
            let stake = Orphan::Marked(STAKE.to_owned(), mark);
            let of = session.status.snapshot().session;
            session.cleaner.add(&self.path, of, vec![stake]);
        }
        replaced
    }

    /// Replaces the node that was seen, and deletes the stake; returns whether that is confirmed.
    fn replace_with(
        &self,
        caller: &mut Caller,
        stake: &str,
        (seen, acl, rest): (Stat, Vec<Access>, Vec<Request>),
        limit: &Limit,
    ) -> Result<bool, CallError> {
        let path = &*self.path;
        if !self.is_still(caller, &seen, limit)? {
            return Ok(false);
        }
        let mut ops = vec![Request::delete(stake.to_owned())];
        ops.extend(rest);
        ops.extend(self.replacement(seen.version, acl));
        let done = caller.call_once(&Request::Multi(ops), path, limit)?;
        Ok(done.is_some())
    }

    /// Returns the request that creates the stake. Its mark tells it from other stakes, which have the same name.
    fn stake(&self, node: &str, mark: &str) -> Request {
        let (data, acl) = (mark.as_bytes().to_vec(), self.locks.session.acl());
        Request::create(node, data, acl, CreateMode::Ephemeral)
    }
}

/// Returns the list if it is complete: a server shows the hash of a password only to clients that
/// may change the list.
fn whole(reply: Reply) -> Option<Vec<Access>> {
    let Reply::Acl { acl, .. } = reply else {
        return None;
    };
    let is_masked = |one: &Access| one.scheme == "digest" && one.id.ends_with(":x");
    (!acl.iter().any(is_masked)).then_some(acl)
}
