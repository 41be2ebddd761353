//! Has the quorum confirm nodes before a lock is granted.

use std::time::Duration;

use super::Session;
use super::proof::{Proof, judge};
use crate::error::Result;
use crate::recipe::validity::Stamp;
use crate::time::clock::Moment;
use crate::time::limit::Limit;

/// The outcome of [`Session::prove`].
pub(crate) enum Proven {
    By(Stamp),
    /// The node at this index is gone.
    Gone(usize),
    LimitReached,
}

impl Session {
    /// Has the quorum confirm the nodes until the proof is good enough to grant a lock.
    pub(crate) fn prove(&self, nodes: &[String], limit: &Limit) -> Result<Proven> {
        let capabilities = self.transport.capabilities();
        let mut caller = self.caller();
        let (mut proven, mut proofs) = (None, 0);
        loop {
            if caller.connected(limit)?.is_none() {
                return Ok(Proven::LimitReached);
            }
            let better_at = proven.and_then(|stamp| self.status.better_at(stamp));
            if let Some(pause) = better_at.and_then(pause_until) {
                if caller.pause(pause, limit).is_err() {
                    return Ok(Proven::LimitReached);
                }
                continue;
            }
            let stamp = self.status.stamp();
            let Ok(answers) = caller.prove(nodes, limit) else {
                return Ok(Proven::LimitReached);
            };
            match judge(capabilities, &answers) {
                Proof::Confirmed => {
                    proofs += 1;
                    if self.status.supports_a_grant(stamp, proofs) {
                        return Ok(Proven::By(stamp));
                    }
                    proven = Some(stamp);
                }
                Proof::Gone(at) => return Ok(Proven::Gone(at)),
                Proof::Unanswered => caller.breathe(),
            }
        }
    }
}

/// The time until `moment`, if that is still to come.
pub(crate) fn pause_until(moment: Duration) -> Option<Duration> {
    let now = Moment::now().since_boot();
    moment.checked_sub(now).filter(|pause| !pause.is_zero())
}
