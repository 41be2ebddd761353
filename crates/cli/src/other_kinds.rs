//! Decides what to do if a path is in use for another kind of lock.

use crossbeam_channel::Receiver;
use zklock::{Client, Contender, Error, Role};
use zklock_core::name::NodeName;

use crate::sanitize::plain;
use crate::stderr::say;
use crate::table::who;
use crate::wait_limit::WaitLimit;

#[derive(Clone, Copy, Debug)]
pub(crate) enum LockKind {
    Mutex,
    Read,
    Write,
    Permit(u32),
    /// Several locks, each exclusive or shared.
    Together,
}

/// What to do about a refusal.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Next {
    Try(LockKind),
    /// Wait for contenders of another kind.
    Wait,
}

/// An attempt at a kind of lock that was refused because of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal<'a> {
    pub(crate) kind: LockKind,
    pub(crate) path: &'a str,
    pub(crate) node: &'a str,
}

impl Refusal<'_> {
    /// Returns those who are present and keep that kind of lock away as long as they are there.
    pub(crate) fn others(self, present: &[Contender]) -> Vec<&Contender> {
        let is_other = |one: &&Contender| match (self.kind, one.role()) {
            // A semaphore of another layout has its permits elsewhere.
            (LockKind::Permit(_), Role::Permit) => one.node().starts_with(self.node),
            (LockKind::Permit(_), _) | (_, Role::Permit) => true,
            _ => false,
        };
        present.iter().filter(is_other).collect()
    }

    /// Returns what to do, if anything helps.
    pub(crate) fn next(self, present: &[Contender]) -> Option<Next> {
        let others = self.others(present);
        if !others.is_empty() {
            return others.into_iter().all(is_ours).then_some(Next::Wait);
        }
        let mut foreign = present.iter().filter(|one| !is_ours(one)).peekable();
        let is_mutex = |one: &Contender| one.role() == Role::Exclusive;
        let next = match self.kind {
            LockKind::Permit(_) => self.kind,
            _ if foreign.peek().is_none() => self.kind,
            LockKind::Mutex => (!foreign.any(&is_mutex)).then_some(LockKind::Write)?,
            LockKind::Write => foreign.all(&is_mutex).then_some(LockKind::Mutex)?,
            // Whoever refused this attempt refuses the next one too. Otherwise it has gone, and others came.
            LockKind::Read => {
                let refuses = |one: &Contender| one.node() == self.node || is_mutex(one);
                (!foreign.any(refuses)).then_some(self.kind)?
            }
            LockKind::Together => return None,
        };
        Some(Next::Try(next))
    }

    /// Returns whether a hold that a mutex would wait for keeps a permit away.
    pub(crate) fn is_on_hold(self, present: &[Contender]) -> bool {
        let is_hold = |one: &Contender| one.hold().is_some();
        matches!(self.kind, LockKind::Permit(_)) && present.iter().any(is_hold)
    }
}

/// Waits in the queue of a hold that is among those who are `present`, for a permit or a job, which do not wait
/// there: a waiter there removes the hold when its time is up. Returns `false` at the end of the wait.
pub(crate) fn hold_ends(
    client: &Client,
    (path, present): (&str, &[Contender]),
    limit: WaitLimit,
    cancel: &Receiver<()>,
) -> zklock::Result<bool> {
    let mutex = client.mutex(path)?;
    let acquired = match limit {
        WaitLimit::OneTry => mutex.try_lock(),
        _ => {
            let hold = present.iter().find_map(Contender::hold);
            let hold = hold.map(ToString::to_string).unwrap_or_default();
            say(&format!(
                "waiting for {}, which is {}",
                plain(path),
                plain(&hold)
            ));
            mutex.lock_with(limit.options(cancel))
        }
    };
    match acquired {
        Ok(guard) => Ok(guard.is_some()),
        // A semaphore was there before the hold.
        Err(Error::ForeignContender { .. }) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Says what a path is to this contender.
pub(crate) fn used_by(path: &str, other: &Contender) -> String {
    let what = match other.role() {
        Role::Permit => "a semaphore with --permits",
        Role::Exclusive | Role::Read | Role::Write => "a lock without --permits",
    };
    format!("{} is {what} for {}", plain(path), who(other.owner()))
}

/// Returns whether the contender is a client of this library, which leaves when it meets another kind.
pub(crate) fn is_ours(other: &Contender) -> bool {
    let name = other.node().rsplit('/').next().unwrap_or_default();
    NodeName::parse(name).is_some_and(|name| name.is_ours())
}
