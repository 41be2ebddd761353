//! Why a lock was lost.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};

/// Why a lock was lost; see [`Error::Lost`](crate::Error::Lost).
///
/// The message of the error, the log and [`LockGuard::lost_reason`](crate::LockGuard::lost_reason)
/// give the same reason. It is the first one that the client knew of: a holder whose machine slept
/// finds [`NotConfirmed`](Self::NotConfirmed) when it wakes, and learns later that its session has
/// expired.
///
/// # Example
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zklock::embedded::Server::start()?;
/// # let client = zklock::Client::connect(server.hosts())?;
/// use zklock::{Error, LostReason};
///
/// let guard = client.mutex("/locks/nightly-report")?.lock()?;
/// client.close()?;
/// match guard.check() {
///     Err(Error::Lost { path, why }) => {
///         assert_eq!(why, LostReason::Closed);
///         println!("{path}: {why}"); // the client was closed
///     }
///     other => panic!("the lock is lost: {other:?}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum LostReason {
    /// Another client deleted the lock's node while the session went on, or took over or deleted
    /// its row. The server does not report which client that was; a client that calls
    /// [`Contender::evict`](crate::Contender::evict) logs it.
    Evicted,
    /// The session expired: the servers heard nothing from the client for the session timeout.
    SessionExpired,
    /// No quorum confirmed the lock in time, which is half a session timeout at most; for a lock
    /// in a database, no renewal was confirmed in time. The network may be cut, the servers
    /// may be slow, or this process was paused.
    NotConfirmed,
    /// The connection broke, and the transport cannot tell whether the session survived; see
    /// [`Client::from_zookeeper`](crate::Client::from_zookeeper).
    Disconnected,
    /// The client was closed.
    Closed,
    /// The servers refused the client's credentials, which ended the session.
    AuthFailed,
    /// The lock's node is gone, and the client does not know yet whether it was deleted or went
    /// with the session. A moment later this is [`Evicted`](Self::Evicted) or
    /// [`SessionExpired`](Self::SessionExpired), except with
    /// [`Client::from_zookeeper`](crate::Client::from_zookeeper), which never learns it.
    NodeGone,
    /// The run took longer than [`JobOptions::max_time`](crate::JobOptions::max_time). The lock's
    /// node is still there: nobody else gets the lock before the run has ended. If the lock itself
    /// is lost before that, the reason becomes that one.
    OverTime,
    /// The lock was handed over to another process: either by this guard
    /// ([`MutexGuard::hand_over`](crate::MutexGuard::hand_over)), or by a hand-over that this
    /// process wanted to take over and another has taken
    /// ([`ClientBuilder::take_over`](crate::ClientBuilder::take_over)).
    HandedOver,
}

impl LostReason {
    const ALL: [Self; 9] = [
        Self::Evicted,
        Self::SessionExpired,
        Self::NotConfirmed,
        Self::Disconnected,
        Self::Closed,
        Self::AuthFailed,
        Self::NodeGone,
        Self::OverTime,
        Self::HandedOver,
    ];
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Evicted => "another client evicted it",
            Self::SessionExpired => "the session expired",
            Self::NotConfirmed => "the servers did not confirm it in time",
            Self::Disconnected => "the connection broke and its session cannot be resumed",
            Self::Closed => "the client was closed",
            Self::AuthFailed => "the servers refused the credentials",
            Self::NodeGone => "its node is gone",
            Self::OverTime => "the run took longer than it may",
            Self::HandedOver => "it was handed over to another process",
        })
    }
}

/// A cell for a reason. It is written once, and can then only be made more exact.
#[derive(Debug, Default)]
pub(crate) struct LossCell(AtomicU8);

impl LossCell {
    pub(crate) fn get(&self) -> Option<LostReason> {
        let number = usize::from(self.0.load(Ordering::Acquire));
        LostReason::ALL.get(number.checked_sub(1)?).copied()
    }

    /// Keeps this reason unless there is one already; returns the one that is kept.
    pub(crate) fn settle(&self, reason: LostReason) -> LostReason {
        let _ = self.replace(0, reason);
        self.get().unwrap_or(reason)
    }

    /// Records what became of a node that is gone; any other reason stays. Returns whether the
    /// reason has changed.
    pub(crate) fn explain(&self, reason: LostReason) -> bool {
        self.replace(number(LostReason::NodeGone), reason).is_ok()
    }

    fn replace(&self, old: u8, reason: LostReason) -> Result<u8, u8> {
        self.0
            .compare_exchange(old, number(reason), Ordering::AcqRel, Ordering::Acquire)
    }
}

fn number(reason: LostReason) -> u8 {
    let place = LostReason::ALL.iter().position(|other| *other == reason);
    place.map_or(0, |place| place as u8 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_stays_and_a_node_that_is_gone_is_explained() {
        for reason in LostReason::ALL {
            let cell = LossCell::default();
            assert_eq!(cell.get(), None);
            assert_eq!(cell.settle(reason), reason);
            assert_eq!(cell.settle(LostReason::Closed), reason);
            cell.explain(LostReason::Evicted);
            let kept = match reason {
                LostReason::NodeGone => LostReason::Evicted,
                reason => reason,
            };
            assert_eq!(cell.get(), Some(kept));
        }
    }
}
