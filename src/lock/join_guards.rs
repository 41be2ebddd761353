//! Joins several guards into one, such as those of several permits.

use super::raw_guard::RawGuard;
use crate::session::lease::Lease;
use zklock_core::validity::Stamp;

impl RawGuard {
    /// Returns one guard over the nodes of all these guards, which are of one lock; `None` if there are none.
    ///
    /// The guard is lost with the first of its nodes. If one of the guards is lost already, or is
    /// of another session, the returned guard is lost.
    pub(crate) fn join(all: Vec<Self>) -> Option<Self> {
        let (first, others) = all.split_first()?;
        if others.is_empty() {
            return all.into_iter().next();
        }
        let (session, token) = (first.session().clone(), first.token());
        let id = first.lease().session();
        let path = first.lease().path().to_owned();
        let nodes = all.iter().flat_map(|raw| raw.nodes().to_vec()).collect();
        let one_session = all.iter().all(|raw| raw.lease().session() == id);
        let stamps = all.iter().map(|raw| raw.lease().stamp());
        let oldest = stamps.reduce(|one, other| Some(one?.and(other?)));
        let stamp = oldest.flatten().filter(|_| one_session);
        let bounds = session.status.bounds(id);
        let lease = Lease::new(&path, nodes, id, bounds, stamp.unwrap_or(Stamp::NEVER));
        let since = all.iter().find_map(|raw| raw.since);
        let mut joined = Self::new(&session, lease, token);
        joined.since = since;
        all.into_iter().for_each(Self::hand_over);
        Some(joined)
    }
}
