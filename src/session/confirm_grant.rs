//! Makes the quorum confirm nodes before a lock is granted.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Session;
use super::caller::Caller;
use crate::error::{Error, Result};
use crate::system::clock;
use crate::time::limit::{Limit, LimitReached};
use crate::time::nanos;
use zklock_core::proof::{GrantProof, Next, Proof, judge};
use zklock_core::validity::Stamp;

/// The outcome of [`Session::prove`].
pub(crate) enum Proven {
    By(Stamp),
    /// The node at this index is gone.
    Gone(usize),
    LimitReached,
}

/// A wait for the leader that is this long is logged at level info.
const LONG: Duration = Duration::from_secs(2);

impl Session {
    /// Returns how long a lock that nobody is ahead for is held back, if that takes long: after a
    /// reconnect, the leader must first have heard of the session.
    pub(crate) fn held_back(&self) -> Option<Duration> {
        let until = Duration::from_nanos(self.held_back.load(Ordering::Relaxed));
        let pause = until.checked_sub(clock::since_boot());
        pause.filter(|pause| !pause.is_zero())
    }

    /// Notes that no lock is held back any more.
    pub(crate) fn lets_go_on(&self) {
        self.held_back.store(0, Ordering::Relaxed);
    }

    /// Notes that no lock is granted before this time has passed.
    pub(crate) fn hold_back(&self, pause: Duration) {
        let mut level = log::Level::Debug;
        if LONG <= pause {
            level = log::Level::Info;
            let until = clock::since_boot() + pause;
            self.held_back.store(nanos(until), Ordering::Relaxed);
        }
        log::log!(
            level,
            "a lock is granted in {pause:?}, when the leader must have heard of the session"
        );
    }

    /// Waits until asking can help: after a silence, the leader must first have heard of the session.
    fn await_leader(
        &self,
        caller: &mut Caller,
        pause: Duration,
        limit: &Limit,
    ) -> Result<(), LimitReached> {
        self.hold_back(pause);
        let paused = caller.pause(pause, limit);
        self.lets_go_on();
        paused
    }

    /// Makes the quorum confirm the nodes until the proof is good enough to grant a lock.
    pub(crate) fn prove(&self, nodes: &[String], limit: &Limit) -> Result<Proven> {
        self.prove_on(None, nodes, limit)
    }

    /// Like [`prove`](Self::prove), starting from a write that was committed in this session.
    pub(crate) fn prove_on(
        &self,
        stamp: Option<Stamp>,
        nodes: &[String],
        limit: &Limit,
    ) -> Result<Proven> {
        let (mut caller, mut proof) = (self.caller(), GrantProof::of(stamp));
        loop {
            let is_enough = |_: &Stamp| self.status.next_for_a_grant(&proof) == Next::Grant;
            if let Some(stamp) = proof.stamp.filter(is_enough) {
                return Ok(Proven::By(stamp));
            }
            if caller.connected(limit)?.is_none() {
                return Ok(Proven::LimitReached);
            }
            let counts = match self.status.next_for_a_grant(&proof) {
                Next::Grant => continue,
                Next::Ask { counts } => counts,
                Next::Pause(pause) if self.await_leader(&mut caller, pause, limit).is_ok() => {
                    continue;
                }
                Next::Pause(_) => return Ok(Proven::LimitReached),
            };
            let stamp = self.status.stamp();
            let Ok(answers) = caller.prove(nodes, limit) else {
                return Ok(Proven::LimitReached);
            };
            let now = clock::since_boot();
            match judge(self.transport.transacts(), &answers) {
                Proof::Confirmed if proof.confirmed(stamp, counts, now) => tell_late(proof.took),
                Proof::Confirmed => {}
                Proof::Gone(at) => return Ok(Proven::Gone(at)),
                Proof::Hidden(at) => return Err(hidden(nodes, at)),
                Proof::Unanswered if caller.breathe(limit).is_ok() => {}
                Proof::Unanswered => return Ok(Proven::LimitReached),
            }
        }
    }
}

/// Logs that the answers take so long that no lock is granted.
pub(crate) fn tell_late(took: Duration) {
    log::warn!(
        "no lock is granted yet, because the servers answer after {took:.1?}: set a longer session timeout"
    );
}

/// Returns the error of a client that may not read the node at this index.
pub(crate) fn hidden(nodes: &[String], at: usize) -> Error {
    let path = nodes.get(at).cloned().unwrap_or_default();
    Error::NoAuth { path }
}
