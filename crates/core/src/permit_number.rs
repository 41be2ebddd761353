//! The number of a permit, which no other permit has that is held at the same time.
//!
//! ```text
//!  Look ◄──────────► Make           (there is no directory of numbers)
//!   │ ▲
//!   ▼ │ something changed, or no reply
//!  Claim ──► Finish(Held)
//!
//!  Our permit is gone: Finish(Lost).   Cancel, from anywhere: Finish(Gone).
//! ```
//!
//! A claim is an ephemeral node that is named after the permit and the number, `LEASE.3`, in a directory of
//! its own. It counts as long as the permit's node exists. One transaction creates the claim, checks that
//! our permit exists, and writes the data of the permits' directory back over the version that the look has
//! read. Every claim changes that version, so no other one came in between. Our permit's node keeps that
//! directory, so its versions form one sequence.
//!
//! The look reads the version first, then the claims, and the permits last. If the permit of a claim is
//! missing then, it is gone for good, because a name is never used again. Its holder may still be at work,
//! if somebody evicted it, so its number is used last.
//!
//! Clients that ask for no number, such as Curator's, have none. There are as many numbers as permits, so
//! one is left for each client that asks.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use zklock_jute::Names;

/// The state machine that gets a permit its number.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct PermitNumber {
    /// The name of the permit's node.
    lease: String,
    permits: u32,
    state: State,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum State {
    Look,
    Make,
    Claim(u32, i32),
    Finish(Outcome),
}

/// The next step for the driver.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Action {
    /// Read the data of the permits' directory, list the claims, and list the permits, in this order.
    Look,
    /// Create the directory of the claims.
    Make,
    /// If the permits' directory has this version and our permit is there, create the claim of this
    /// name, and write the directory's data again.
    Claim(String, i32),
    /// Stop: there is nothing more to do.
    Finish(Outcome),
}

/// A report from the driver.
#[derive(Clone, Debug)]
pub enum Event {
    /// The version of the permits' directory, the claims if they have a directory, and the permits.
    Looked(i32, Option<Names>, Names),
    /// The directory is created, or existed already.
    Made,
    /// The claim is ours.
    Claimed,
    /// The claim was refused: something has changed since the look.
    Changed,
    /// No reply: the claim may have been created.
    ReplyLost,
    /// The caller gives up.
    Cancel,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Outcome {
    /// This number is ours.
    Held(u32),
    /// Our permit is gone.
    Lost,
    /// More permits than this client knows of have numbers.
    Full,
    /// We gave up.
    Gone,
}

impl PermitNumber {
    /// Creates an attempt at a number below `permits`, for the permit whose node is called `lease`.
    pub fn new(lease: &str, permits: u32) -> Self {
        Self {
            lease: lease.to_owned(),
            permits,
            state: State::Look,
        }
    }

    /// Returns the next step for the driver.
    pub fn action(&self) -> Action {
        match self.state {
            State::Look => Action::Look,
            State::Make => Action::Make,
            State::Claim(number, version) => Action::Claim(claim(&self.lease, number), version),
            State::Finish(outcome) => Action::Finish(outcome),
        }
    }

    /// Takes in the result of the last action.
    pub fn handle(&mut self, event: Event) {
        self.state = match (self.state.clone(), event) {
            (state @ State::Finish(_), _) => state,
            (_, Event::Cancel) => State::Finish(Outcome::Gone),
            (State::Look, Event::Looked(version, claims, permits)) => {
                self.looked(version, claims.as_ref(), &permits)
            }
            (State::Make, Event::Made) => State::Look,
            (State::Claim(number, _), Event::Claimed) => State::Finish(Outcome::Held(number)),
            // If the claim was created, the look shows it.
            (State::Claim(..), Event::Changed | Event::ReplyLost) => State::Look,
            (state, _) => state,
        };
    }

    fn looked(&self, version: i32, claims: Option<&Names>, permits: &Names) -> State {
        if !permits.contains(&self.lease) {
            return State::Finish(Outcome::Lost);
        }
        let Some(claims) = claims else {
            return State::Make;
        };
        let claims: Vec<_> = claims.iter().filter_map(parse).collect();
        if let Some((_, number)) = claims.iter().find(|(lease, _)| *lease == self.lease) {
            return State::Finish(Outcome::Held(*number));
        }
        let used = |number: &u32| claims.iter().any(|(_, other)| other == number);
        let held = |number: &u32| {
            let mut of = claims.iter().filter(|(_, other)| other == number);
            of.any(|(lease, _)| permits.contains(lease))
        };
        let free = (0..self.permits).find(|number| !used(number));
        let free = free.or_else(|| (0..self.permits).find(|number| !held(number)));
        free.map_or(State::Finish(Outcome::Full), |number| {
            State::Claim(number, version)
        })
    }
}

/// Returns what the names of all claims of a permit begin with.
pub fn prefix(lease: &str) -> String {
    format!("{lease}.")
}

fn claim(lease: &str, number: u32) -> String {
    format!("{}{number}", prefix(lease))
}

fn parse(claim: &str) -> Option<(&str, u32)> {
    let (lease, number) = claim.rsplit_once('.')?;
    Some((lease, number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Names {
        text.split_whitespace().collect()
    }

    #[test]
    fn the_lowest_number_is_claimed_that_nobody_has() {
        let claims = |number, version| State::Claim(number, version);
        let table = [
            // claims, permits, state
            ("", "me", claims(0, 7)),
            ("a.0", "a me", claims(1, 7)),
            ("a.1", "a me", claims(0, 7)),
            ("a.0 b.1", "a b me", claims(2, 7)),
            // A number whose permit is gone is used last.
            ("a.0 b.1", "b me", claims(2, 7)),
            ("a.0 b.1 c.2", "b c me", claims(0, 7)),
            ("a.0 b.0 c.1 d.2", "b c d me", State::Finish(Outcome::Full)),
            ("a.0 b.1 c.2", "a b c me", State::Finish(Outcome::Full)),
            ("me.2 a.0", "a me", State::Finish(Outcome::Held(2))),
            ("me.2 a.0", "a", State::Finish(Outcome::Lost)),
            ("stray a.x .", "a me", claims(0, 7)),
            // The number is of a time when there were more permits.
            ("a.9", "a me", claims(0, 7)),
        ];
        for (claims, permits, state) in table {
            let machine = PermitNumber::new("me", 3);
            let found = machine.looked(7, Some(&names(claims)), &names(permits));
            assert_eq!(found, state, "{claims:?} {permits:?}");
        }
        let machine = PermitNumber::new("me", 3);
        assert_eq!(machine.looked(7, None, &names("me")), State::Make);
    }
}
