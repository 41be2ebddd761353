//! Tells the next holder that its predecessor went without releasing.
//!
//! ```text
//!           a predecessor went
//!  Read ──────────────────────► Pause
//!   │  │ nobody did               │
//!   │  └──────────► Set ◄─────────┘
//!   │ no marks       │ │ somebody has written
//!   │ kept here   set│ └────────────► Again ──► on, as from Read
//!   ▼                ▼                  │ it was our own request
//!  Finish(Unmarked)  Finish(Entered) ◄──┘
//!
//!  Our node is gone: Finish(Lost).   Cancel, from anywhere: Finish(Gone).
//! ```
//!
//! The mark is the data of the lock's directory. A holder sets it on its way in, and its release clears it
//! in the transaction that deletes its node: [`Mark::closing`] returns what that transaction writes. So the
//! mark stays if a session expires, a process dies or a critical section panics.

use alloc::string::ToString;
use alloc::vec::Vec;
use core::mem;

use serde_json::{Value, json};

/// The data of a directory that keeps marks, while nobody holds the lock.
pub const CLEAN: &[u8] = b"{\"held\":null}";

/// The state machine of one holder.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Mark {
    /// The holder's fencing token, which says whose mark it is.
    token: i64,
    state: State,
    /// The data that a release writes back, and over which version, once a request to set our mark may be
    /// under way.
    before: Option<(Vec<u8>, i32)>,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum State {
    Read,
    /// The predecessor's token, the data, and the version of the data.
    Pause(i64, Vec<u8>, i32),
    Set(Option<i64>, Vec<u8>, i32),
    /// Reads again, because somebody has written, perhaps our own request.
    Again(Option<i64>),
    Finish(Outcome),
}

/// The next step for the driver.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Action {
    /// Read the directory's data.
    Read,
    /// Wait as a successor has to: the predecessor with this token went without releasing.
    Pause(i64),
    /// Write this into the directory if it has this version and our node is there, in one
    /// transaction.
    Set(Vec<u8>, i32),
    /// Stop: there is nothing more to do.
    Finish(Outcome),
}

/// A report from the driver.
#[derive(Clone, Debug)]
pub enum Event {
    /// The directory has this data and this version.
    Data(Vec<u8>, i32),
    /// The successor has waited.
    Paused,
    /// The mark is set.
    IsSet,
    /// The directory has another version.
    BadVersion,
    /// No reply: the mark may or may not be set.
    ReplyLost,
    /// Our node or the directory is gone.
    NoNode,
    /// The caller gives up. While a request to set the mark is under way, `ReplyLost` goes
    /// before it.
    Cancel,
}

/// How the machine ended.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Outcome {
    /// The mark is set; the predecessor with this token went without releasing.
    Entered(Option<i64>),
    /// The directory keeps no marks.
    Unmarked,
    /// The lock was lost.
    Lost,
    /// We gave up.
    Gone,
}

impl Mark {
    /// Creates the machine of a holder with this fencing token, on its way in.
    pub fn new(token: i64) -> Self {
        Self {
            token,
            state: State::Read,
            before: None,
        }
    }

    /// Returns the next step for the driver.
    pub fn action(&self) -> Action {
        match &self.state {
            State::Read | State::Again(_) => Action::Read,
            State::Pause(token, ..) => Action::Pause(*token),
            State::Set(_, _, version) => Action::Set(self.text(), *version),
            State::Finish(outcome) => Action::Finish(outcome.clone()),
        }
    }

    /// Takes in the result of the last action, or what happened meanwhile.
    pub fn handle(&mut self, event: Event) {
        let state = mem::replace(&mut self.state, State::Read);
        self.state = match (state, event) {
            (state @ State::Finish(_), _) => state,
            (_, Event::Cancel) => State::Finish(Outcome::Gone),
            (_, Event::NoNode) => State::Finish(Outcome::Lost),

            (State::Again(abandoned), Event::Data(data, version)) if data == self.text() => {
                self.entered(abandoned, version)
            }
            (State::Read | State::Again(_), Event::Data(data, version)) => {
                self.before = None;
                match parse(&data) {
                    None => State::Finish(Outcome::Unmarked),
                    Some(Some(token)) => State::Pause(token, data, version),
                    Some(None) => State::Set(None, data, version),
                }
            }
            (State::Pause(token, data, version), Event::Paused) => {
                State::Set(Some(token), data, version)
            }
            (State::Set(abandoned, _, version), Event::IsSet) => {
                self.entered(abandoned, version.wrapping_add(1))
            }
            // The request is sent again, and refused if it was carried out.
            (State::Set(abandoned, data, version), Event::ReplyLost) => {
                self.before = Some((data.clone(), version.wrapping_add(1)));
                State::Set(abandoned, data, version)
            }
            (State::Set(abandoned, ..), Event::BadVersion) => State::Again(abandoned),

            // A request whose answer was lost is repeated, and a stale event changes nothing.
            (state, _) => state,
        };
    }

