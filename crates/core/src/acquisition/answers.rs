//! The answers to an attempt's requests, and the events that they amount to.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::mem;
use core::time::Duration;

use super::state::Step;
use super::{Acquisition, Note, Wire};
use crate::answer::{Answered, Failure};
use crate::attempt::{Action, Event, Origin};
use crate::directories;
use crate::path;
use crate::places::permits_of_kazoos;
use crate::proof::{self, GrantProof, Proof};
use crate::validity::Stamp;
use zklock_jute::{ErrorCode, EventKind, Names, Reply, Stat};

const GONE: Failure = Failure::Refused(ErrorCode::NO_NODE);

impl Acquisition {
    /// Tells the attempt what an answer says; where several are needed, what all of them say.
    pub(super) fn report(
        &mut self,
        step: Step,
        answered: Answered,
        wire: &mut dyn Wire,
    ) -> Result<(), Failure> {
        match step {
            Step::List => self.listed(None, answered, wire),
            Step::Crowd(queued) => self.listed(Some(queued), answered, wire),
            Step::Head => self.head_answered(answered, wire),
            Step::Own if answered == Err(GONE) => self.own_is_gone(),
            // A client that may not read a node gets no event of it, not even of its deletion.
            Step::Nearest if answered == Err(Failure::Refused(ErrorCode::NO_AUTH)) => {
                self.watch_directory(wire)
            }
            Step::Beyond => self.beyond(&answered),
            Step::Parent => self.with_all((step, answered), |it, all| it.parents_made(&all)),
            Step::Birth => self.with_all((step, answered), |it, all| it.born(&all)),
            Step::Proof(stamp, counts) => self.with_all((step, answered), |it, all| {
                it.confirmed((stamp, counts), all, wire)
            }),
            Step::Read => self.with_all((step, answered), |it, all| it.was_read(all)),
            Step::Hold => self.with_all((step, answered), |it, all| it.holds_read(all, wire)),
            Step::Removal => self.with_all((step, answered), |it, all| it.holds_removed(all, wire)),
            Step::Doubt => self.with_all((step, answered), |it, all| it.doubted(&all, wire)),
            Step::Semaphore => {
                self.with_all((step, answered), |it, all| it.semaphore_read(all, wire))
            }
            Step::Elsewhere(at, again) => self.seen_elsewhere((at, again), &answered, wire),
            Step::Under(again) => self.seen_under(again, &answered, wire),
            step => {
                self.saw_clock(&answered, wire.now());
                if let Some(event) = self.said(step, answered, wire)? {
                    self.attempt.handle(event);
                }
                Ok(())
            }
        }
    }

