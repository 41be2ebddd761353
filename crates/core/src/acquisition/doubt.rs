//! Whether the quorum has the node that a server shows ahead.
//!
//! A server whose data have diverged may show a node for ever that the others have deleted, and its clients would
//! wait for it for ever. A server answers a look from its own data. The leader decides a check by its data, and a
//! server that answers a check has carried out whatever came before. So if the leader lacks the node, and a look that
//! follows the check on the same connection still finds it, this server's data are wrong.

use core::slice;
use core::time::Duration;

use super::state::{Doubt, Step};
use super::{Acquisition, Note, Wire};
use crate::answer::{Answered, Failure};
use crate::name::may_be_hold;
use crate::path::node_in;
use crate::proof::{self, Proof};
use zklock_jute::Request;

/// How long a contender waits for a node before it asks about it. Each further pause is twice as long, so that long
/// waits cost few writes.
const FIRST: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_secs(15 * 60);
/// How soon after that it asks about another node that is nearest then. Not much later: the others at such a server come
/// to the same node one after the other. Not at once: the readers ahead of a writer may be many.
const ANOTHER: Duration = Duration::from_secs(2);

impl Acquisition {
    /// Asks about the node ahead if that is due; if not, schedules that.
    pub(super) fn doubts(&mut self, wire: &mut dyn Wire) {
        // A hold may be written anew under its name.
        let nearest = self.watches.nearest.as_ref();
        let Some(nearest) = nearest.filter(|name| !may_be_hold(name) && wire.transacts()) else {
            return;
        };
        if self.doubt.node != *nearest {
            // After a long wait, the node that is nearest now may be what others have gone past.
            let next = *self.doubt.next.get_or_insert_with(|| wire.now() + FIRST);
            self.doubt = Doubt {
                next: Some(next),
                node: nearest.clone(),
                at: wire.now().max(next),
                pause: FIRST,
            };
        }
        if self.doubt.at <= wire.now() {
            if !wire.is_connected() || self.is_on_its_way(|step| *step == Step::Doubt) {
                return;
            }
            self.doubt.pause = (2 * self.doubt.pause).min(LONGEST);
            self.doubt.at = wire.now() + self.doubt.pause;
            self.doubt.next = Some(wire.now() + ANOTHER);
            let path = node_in(&self.path, &self.doubt.node);
            let check = proof::requests(true, slice::from_ref(&path));
            for request in check.into_iter().chain([Request::exists(&path)]) {
                self.send(request, Step::Doubt, wire);
            }
        }
        self.rest_at(self.doubt.at);
    }

    /// Takes in the answers to the check and to the look that follows it.
    pub(super) fn doubted(
        &mut self,
        answers: &[Answered],
        wire: &mut dyn Wire,
    ) -> Result<(), Failure> {
        if let [check, Ok(_)] = answers {
            let check = proof::judge(true, slice::from_ref(check));
            if check == Proof::Gone(0) {
                wire.tell(Note::Diverged(&node_in(&self.path, &self.doubt.node)));
            }
        }
        Ok(())
    }
}
