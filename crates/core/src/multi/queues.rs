//! The queues in which our nodes stand: which of them to wait in, and when.

use alloc::string::String;
use alloc::vec::Vec;

use super::{Multi, Outcome, State};
use crate::attempt::{Origin, OwnNode};
use crate::places::OF_A_SEMAPHORE;
use crate::queue::Place;
use zklock_jute::Names;

impl Multi {
    /// Takes in the births of our nodes. They count if each of them is there and belongs to our session.
    pub(super) fn born(
        &mut self,
        names: Vec<String>,
        births: &[Option<Origin>],
        queues: Vec<Option<Names>>,
    ) -> State {
        let session = self.session;
        let ours = |origin: &Origin| session.is_none_or(|session| session == origin.owner);
        let origins: Vec<_> = births.iter().flatten().copied().filter(ours).collect();
        if origins.len() < names.len() {
            return self.leave(State::Births(names), Outcome::Restart);
        }
        let mine = names.into_iter().zip(origins);
        let mine = mine.map(|(name, origin)| OwnNode { name, origin });
        let mine: Vec<_> = mine.collect();
        self.firsts = mine.iter().map(|_| false).collect();
        self.listed(mine, queues)
    }

    /// Takes in the listings of all queues that may have to be waited in, and waits in the first one that has to.
    pub(super) fn listed(&mut self, mine: Vec<OwnNode>, queues: Vec<Option<Names>>) -> State {
        let waits: Vec<_> = self.waits().collect();
        let (mut blocked, mut queues) = (None, queues.into_iter());
        for at in waits {
            let names = queues.next().flatten();
            let held = names.as_ref();
            self.firsts[at] = held.is_some_and(|held| self.is_first(at, &mine[at].name, held));
            if !self.firsts[at] && blocked.is_none() {
                blocked = Some((at, names));
            }
        }
        match blocked {
            Some((at, names)) => State::Queue(at, mine, names),
            None => State::Prove(mine),
        }
    }

    /// Returns whether nobody is ahead in this queue, nor ever will be: numbers only grow.
    fn is_first(&self, at: usize, mine: &str, names: &Names) -> bool {
        // A contender that waits there sees whether such a semaphore is idle.
        let crowded = names.iter().any(|name| OF_A_SEMAPHORE.contains(&name));
        !crowded && self.contest(at).place(names, mine) == Place::First
    }

    /// Returns the queues in which our node may have to wait.
    pub(super) fn waits(&self) -> impl Iterator<Item = usize> {
        let firsts = self.firsts.iter().enumerate();
        firsts.filter_map(|(at, first)| (!first).then_some(at))
    }

    /// Takes in that our turn in a queue has come. After that queue, the others that are left are listed, all at once.
    pub(super) fn first(&mut self, at: usize, mine: Vec<OwnNode>) -> State {
        self.firsts[at] = true;
        match self.waits().next() {
            Some(_) => State::Lists(mine),
            None => State::Prove(mine),
        }
    }
}