    fn entered(&mut self, abandoned: Option<i64>, version: i32) -> State {
        self.before = Some((CLEAN.to_vec(), version));
        State::Finish(Outcome::Entered(abandoned))
    }

    fn text(&self) -> Vec<u8> {
        json!({ "held": self.token }).to_string().into_bytes()
    }

    /// Returns what the transaction that deletes our node writes into the directory, and over which
    /// version, if anything.
    ///
    /// A holder that panics or has `lost` the lock clears nothing. A holder that gave up leaves the mark as
    /// it found it.
    pub fn closing(&self, panics: bool, lost: bool) -> Option<(&[u8], i32)> {
        let before = self.before.as_ref().filter(|_| !panics && !lost);
        before.map(|(data, version)| (&data[..], *version))
    }
}

/// Reads a mark. Returns the holder's token, if there is one, and `None` if the data is not a mark.
pub fn parse(data: &[u8]) -> Option<Option<i64>> {
    let mark: Value = serde_json::from_slice(data).ok()?;
    Some(mark.as_object()?.get("held")?.as_i64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_marks_are_read_as_marks() {
        assert_eq!(parse(CLEAN), Some(None));
        assert_eq!(parse(b"{\"held\":7}"), Some(Some(7)));
        for data in [&b""[..], b"127.0.0.1", b"3", b"{}", b"[\"held\"]", b"\xff"] {
            assert_eq!(parse(data), None, "{data:?}");
        }
    }

    #[test]
    fn only_a_release_clears_the_mark() {
        let mut mark = Mark::new(7);
        mark.handle(Event::Data(CLEAN.to_vec(), 3));
        assert_eq!(mark.action(), Action::Set(b"{\"held\":7}".to_vec(), 3));
        assert_eq!(mark.closing(false, false), None);
        mark.handle(Event::IsSet);
        assert_eq!(mark.action(), Action::Finish(Outcome::Entered(None)));
        assert_eq!(mark.closing(false, false), Some((CLEAN, 4)));
        assert_eq!(mark.closing(true, false), None);
        assert_eq!(mark.closing(false, true), None);
    }

    #[test]
    fn who_gives_up_leaves_the_mark_as_it_was() {
        let found = b"{\"held\":7}";
        for lost_reply in [false, true] {
            let mut mark = Mark::new(9);
            mark.handle(Event::Data(found.to_vec(), 3));
            assert_eq!(mark.action(), Action::Pause(7));
            mark.handle(Event::Paused);
            if lost_reply {
                mark.handle(Event::ReplyLost);
            }
            mark.handle(Event::Cancel);
            assert_eq!(mark.action(), Action::Finish(Outcome::Gone));
            let expected = lost_reply.then_some((&found[..], 4));
            assert_eq!(mark.closing(false, false), expected);
        }
    }

    #[test]
    fn what_is_not_a_mark_any_more_is_not_written_over() {
        let mut mark = Mark::new(7);
        mark.handle(Event::Data(CLEAN.to_vec(), 3));
        mark.handle(Event::BadVersion);
        assert_eq!(mark.action(), Action::Read);
        mark.handle(Event::Data(b"2".to_vec(), 4));
        assert_eq!(mark.action(), Action::Finish(Outcome::Unmarked));
        assert_eq!(mark.closing(false, false), None);
    }

    #[test]
    fn a_mark_whose_answer_was_lost_is_found_set() {
        let mut mark = Mark::new(9);
        mark.handle(Event::Data(b"{\"held\":7}".to_vec(), 3));
        mark.handle(Event::Paused);
        mark.handle(Event::ReplyLost);
        mark.handle(Event::BadVersion);
        assert_eq!(mark.action(), Action::Read);
        mark.handle(Event::Data(b"{\"held\":9}".to_vec(), 4));
        assert_eq!(mark.action(), Action::Finish(Outcome::Entered(Some(7))));
        assert_eq!(mark.closing(false, false), Some((CLEAN, 4)));
    }
}
