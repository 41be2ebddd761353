//! What the answers to an attempt's requests say to it.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use core::{mem, slice};

use super::{Acquisition, Step};
use crate::answer::{Answered, Failure};
use crate::attempt::{Action, Event, Origin};
use crate::client::link::Link;
use crate::client::names::name_of;
use crate::grant_proof::GrantProof;
use crate::proof::{self, Proof};
use crate::validity::Stamp;
use zklock_jute::{ErrorCode, EventKind, Names, Reply, Request, Stat};

/// The births of nodes, as far as the answers have told.
#[derive(Debug, Default)]
pub(super) struct Births {
    /// Whose answers are still to come, in this order.
    pub(super) asked: VecDeque<String>,
    pub(super) known: BTreeMap<String, i64>,
}

/// The refusals to create the ancestors of a lock, outermost first.
#[derive(Debug, Default)]
pub(super) struct Parents {
    count: usize,
    /// The first that is not a consequence of another.
    first: Option<ErrorCode>,
    last: Option<ErrorCode>,
}

impl Acquisition {
    /// Tells the attempt what an answer says.
    pub(super) fn report(
        &mut self,
        step: Step,
        answered: Answered,
        link: &mut Link,
    ) -> Result<(), Failure> {
        const GONE: Failure = Failure::Refused(ErrorCode::NO_NODE);
        let event = match (step, answered) {
            (Step::Create(stamp), Ok(Reply::Created { path, stat })) => {
                self.proof = GrantProof::on(stamp);
                Event::Created(name_of(&path).into(), stat.map(origin))
            }
            (Step::Create(_), Ok(_) | Err(Failure::Lost)) => Event::ReplyLost,
            (Step::Create(_), Err(GONE)) => Event::NoNode,
            (Step::Parent, answered) => return self.parent_made(&answered),
            (Step::List, answered) => return self.listed(answered),
            // A refusal passes through the quorum too.
            (Step::Sync, Ok(_) | Err(Failure::Refused(_))) => Event::Synced,
            (Step::Own, Ok(Reply::Stat(stat))) => Event::Inspected(origin(stat)),
            (Step::Own, Err(GONE)) => return self.own_is_gone(),
            (Step::Nearest, Ok(_)) => Event::Watching,
            (Step::Nearest, Err(GONE)) => {
                self.has_moved = true;
                Event::NoNode
            }
            // A client that may not read a node is told nothing of it, not even that it goes.
            (Step::Nearest, Err(Failure::Refused(ErrorCode::NO_AUTH))) => {
                return self.watch_directory(link);
            }
            (Step::Around, Ok(Reply::Children { names, .. })) => self.around(&names),
            (Step::Beyond, answered) => return self.beyond(&answered),
            (Step::Birth, answered) => return self.born(answered),
            (Step::Proof(stamp, counts), answered) => {
                return self.confirmed((stamp, counts), answered, link);
            }
            (Step::Evicted, Ok(_) | Err(Failure::Refused(_))) => {
                self.is_evicted = true;
                return Ok(());
            }
            (_, Ok(_)) => return Ok(()),
            (_, Err(failure)) => return Err(failure),
        };
        self.attempt.handle(event);
        Ok(())
    }

    fn listed(&mut self, answered: Answered) -> Result<(), Failure> {
        match answered {
            Ok(Reply::Children { names, .. }) if self.wants_a_listing() => {
                self.attempt.handle(Event::Children(names));
            }
            Ok(Reply::Children { names, .. }) => self.listing = Some(names),
            // The directory is not there: a create says so too, and makes it.
            Err(Failure::Refused(ErrorCode::NO_NODE)) if self.wants_a_listing() => {
                self.attempt.handle(Event::NoNode);
            }
            Err(Failure::Refused(ErrorCode::NO_NODE)) | Ok(_) => {}
            Err(failure) => return Err(failure),
        }
        Ok(())
    }

