//! Did anything cost more than it must? In quiet intervals, the judge counts the requests of a call
//! and of a holder as they come to the servers.

use std::time::Duration;

use zklock::sim::ensemble::{Asked, RequestKind, What};

use super::{Punctual, nanos};
use crate::client::ms;
use crate::history::Kind;
use crate::ops::{Grant, Op};
use crate::troubles::ensemble;

/// The requests of one call, by their kinds.
#[derive(Clone, Copy, Debug)]
struct Costs {
    creates: usize,
    lists: usize,
    reads: usize,
    /// The transactions, which are proofs if a call is for one lock.
    proofs: usize,
    /// How often the calling thread went to sleep.
    sleeps: u64,
}

pub(super) fn judge(case: &Punctual<'_>) -> Result<(), String> {
    for op in &case.ops {
        let Some(grant) = op.granted.as_ref().filter(|_| is_judged(case, op)) else {
            continue;
        };
        let asked: Vec<Asked> = ensemble(|ensemble, _| ensemble.asked(grant.session).to_vec());
        let end = op.release.map_or(nanos(grant.at), nanos);
        if !case.quiet.holds(op.who.slot, nanos(op.requested), end) {
            continue;
        }
        call(case, op, grant, &asked)?;
        hold(case, op, grant, end, &asked)?;
    }
    Ok(())
}

/// Returns whether the costs are judged. Only the requests of a client with one thread, which was
/// never reset, can be told apart. Where latencies vary, those of one call may come during the
/// next.
fn is_judged(case: &Punctual<'_>, op: &Op) -> bool {
    let one = op.paths.len() == 1 && !matches!(op.kind, Kind::Permit(_));
    let plain = ["/sim/m1", "/sim/reentrant", "/sim/rw"].contains(&op.paths[0].as_str());
    let settled = case.is_usual() && !case.was_reset(op) && !case.seen.is_continued(op.id());
    case.is_exact(op) && one && plain && settled
}

/// Returns how often the next in line has its node confirmed at most.
fn proof_every(case: &Punctual<'_>) -> Duration {
    match 30 * case.proof_takes() < 1000 * case.plan.timeout {
        true => ms(case.plan.timeout / 8),
        false => ms(case.plan.timeout / 12),
    }
}

/// Checks the costs of a call. A call that finds the lock free creates and lists. After that, each
/// node ahead that is deleted costs a listing, a proof, and reads of its own node, the nearest and
/// the one beyond.
fn call(case: &Punctual<'_>, op: &Op, grant: &Grant, asked: &[Asked]) -> Result<(), String> {
    let (from, to) = (nanos(op.requested), nanos(grant.at));
    let count = |kind| count(asked, kind, from, to);
    let costs = Costs {
        creates: count(RequestKind::Create),
        lists: count(RequestKind::List),
        reads: count(RequestKind::Get),
        proofs: count(RequestKind::Multi),
        sleeps: case.seen.slept(op.id()).unwrap_or(0),
    };
    let dir = op.paths[0].as_str();
    let goes = |what: &What| matches!(what, What::Deleted { path, .. } if path.starts_with(dir));
    // A follower may still show a node for a while that is gone at the leader.
    let earlier = from.saturating_sub(case.lag());
    let within = case
        .history
        .iter()
        .filter(|change| (earlier..=to).contains(&change.at));
    let gone = within.filter(|change| goes(&change.what)).count();
    let known = case.knows(dir, from, to);
    // The first client creates the directories, and asks again.
    let (first, makes) = if known { (0, 0) } else { (1, 3) };
    let doubts = doubts(to - from, gone);
    let pings = (to - from).as_nanos() / ms(case.plan.timeout / 6).as_nanos();
    let requests = costs.creates + costs.lists + costs.reads + costs.proofs;
    let most = Costs {
        creates: 1 + makes,
        lists: 1 + first + gone,
        reads: 3 * gone + doubts,
        // A node that was created a moment ago needs no proof; the first one in line has a young
        // proof.
        proofs: ((to - from).as_nanos() / proof_every(case).as_nanos()) as usize + doubts,
        sleeps: 8 + 4 * (requests + gone) as u64 + 4 * pings as u64,
    };
    let fits = costs.creates <= most.creates
        && costs.lists <= most.lists
        && costs.reads <= most.reads
        && costs.proofs <= most.proofs
        && (costs.sleeps <= most.sleeps || case.plan.link.piece < usize::MAX);
    if fits {
        return Ok(());
    }
    let story = case.story(grant.session, from, to);
    let name = op.name();
    Err(format!(
        "{name} cost too much: {costs:?} for {dir}, at most {most:?}\n{story}"
    ))
}

/// Returns how often a waiter asks at most whether the leader has the node ahead: after a minute, after pauses that
/// double, and then whenever another node is ahead.
fn doubts(waited: Duration, gone: usize) -> usize {
    match (waited.as_secs() / 60 + 1).ilog2() as usize {
        0 => 0,
        asked => asked + gone,
    }
}

/// Checks the costs of a hold. A holder lets its lock be confirmed every T/8, reads its own node,
/// and deletes it once.
fn hold(
    case: &Punctual<'_>,
    op: &Op,
    grant: &Grant,
    end: Duration,
    asked: &[Asked],
) -> Result<(), String> {
    let from = nanos(grant.at);
    let count = |kind| count(asked, kind, from, end);
    let periods = (end - from).as_nanos() / proof_every(case).as_nanos();
    let (proofs, reads) = (count(RequestKind::Multi), count(RequestKind::Get));
    let (lists, creates) = (count(RequestKind::List), count(RequestKind::Create));
    let most = 2 + periods as usize;
    if proofs <= most && reads <= most && lists == 0 && creates == 0 {
        return Ok(());
    }
    let story = case.story(grant.session, from, end);
    Err(format!(
        "{} cost too much while it held {} for {:?}: {proofs} proofs, {reads} reads, {lists} lists, \
         {creates} creates\n{story}",
        op.name(),
        op.paths[0],
        end - from,
    ))
}

fn count(asked: &[Asked], kind: RequestKind, from: Duration, to: Duration) -> usize {
    let all = asked.iter().filter(|one| one.kind == kind);
    all.filter(|one| (from..=to).contains(&one.at)).count()
}