    /// Takes in an answer to one of several requests that were sent together. With the last of them, `tells` what they
    /// say.
    fn with_all(
        &mut self,
        (step, answered): (Step, Answered),
        tells: impl FnOnce(&mut Self, Vec<Answered>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.answers.push((step, answered));
        if self.is_on_its_way(|other| *other == step) {
            return Ok(());
        }
        let all = mem::take(&mut self.answers).into_iter();
        let (all, others): (Vec<_>, Vec<_>) = all.partition(|(of, _)| *of == step);
        self.answers = others;
        let answers = all.into_iter().map(|(_, answered)| answered);
        tells(self, answers.collect())
    }

    /// Returns the event that an answer stands for, where nothing else follows from it.
    fn said(
        &mut self,
        step: Step,
        answered: Answered,
        wire: &mut dyn Wire,
    ) -> Result<Option<Event>, Failure> {
        Ok(Some(match (step, answered) {
            (Step::Create(stamp), Ok(Reply::Created { path, stat })) => {
                self.proof = GrantProof::answered(stamp, wire.now());
                let name = path::name(&path);
                wire.tell(Note::Created(name));
                Event::Created(name.into(), stat.map(origin))
            }
            (Step::Create(_), Ok(_) | Err(Failure::Lost)) => Event::ReplyLost,
            (Step::Create(_), Err(GONE)) => Event::NoNode,
            // A refused sync has passed through the quorum too.
            (Step::Sync, Ok(_) | Err(Failure::Refused(_))) => Event::Synced,
            (Step::Own, Ok(Reply::Stat(stat) | Reply::Data { stat, .. })) => {
                Event::Inspected(origin(stat))
            }
            (Step::Nearest, Ok(reply)) => {
                if let Reply::Data { data, stat } = reply {
                    self.found = (data, stat);
                }
                Event::Watching
            }
            (Step::Nearest, Err(GONE)) => {
                self.has_moved = true;
                return Ok(self.nearest_is_gone());
            }
            (Step::Around, Ok(Reply::Children { names, .. })) => return Ok(self.around(&names)),
            (Step::Around, Err(GONE)) => return Ok(self.nearest_is_gone()),
            (Step::Evicted, Ok(_) | Err(Failure::Refused(_))) => {
                self.is_evicted = true;
                return Ok(None);
            }
            (Step::Clock, Err(Failure::Refused(_))) | (_, Ok(_)) => return Ok(None),
            (_, Err(failure)) => return Err(failure),
        }))
    }

    /// Takes in a listing. One that left a watch on the directory, where every child counts, also says whether
    /// our own node is there.
    fn listed(
        &mut self,
        crowd: Option<bool>,
        answered: Answered,
        wire: &mut dyn Wire,
    ) -> Result<(), Failure> {
        let is_wanted = self.wants_a_listing();
        match answered {
            Ok(Reply::Children { names, .. }) => {
                self.watches.around |= crowd.is_some();
                match crowd {
                    _ if !is_wanted => self.listing = Some(names),
                    Some(queued) => self.takes_in_crowd(queued, names, wire),
                    None => self.takes_in(names, wire),
                }
            }
            // The directory is missing. A create finds that out too, and has the directory created.
            Err(GONE) if is_wanted => self.attempt.handle(Event::NoNode),
            Err(GONE) | Ok(_) => {}
            Err(failure) => return Err(failure),
        }
        Ok(())
    }

    /// Takes in a listing that the attempt has asked for, and what it shows besides the place in the queue.
    pub(super) fn takes_in(&mut self, names: Names, wire: &mut dyn Wire) {
        wire.tell(Note::Listed(&names));
        if let Some(names) = self.past_semaphore(names, wire) {
            self.takes_in_contenders(names, wire);
        }
    }

    /// As [`takes_in`](Self::takes_in), for a listing in which every child counts.
    pub(super) fn takes_in_crowd(&mut self, queued: bool, names: Names, wire: &mut dyn Wire) {
        let names = match self.contest.looks_first() {
            true => permits_of_kazoos(&names),
            false => names,
        };
        let count = names.len() + usize::from(!queued);
        self.crowd = count.saturating_sub(self.contest.permits);
        self.takes_in(names, wire);
    }

    /// Takes in a listing that no longer contains an idle semaphore.
    pub(super) fn takes_in_contenders(&mut self, names: Names, wire: &mut dyn Wire) {
        if let Some(seen) = &mut self.seen {
            seen.look(self.contest, &names, self.attempt.node());
        }
        if let Some(names) = self.past_holds(names, wire) {
            self.attempt.handle(Event::Children(names));
        }
    }

    fn wants_a_listing(&self) -> bool {
        matches!(
            self.attempt.action(),
            Action::List | Action::ListAndWatch(_)
        )
    }

    fn parents_made(&mut self, answers: &[Answered]) -> Result<(), Failure> {
        match directories::trouble_with(answers) {
            Some(failure) => Err(failure),
            None => {
                self.attempt.handle(Event::ParentsMade);
                Ok(())
            }
        }
    }

    /// Tells the attempt that its node is gone. Whatever it is doing, one of these events tells it so.
    fn own_is_gone(&mut self) -> Result<(), Failure> {
        self.attempt.handle(Event::Evicted);
        self.attempt.handle(Event::NoNode);
        Ok(())
    }

    fn watch_directory(&mut self, wire: &mut dyn Wire) -> Result<(), Failure> {
        self.ask_around(Step::Around, wire);
        self.watches.around = true;
        Ok(())
    }

    fn around(&mut self, names: &Names) -> Option<Event> {
        let nearest = self.watches.nearest.as_deref();
        match nearest.is_some_and(|nearest| names.contains(nearest)) {
            true => Some(Event::Watching),
            false => self.nearest_is_gone(),
        }
    }

    /// Returns the event that the nearest node is gone, if the attempt is at its watches. The watches may have left
    /// ahead of their turn, which does not come while there is no connection; then they are sent again.
    fn nearest_is_gone(&mut self) -> Option<Event> {
        let action = self.attempt.action();
        let is_its_turn = matches!(action, Action::Watch(..));
        if !is_its_turn {
            self.watches.nearest = None;
        }
        is_its_turn.then_some(Event::NoNode)
    }

    /// Takes in the answer about the node beyond the nearest. If that node is gone, this counts as an event.
    fn beyond(&mut self, answered: &Answered) -> Result<(), Failure> {
        self.watches.is_seen = answered.is_ok();
        let beyond = self.watches.beyond.clone();
        if let Some(beyond) = beyond.filter(|_| *answered == Err(GONE)) {
            self.events.push_back((beyond, EventKind::Deleted));
        }
        Ok(())
    }

    fn born(&mut self, answers: &[Answered]) -> Result<(), Failure> {
        let Action::Births(names) = self.attempt.action() else {
            return Ok(());
        };
        let mut births = BTreeMap::new();
        for (name, answered) in names.into_iter().zip(answers) {
            match answered {
                Ok(Reply::Stat(stat)) => drop(births.insert(name, stat.czxid)),
                Ok(_) | Err(GONE) => {}
                Err(failure) => return Err(*failure),
            }
        }
        self.attempt.handle(Event::Births(births));
        Ok(())
    }

    /// Keeps the answers to the reads, if all of them are a server's.
    fn was_read(&mut self, answers: Vec<Answered>) -> Result<(), Failure> {
        let told = |answered| match answered {
            Ok(reply) => Some(Ok(reply)),
            // The server closes the connection after this answer.
            Err(Failure::Refused(ErrorCode::SASL_REQUIRED)) => None,
            Err(Failure::Refused(code)) => Some(Err(code)),
            Err(_) => None,
        };
        self.read = answers.into_iter().map(told).collect();
        Ok(())
    }

    fn confirmed(
        &mut self,
        (stamp, counts): (Stamp, bool),
        answers: Vec<Answered>,
        wire: &mut dyn Wire,
    ) -> Result<(), Failure> {
        match proof::judge(wire.transacts(), &answers) {
            Proof::Confirmed => {
                if self.proof.confirmed(stamp, counts, wire.now()) {
                    wire.tell(Note::AnswersLate(self.proof.took));
                }
                Ok(())
            }
            Proof::Gone(_) => self.own_is_gone(),
            Proof::Hidden(_) => Err(Failure::Refused(ErrorCode::NO_AUTH)),
            Proof::Unanswered => Err(proof::failure(answers)),
        }
    }

    /// Notes when a node was born, which shows how late it was at the servers.
    fn saw_clock(&mut self, answered: &Answered, now: Duration) {
        let stat = match answered {
            Ok(Reply::Created { stat, .. }) => stat.as_ref(),
            Ok(Reply::Stat(stat) | Reply::Data { stat, .. }) => Some(stat),
            _ => None,
        };
        if let Some(stat) = stat {
            self.holds.clock.saw(stat.ctime, now);
        }
    }
}

fn origin(stat: Stat) -> Origin {
    Origin {
        owner: stat.ephemeral_owner,
        czxid: stat.czxid,
    }
}