    fn wants_a_listing(&self) -> bool {
        matches!(
            self.attempt.action(),
            Action::List | Action::ListAndWatch(_)
        )
    }

    fn parent_made(&mut self, answered: &Answered) -> Result<(), Failure> {
        match answered {
            Err(Failure::Refused(code)) => self.parents.refused(*code),
            Err(failure) => return Err(*failure),
            Ok(_) => self.parents.made(),
        }
        if self.is_on_its_way(|step| *step == Step::Parent) {
            return Ok(());
        }
        match self.parents.trouble() {
            Some(code) => Err(Failure::Refused(code)),
            None => {
                self.attempt.handle(Event::ParentsMade);
                Ok(())
            }
        }
    }

    /// One of these says so to the attempt, whatever it does.
    fn own_is_gone(&mut self) -> Result<(), Failure> {
        self.attempt.handle(Event::Evicted);
        self.attempt.handle(Event::NoNode);
        Ok(())
    }

    fn watch_directory(&mut self, link: &mut Link) -> Result<(), Failure> {
        let list = Request::GetChildren {
            path: self.path.as_ref().into(),
            watch: true,
            stat: false,
        };
        self.send(list, Step::Around, link);
        self.watches.around = true;
        Ok(())
    }

    fn around(&self, names: &Names) -> Event {
        let nearest = self.watches.nearest.as_deref();
        match nearest.is_some_and(|nearest| names.contains(nearest)) {
            true => Event::Watching,
            false => Event::NoNode,
        }
    }

    /// If the node beyond the nearest is gone, that counts as its event.
    fn beyond(&mut self, answered: &Answered) -> Result<(), Failure> {
        let gone = *answered == Err(Failure::Refused(ErrorCode::NO_NODE));
        if let Some(beyond) = self.watches.beyond.clone().filter(|_| gone) {
            self.events.push_back((beyond, EventKind::Deleted));
        }
        Ok(())
    }

    fn born(&mut self, answered: Answered) -> Result<(), Failure> {
        let name = self.births.asked.pop_front();
        match (name, answered) {
            (Some(name), Ok(Reply::Stat(stat))) => {
                self.births.known.insert(name, stat.czxid);
            }
            (_, Err(Failure::Refused(ErrorCode::NO_NODE)) | Ok(_)) => {}
            (_, Err(failure)) => return Err(failure),
        }
        if self.births.asked.is_empty() {
            let known = mem::take(&mut self.births.known);
            self.attempt.handle(Event::Births(known));
        }
        Ok(())
    }

    fn confirmed(
        &mut self,
        (stamp, counts): (Stamp, bool),
        answered: Answered,
        link: &Link,
    ) -> Result<(), Failure> {
        match proof::judge(link.knows, slice::from_ref(&answered)) {
            Proof::Confirmed => {
                self.proof.confirmed(stamp, counts);
                Ok(())
            }
            Proof::Gone(_) => self.own_is_gone(),
            Proof::Unanswered => Err(proof::failure(vec![answered])),
        }
    }
}

impl Parents {
    fn refused(&mut self, code: ErrorCode) {
        // Any but the outermost lacks its parent because that was refused, or was deleted at once.
        let consequence = code == ErrorCode::NO_NODE && 0 < self.count;
        if code != ErrorCode::NODE_EXISTS && !consequence {
            self.first = self.first.or(Some(code));
        }
        self.last = Some(code);
        self.count += 1;
    }

    fn made(&mut self) {
        self.last = None;
        self.count += 1;
    }

    /// Why the node cannot be created, if so. A refusal in between does not matter if the
    /// directory itself exists.
    fn trouble(&self) -> Option<ErrorCode> {
        match self.last? {
            ErrorCode::NODE_EXISTS => None,
            _ => self.first,
        }
    }
}

fn origin(stat: Stat) -> Origin {
    Origin {
        owner: stat.ephemeral_owner,
        czxid: stat.czxid,
    }
}
