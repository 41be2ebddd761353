//! Decides what to do if a path is in use for another kind of lock.

use zklock::{Contender, Role};
use zklock_core::name::NodeName;

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

/// Returns what to do after this node has refused an attempt, if anything helps.
pub(crate) fn next(kind: LockKind, node: &str, present: &[Contender]) -> Option<Next> {
    let mut others = present
        .iter()
        .filter(|one| is_of_another_kind(kind, node, one))
        .peekable();
    if others.peek().is_some() {
        return others.all(is_ours).then_some(Next::Wait);
    }
    let mut foreign = present.iter().filter(|one| !is_ours(one)).peekable();
    let is_mutex = |one: &Contender| one.role() == Role::Exclusive;
    let next = match kind {
        LockKind::Permit(_) => kind,
        _ if foreign.peek().is_none() => kind,
        LockKind::Mutex => (!foreign.any(&is_mutex)).then_some(LockKind::Write)?,
        LockKind::Write => foreign.all(&is_mutex).then_some(LockKind::Mutex)?,
        // Whoever refused this attempt refuses the next one too. Otherwise it has gone, and others came.
        LockKind::Read => {
            let refuses = |one: &Contender| one.node() == node || is_mutex(one);
            (!foreign.any(refuses)).then_some(kind)?
        }
        LockKind::Together => return None,
    };
    Some(Next::Try(next))
}

/// Returns whether a hold that a mutex would wait for keeps a permit away.
pub(crate) fn is_on_hold(kind: LockKind, present: &[Contender]) -> bool {
    let is_hold = |one: &Contender| one.hold().is_some() && one.role() == Role::Exclusive;
    matches!(kind, LockKind::Permit(_)) && present.iter().any(is_hold)
}

/// Returns whether this contender keeps that kind of lock away as long as it is there.
pub(crate) fn is_of_another_kind(kind: LockKind, node: &str, other: &Contender) -> bool {
    match (kind, other.role()) {
        // A semaphore of another layout has its permits elsewhere.
        (LockKind::Permit(_), Role::Permit) => other.node().starts_with(node),
        (LockKind::Permit(_), _) | (_, Role::Permit) => true,
        _ => false,
    }
}

/// Returns whether the contender is a client of this library, which leaves when it meets another kind.
fn is_ours(other: &Contender) -> bool {
    let name = other.node().rsplit('/').next().unwrap_or_default();
    NodeName::parse(name).is_some_and(|name| name.is_ours())
}
