//! The judge of shards. The checker sees that no two owners trust one shard: it takes each term for a hold of the
//! shard's lock. This judge sees that each member works on its part where nothing breaks and no member comes or
//! goes.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Member, SHARDS};
use crate::client::{Journal, ms};
use crate::ops::Op;
use crate::plan::Plan;

pub(super) fn judge(plan: &Plan, journal: &Journal, ops: &[Op]) -> Result<usize, String> {
    let is_term = |op: &&Op| op.paths[0].starts_with(SHARDS);
    let terms: Vec<_> = ops.iter().filter(is_term).collect();
    if plan.is_calm() {
        let members = journal.members();
        is_divided(plan, &members, &terms)?;
    }
    Ok(terms.len())
}

/// Checks that each member works on its part between two moments at which somebody comes or goes.
fn is_divided(plan: &Plan, members: &[Member], terms: &[&Op]) -> Result<(), String> {
    let settles = ms(plan.timeout) + Duration::from_secs(1);
    let ends = members.iter().filter_map(|member| member.to);
    let mut moments: Vec<_> = members
        .iter()
        .map(|member| member.from)
        .chain(ends)
        .collect();
    moments.sort_unstable();
    for pair in moments.windows(2) {
        let (from, to) = (pair[0] + settles, pair[1]);
        let there =
            |member: &&Member| member.from <= pair[0] && member.to.is_none_or(|end| to <= end);
        let there: Vec<_> = members.iter().filter(there).collect();
        // The member may be between two terms.
        if to < from + settles || there.is_empty() {
            continue;
        }
        for member in &there {
            let least = usize::from(member.count) / there.len();
            let worked: BTreeSet<_> = terms
                .iter()
                .filter(|op| {
                    let ended = op.release.unwrap_or(u64::MAX);
                    let within =
                        op.granted_at() < to.as_nanos() as u64 && from.as_nanos() as u64 <= ended;
                    op.who == member.who && within
                })
                .map(|op| &op.paths[0])
                .collect();
            if worked.len() < least {
                return Err(format!(
                    "{member:?} worked on {worked:?} from {from:?} to {to:?}, and was one of {}",
                    there.len()
                ));
            }
        }
    }
    Ok(())
}
