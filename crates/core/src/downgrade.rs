//! The way from writer to reader, without a gap.
//!
//! ```text
//!          made, and the writer's was there
//!  Make ─────────────────────────────────────► Finish(Reader)
//!  │  ▲  │ made beside it                        ▲
//!  └──┘  └──────────────► Prove ─────────────────┘
//!  reply lost                       proved
//!
//!  The writer's node or the session is gone: Finish(Lost).   Cancel: Finish(Gone).
//! ```
//!
//! As in Curator 5.5 and later, the reader's plain ephemeral node gets the writer's own number,
//! and the writer's node is deleted afterwards. In between both exist, so there is no gap, and
//! a contender that waited for the writer finds the reader in the same place.
//!
//! The caller owns the writer's node and gives it up after `Finish`, whatever the outcome.
//! By then, [`Downgrade::orphans`] lists what else is to be deleted.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem;

use super::attempt::Orphan;
use super::dialect::{Dialect, Role};
use super::name::{NodeName, prefix};

/// The state machine of one downgrade.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Downgrade {
    writer: String,
    reader: String,
    /// The reader's name without its number. No other attempt ever asks for the same.
    prefix: String,
    state: State,
    orphans: Vec<Orphan>,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum State {
    Make,
    Prove,
    Finish(Outcome),
}

/// The next step for the driver.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Action {
    /// With transactions: create this plain ephemeral node if the writer's is there, in one transaction.
    /// Without them: create it.
    Make(String),
    /// Have the quorum confirm the writer's node, and then the reader's.
    Prove([String; 2]),
    /// Stop: there is nothing more to do.
    Finish(Outcome),
}

/// A report from the driver.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// The reader's node is there, and the same transaction saw the writer's.
    Made,
    /// The reader's node is there; nobody has looked for the writer's.
    MadeBeside,
    /// The quorum has confirmed both nodes.
    Proved,
    /// The writer's node, the reader's or the directory is not there.
    NoNode,
    /// No reply: the reader's node may or may not be there.
    ReplyLost,
    /// The lock was lost: by the clock, or with its session.
    Lost,
    /// The caller gives up.
    Cancel,
}

/// How the machine ended.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Outcome {
    /// The reader holds, through this node.
    Reader(String),
    /// The writer lost the lock first.
    Lost,
    /// We gave up.
    Gone,
}

impl Downgrade {
    /// Creates the machine. Returns `None` if the `writer`'s number says nothing about its place, because
    /// the reader's would not either. The `id` must be fresh: a UUID that was never used.
    pub fn new(dialect: Dialect, writer: &str, id: &str) -> Option<Self> {
        let prefix = prefix(dialect, Role::Read, id);
        Some(Self {
            writer: writer.to_owned(),
            reader: NodeName::parse(writer)?.in_its_place(&prefix)?,
            prefix,
            state: State::Make,
            orphans: Vec::new(),
        })
    }

    /// Returns the next step for the driver.
    pub fn action(&self) -> Action {
        match &self.state {
            State::Make => Action::Make(self.reader.clone()),
            State::Prove => Action::Prove([self.writer.clone(), self.reader.clone()]),
            State::Finish(outcome) => Action::Finish(outcome.clone()),
        }
    }

    /// Takes what is left in the directory after `Finish`, beside the writer's node.
    pub fn orphans(&mut self) -> Vec<Orphan> {
        mem::take(&mut self.orphans)
    }

    /// Takes in the result of the last action, or what happened meanwhile.
    pub fn handle(&mut self, event: Event) {
        let state = mem::replace(&mut self.state, State::Make);
        self.state = match (state, event) {
            (state @ State::Finish(_), _) => state,
            (_, Event::Cancel) => self.leave(Outcome::Gone),
            (_, Event::NoNode | Event::Lost) => self.leave(Outcome::Lost),

            (State::Make, Event::Made) | (State::Prove, Event::Proved) => {
                State::Finish(Outcome::Reader(self.reader.clone()))
            }
            (State::Make, Event::MadeBeside) => State::Prove,

            // The node's name is unique, so creating it twice creates it once. A stale event changes nothing.
            (state, _) => state,
        };
    }

    /// Ends without a reader. The reader's node may exist nevertheless.
    fn leave(&mut self, outcome: Outcome) -> State {
        self.orphans.push(Orphan::Prefix(self.prefix.clone()));
        State::Finish(outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::super::name::LAST_SEQUENCE;
    use super::*;

    const ID: &str = "00000000-0000-8000-8000-000000000001";

    #[test]
    fn the_reader_has_the_writers_number() {
        let writer = "_c_w-__WRIT__0000000042";
        let mut downgrade = Downgrade::new(Dialect::Curator, writer, ID).unwrap();
        let reader = format!("_c_{ID}-__READ__0000000042");
        assert_eq!(downgrade.action(), Action::Make(reader.clone()));
        downgrade.handle(Event::ReplyLost);
        assert_eq!(downgrade.action(), Action::Make(reader.clone()));
        downgrade.handle(Event::MadeBeside);
        let both = [writer.to_owned(), reader.clone()];
        assert_eq!(downgrade.action(), Action::Prove(both));
        downgrade.handle(Event::Proved);
        let outcome = Outcome::Reader(reader);
        assert_eq!(downgrade.action(), Action::Finish(outcome));
        assert_eq!(downgrade.orphans(), []);
    }

    #[test]
    fn numbers_that_are_used_up_say_nothing() {
        for number in [-3, LAST_SEQUENCE / 2, LAST_SEQUENCE] {
            let writer = format!("_c_w-__WRIT__{number:010}");
            assert_eq!(Downgrade::new(Dialect::Curator, &writer, ID), None);
        }
    }
}
