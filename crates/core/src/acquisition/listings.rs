//! What a listing of the queue shows besides the attempt's place in it.

use super::{Acquisition, Note, Wire};
use crate::attempt::Event;
use zklock_jute::Names;

impl Acquisition {
    /// Takes in a listing that the attempt has asked for.
    pub(super) fn takes_in(&mut self, names: Names, wire: &mut dyn Wire) {
        wire.tell(Note::Listed(&names));
        if let Some(names) = self.past_semaphore(names, wire) {
            self.takes_in_contenders(names, wire);
        }
    }

    /// The same of a listing in which every child counts.
    pub(super) fn takes_in_crowd(&mut self, queued: bool, names: Names, wire: &mut dyn Wire) {
        let count = names.len() + usize::from(!queued);
        self.crowd = count.saturating_sub(self.contest.permits);
        self.takes_in(names, wire);
    }

    /// Takes in a listing in which no idle semaphore is left.
    pub(super) fn takes_in_contenders(&mut self, names: Names, wire: &mut dyn Wire) {
        if let Some(seen) = &mut self.seen {
            seen.look(self.contest, &names, self.attempt.node());
        }
        if let Some(names) = self.past_holds(names, wire) {
            self.attempt.handle(Event::Children(names));
        }
    }
}
