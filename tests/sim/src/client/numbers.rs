//! Permits whose holders ask for their numbers.

use zklock::{Error, Permit, sim};

use super::{Actor, token_and_node};
use crate::history::Kind;
use crate::lives::{NUMBERED, Numbered};
use crate::plan::Step;

/// The number of permits.
const PERMITS: u32 = 3;

impl Actor {
    pub(super) fn numbered(&self, step: &Step) {
        let semaphore = self
            .client
            .semaphore(NUMBERED, PERMITS)
            .expect("a semaphore");
        let (op, options) = self.request(Kind::Permit(PERMITS as usize), &[NUMBERED], step);
        let taken = self.call(op, || semaphore.acquire_with(options));
        let Some(permit) = self.granted(op, taken, token_and_node) else {
            return;
        };
        self.ask_for_its_number(op, &permit);
        self.hold_and_give_up(op, step, permit);
    }

    fn ask_for_its_number(&self, op: usize, permit: &Permit) {
        match permit.number() {
            Ok(number) => {
                let (node, at) = (permit.node().to_owned(), sim::elapsed());
                if sim::records() {
                    sim::note(&format!("{} {op} has the number {number}", self.who));
                }
                assert!(number < PERMITS, "{} has the number {number}", self.who);
                if let Ok(again) = permit.number() {
                    assert_eq!(again, number, "{}", self.who);
                }
                let who = self.who;
                self.journal.numbers().push(Numbered {
                    who,
                    op,
                    node,
                    number,
                    at,
                });
            }
            Err(Error::Lost { .. } | Error::Suspect { .. } | Error::Closed) => {}
            Err(error) => panic!("{} has no number: {error}", self.who),
        }
    }
}
