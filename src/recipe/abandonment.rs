//! Tells the next holder that its predecessor went without releasing.
//!
//! ```text
//!           a predecessor went
//!  Read ──────────────────────► Pause
//!   │  │ nobody did               │
//!   │  └──────────► Set ◄─────────┘
//!   │ no marks       │ set
//!   ▼ kept here      ▼
//!  Finish(Unmarked)  Finish(Entered)
//!
//!  Our node is gone: Finish(Lost).   Cancel, from anywhere: Finish(Gone).
//! ```
//!
//! The mark is the data of the lock's directory. A holder sets it on its way in, and its
//! release clears it in the transaction that deletes its node: [`Mark::closing`] says what that
//! transaction writes. So the mark stays if a session expires, a process dies or a critical
//! section panics.

use std::mem;

use serde_json::{Value, json};

/// The data of a directory that keeps marks, while nobody holds the lock.
pub const CLEAN: &[u8] = b"{\"held\":null}";

/// The state machine, for one holder.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Mark {
    /// Says whose mark it is: the holder's fencing token.
    token: i64,
    state: State,
    /// What a release writes back, once a request to set our mark may be under way.
    before: Option<Vec<u8>>,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum State {
    Read,
    Pause(i64, Vec<u8>),
    Set(Option<i64>, Vec<u8>),
    Finish(Outcome),
}

/// What the driver is to do next.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Action {
    /// Read the directory's data.
    Read,
    /// Wait as a successor has to: the predecessor with this token went without releasing.
    Pause(i64),
    /// Write this into the directory if our node is there, in one transaction.
    Set(Vec<u8>),
    /// Stop: there is nothing more to do.
    Finish(Outcome),
}

/// What the driver reports.
#[derive(Clone, Debug)]
pub enum Event {
    /// The directory has this data.
    Data(Vec<u8>),
    /// The successor has waited.
    Paused,
    /// The mark is set.
    IsSet,
    /// No reply: the mark may or may not be set.
    ReplyLost,
    /// Our node or the directory is gone.
    NoNode,
    /// The caller gives up. While a request to set the mark is under way, `ReplyLost` goes
    /// before it.
    Cancel,
}

/// How it ended.
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
    /// A holder with this fencing token, on its way in.
    pub fn new(token: i64) -> Self {
        Self {
            token,
            state: State::Read,
            before: None,
        }
    }

    /// What the driver is to do next.
    pub fn action(&self) -> Action {
        match &self.state {
            State::Read => Action::Read,
            State::Pause(token, _) => Action::Pause(*token),
            State::Set(..) => Action::Set(json!({ "held": self.token }).to_string().into_bytes()),
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

            (State::Read, Event::Data(data)) => match parse(&data) {
                None => State::Finish(Outcome::Unmarked),
                Some(Some(token)) => State::Pause(token, data),
                Some(None) => State::Set(None, data),
            },
            (State::Pause(token, data), Event::Paused) => State::Set(Some(token), data),
            (State::Set(abandoned, _), Event::IsSet) => {
                self.before = Some(CLEAN.to_vec());
                State::Finish(Outcome::Entered(abandoned))
            }
            // Setting it twice changes nothing.
            (State::Set(abandoned, data), Event::ReplyLost) => {
                self.before = Some(data.clone());
                State::Set(abandoned, data)
            }

            // A request whose answer was lost is repeated, and a stale event changes nothing.
            (state, _) => state,
        };
    }

    /// What the transaction that deletes our node writes into the directory, if anything.
    ///
    /// A holder that panics or has `lost` the lock clears nothing. One that gave up leaves the
    /// mark as it found it.
    pub fn closing(&self, panics: bool, lost: bool) -> Option<&[u8]> {
        self.before.as_deref().filter(|_| !panics && !lost)
    }
}

/// Reads a mark: the holder's token, if there is one, and `None` if the data is not a mark.
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
        mark.handle(Event::Data(CLEAN.to_vec()));
        assert_eq!(mark.action(), Action::Set(b"{\"held\":7}".to_vec()));
        assert_eq!(mark.closing(false, false), None);
        mark.handle(Event::IsSet);
        assert_eq!(mark.action(), Action::Finish(Outcome::Entered(None)));
        assert_eq!(mark.closing(false, false), Some(CLEAN));
        assert_eq!(mark.closing(true, false), None);
        assert_eq!(mark.closing(false, true), None);
    }

    #[test]
    fn who_gives_up_leaves_the_mark_as_it_was() {
        let found = b"{\"held\":7}";
        for lost_reply in [false, true] {
            let mut mark = Mark::new(9);
            mark.handle(Event::Data(found.to_vec()));
            assert_eq!(mark.action(), Action::Pause(7));
            mark.handle(Event::Paused);
            if lost_reply {
                mark.handle(Event::ReplyLost);
            }
            mark.handle(Event::Cancel);
            assert_eq!(mark.action(), Action::Finish(Outcome::Gone));
            let expected = lost_reply.then_some(&found[..]);
            assert_eq!(mark.closing(false, false), expected);
        }
    }
}
