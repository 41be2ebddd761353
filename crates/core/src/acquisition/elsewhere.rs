//! Our nodes in other queues, where the same call stands at the same time, as that of a multi-lock does. Without one
//! of them, the wait in this queue is in vain, so a waiter watches them too.

use alloc::string::String;
use alloc::vec::Vec;
use core::mem;

use super::state::Step;
use super::{Acquisition, Wire};
use crate::answer::{Answered, Failure};
use crate::attempt::Event;
use zklock_jute::{ErrorCode, Request};

impl Acquisition {
    /// Notes that the same call has these nodes in other queues, by their full paths. A waiter is evicted with each
    /// of them.
    pub fn note_elsewhere(&mut self, nodes: Vec<String>) {
        self.elsewhere.nodes = nodes;
        self.elsewhere.broke();
    }

    /// Looks at the nodes in other queues that are not watched, and leaves a watch on each.
    pub(super) fn watch_elsewhere(&mut self, wire: &mut dyn Wire) {
        if !wire.is_connected() {
            return;
        }
        for at in mem::take(&mut self.elsewhere.unwatched) {
            let look = Request::get(&self.elsewhere.nodes[at]).and_watch();
            self.send(look, Step::Elsewhere(at, false), wire);
        }
    }

    /// Takes in the answer to a look. A server that closes our session deletes its nodes first, so the node is
    /// looked at again before it counts as evicted, as our own node here is.
    pub(super) fn seen_elsewhere(
        &mut self,
        (at, again): (usize, bool),
        answered: &Answered,
        wire: &mut dyn Wire,
    ) -> Result<(), Failure> {
        let node = self.elsewhere.nodes[at].clone();
        match answered {
            Err(Failure::Refused(ErrorCode::NO_NODE)) if again => {
                self.elsewhere.evicted = Some(node);
                self.attempt.handle(Event::Cancel);
            }
            Err(Failure::Refused(ErrorCode::NO_NODE)) => {
                wire.unwatch(&node);
                self.send(Request::exists(&node), Step::Elsewhere(at, true), wire);
            }
            // A client that may not look learns of the node's end when all nodes are proven.
            Ok(_) | Err(Failure::Refused(_)) => {}
            Err(_) => self.elsewhere.unwatched.push(at),
        }
        Ok(())
    }

    /// Notes that the same call must have this node in another queue when its own node here is created. Whoever comes
    /// first there after it then finds the node here.
    ///
    /// Whether it stood is asked behind the create: a server that has carried that out has carried out whatever came
    /// before. By the clock, the call would hear of an eviction too late.
    pub fn note_under(&mut self, node: String) {
        self.under.node = Some(node);
    }

    /// Looks whether that node stands, unless that is known; anew behind a create. Returns whether the answer is
    /// awaited.
    pub(super) fn look_under(&mut self, anew: bool, wire: &mut dyn Wire) -> bool {
        let Some(node) = self.under.node.clone() else {
            return false;
        };
        let is_look = |step: &Step| matches!(step, Step::Under(_));
        if anew {
            self.under.stood = false;
            self.flight.retain(|(_, step)| !is_look(step));
        }
        let asks = !self.under.stood && !self.is_on_its_way(is_look);
        if asks {
            self.send(Request::exists(&node), Step::Under(false), wire);
        }
        !self.under.stood
    }

    /// Takes in the answer to that look. As with the nodes elsewhere, the node is looked at again before it counts as
    /// evicted.
    pub(super) fn seen_under(
        &mut self,
        again: bool,
        answered: &Answered,
        wire: &mut dyn Wire,
    ) -> Result<(), Failure> {
        let node = self.under.node.clone().unwrap_or_default();
        match answered {
            Err(Failure::Refused(ErrorCode::NO_NODE)) if again => {
                self.elsewhere.evicted = Some(node);
                self.attempt.handle(Event::Cancel);
            }
            Err(Failure::Refused(ErrorCode::NO_NODE)) => {
                self.send(Request::exists(&node), Step::Under(true), wire);
            }
            Ok(_) | Err(Failure::Refused(_)) => self.under.stood = true,
            // It is asked again when the turn has come.
            Err(_) => {}
        }
        Ok(())
    }
}
