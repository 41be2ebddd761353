//! Asks the quorum whether a lock is still held, at once instead of when the next proof is due.

use std::time::Duration;

use super::raw_guard::RawGuard;
use crate::error::{Error, LostReason, Result};
use crate::session::caller::Caller;
use crate::session::confirm_grant::hidden;
use crate::time::limit::Limit;
use crate::transport::Failure;
use zklock_core::proof::{self, Proof};

/// How long to wait for a connection: this long, or this part of the session timeout. A client
/// reconnects sooner after a reset, and a caller that asks during an outage wants an answer.
const OUTAGE: Duration = Duration::from_secs(1);
const OUTAGE_PART: u32 = 8;

impl RawGuard {
    /// Makes the quorum confirm the nodes now. Asks once more if the connection breaks and is soon back.
    pub(crate) fn verify(&self) -> Result<()> {
        self.check()?;
        let timeout = self.session().status.snapshot().timeout;
        let limit = Limit::after(self.valid_for()).offline(OUTAGE.min(timeout / OUTAGE_PART));
        let mut caller = self.session().caller();
        let verified = self.ask(&mut caller, &limit);
        match verified {
            Err(Error::Suspect { .. }) if caller.connected(&limit)?.is_some() => {
                self.ask(&mut caller, &limit)
            }
            _ => verified,
        }
    }

    fn ask(&self, caller: &mut Caller, limit: &Limit) -> Result<()> {
        let stamp = self.session().status.stamp();
        let nodes: Vec<_> = self.lease().all_nodes().cloned().collect();
        let answers = caller.prove(&nodes, limit).unwrap_or_default();
        let proof = proof::judge(self.session().transport.transacts(), &answers);
        match proof {
            Proof::Confirmed => self.lease().confirm(stamp),
            Proof::Gone(_) => self.lease().lose(self.gone()),
            Proof::Hidden(_) | Proof::Unanswered => {}
        }
        self.check()?;
        match proof {
            Proof::Confirmed => Ok(()),
            _ if answers.contains(&Err(Failure::Closed)) => Err(self.session().status.ending()),
            Proof::Hidden(at) => Err(hidden(&nodes, at)),
            Proof::Gone(_) | Proof::Unanswered => Err(self.suspect()),
        }
    }

    pub(crate) fn suspect(&self) -> Error {
        Error::Suspect {
            path: self.lease().path().to_owned(),
        }
    }

    /// Marks the lock as lost, because its nodes are not there; returns the error.
    pub(crate) fn found_gone(&self) -> Error {
        self.lease().lose(self.gone());
        self.lease().lost()
    }

    fn gone(&self) -> LostReason {
        self.session().status.snapshot().why_missing()
    }
}
