//! What a listing of the queue shows besides the attempt's place in it.

use core::mem;

use super::Acquisition;
use crate::attempt::Event;
use crate::client::link::Link;
use crate::seen_ahead::SeenAhead;
use zklock_jute::Names;

impl Acquisition {
    /// Takes in a listing that the attempt has asked for.
    pub(super) fn takes_in(&mut self, names: Names, link: &mut Link) {
        if link.settings.notes {
            let (contest, mine) = (self.attempt.contest(), self.attempt.node());
            self.seen.look(contest, &names, mine);
        }
        if let Some(names) = self.past_holds(names, link) {
            self.attempt.handle(Event::Children(names));
        }
    }

    /// Whom it has seen ahead.
    pub(in crate::client) fn seen(&mut self) -> SeenAhead {
        mem::take(&mut self.seen)
    }
}
