//! The requests that the servers carry out.

use zklock_core::job::{Action, Event};
use zklock_core::journal::{Journal, Outcome as Ending, Slots};

use super::steps::left_by;
use super::{Adrift, Begun, Job, Place, Shortcut, Told};

impl Job {
    /// Carries out a client's request, and tells it the result.
    pub(super) fn serve(&mut self, i: usize) {
        let runner = &self.runners[i];
        let action = runner.once.as_ref().expect("it is here").action();
        match action {
            Action::Read => self.read(i, self.journal.len()),
            Action::Line => self.stand_in_line(i),
            Action::Write(data, version) => self.write(i, data, version),
            Action::Run => self.work(i, Ending::Done),
            Action::End(data, _) => self.end(i, data),
            Action::Finish(_) => unreachable!("it has gone"),
        }
    }

    /// Reads the journal as it was after `shown` writes.
    pub(super) fn read(&mut self, i: usize, shown: usize) {
        let runner = &mut self.runners[i];
        runner.seen = shown;
        // A client with a token whose work has not run yet reads while it holds the lock.
        let runs = |token: i64| self.past.worked.iter().all(|run| run.0 != token);
        let holds = runner.renewed && runner.token.is_some_and(runs);
        if holds && self.shortcut != Shortcut::ReadsInAnySession {
            return self.tell(i, Event::Lost);
        }
        let Some((data, time)) = self.journal[..shown].last().cloned() else {
            return self.tell(i, Event::NoNode);
        };
        let data = self.disguised(i, data);
        self.tell(i, Event::Data(data, shown as i32 - 1, time));
    }

    /// Returns what a wrong variant takes the journal for.
    fn disguised(&self, i: usize, data: Vec<u8>) -> Vec<u8> {
        let runner = &self.runners[i];
        let mut journal = Journal::parse(&data, self.now).expect("it is a journal");
        match (self.shortcut, runner.token) {
            (Shortcut::TakesAnyRunForItsOwn, Some(token)) => match &mut journal.running {
                Some(running) => running.token = token,
                None => return data,
            },
            (Shortcut::RunsTheSameSlotAgain, _) => match &journal.done {
                Some(run) if runner.wants(&run.slot) => {
                    journal.done = None;
                    journal.slot = None;
                }
                _ => return data,
            },
            (Shortcut::ForgetsSingleSlots, _) => journal.slots = Slots::default(),
            (Shortcut::ForgetsTheDead, token) => match &journal.running {
                Some(running) if Some(running.token) != token => journal.running = None,
                _ => return data,
            },
            _ => return data,
        }
        journal.text()
    }

    fn stand_in_line(&mut self, i: usize) {
        let taken = !self.line.is_empty();
        let runner = &mut self.runners[i];
        match runner.token.filter(|_| !runner.renewed) {
            Some(token) if self.line.first().map(|place| place.token) == Some(token) => {
                self.tell(i, Event::Granted(token));
            }
            Some(_) => self.leave(i, Told::Evicted),
            None if taken && !runner.waits => self.tell(i, Event::Taken),
            None => {
                self.last += 1;
                let token = self.last;
                (runner.token, runner.renewed) = (Some(token), false);
                self.line.push(Place { token, runner: i });
                if self.journal.is_empty() {
                    self.journal.push((Journal::EMPTY.to_vec(), self.now));
                }
                self.catch_up(i);
            }
        }
    }

    /// Lets the client see all that is before its transaction, as the answer shows that.
    pub(super) fn catch_up(&mut self, i: usize) {
        self.runners[i].seen = self.journal.len();
    }

    fn write(&mut self, i: usize, data: Vec<u8>, version: i32) {
        let begins = self.begins(&data);
        let skips = match self.shortcut {
            Shortcut::DoesNotTouch | Shortcut::TrustsALaggingServer => !begins,
            _ => false,
        };
        if skips {
            return self.tell(i, Event::Written(None));
        }
        let token = self.runners[i].token.expect("it has the lock");
        let (there, current) = (self.is_there(token), self.version() == version);
        self.catch_up(i);
        if !there && self.shortcut != Shortcut::BeginsWithoutItsNode {
            return match self.runners[i].renewed {
                true => self.tell(i, Event::Lost),
                false => self.leave(i, Told::Evicted),
            };
        }
        if !current && self.shortcut != Shortcut::BeginsOnAnyVersion {
            return self.tell(i, Event::BadVersion);
        }
        self.put(i, token, data);
        self.catch_up(i);
        // ZooKeeper's answer tells the version and the time of the write; a database's does not.
        let told = (i % 2 == 0).then(|| (self.version(), self.now));
        self.tell(i, Event::Written(told));
    }

    fn end(&mut self, i: usize, data: Vec<u8>) {
        let token = self.runners[i].token.expect("it had the lock");
        let there = self.is_there(token);
        self.catch_up(i);
        let writes = there || self.shortcut == Shortcut::EndsWithoutItsNode;
        if !writes {
            return self.tell(
                i,
                match self.shortcut {
                    Shortcut::TakesALostAnswerForAnEnd => Event::Recorded,
                    _ => Event::Gone,
                },
            );
        }
        self.leave_line(token);
        if self.shortcut == Shortcut::EndsInTwoSteps {
            self.adrift.push(Adrift {
                runner: i,
                token,
                ends: false,
                writes: Some((data, None)),
                lasts: true,
            });
        } else {
            self.put(i, token, data);
        }
        self.catch_up(i);
        self.tell(i, Event::Recorded);
    }

    /// Carries out a transaction that nobody waits for, or refuses it.
    pub(super) fn arrive(&mut self, nth: usize) {
        let adrift = self.adrift.remove(nth);
        let there = self.is_there(adrift.token);
        let anyway = match self.shortcut {
            Shortcut::EndsInTwoSteps => !adrift.ends && adrift.lasts,
            Shortcut::EndsWithoutItsNode => adrift.ends,
            Shortcut::BeginsWithoutItsNode => !adrift.ends,
            _ => false,
        };
        if !there && !anyway {
            return;
        }
        if adrift.ends {
            self.leave_line(adrift.token);
        }
        match adrift.writes {
            Some((_, Some(version)))
                if self.version() != version && self.shortcut != Shortcut::BeginsOnAnyVersion => {}
            Some((data, _)) => self.put(adrift.runner, adrift.token, data),
            None => {}
        }
    }

    /// Writes the journal.
    fn put(&mut self, i: usize, token: i64, data: Vec<u8>) {
        let data = self.counted(data);
        let data = self.moved(token, data);
        self.check_write(i, token, &data);
        let journal = Journal::parse(&data, self.now).expect("it is a journal");
        match &journal.running {
            Some(run) if run.token == token => self.past.begun.push(Begun {
                slot: run.slot.clone(),
                token,
                at: self.now,
                done: false,
                by_itself: self.runners[i].by_itself,
            }),
            _ => {
                let ended = |run: &&zklock_core::journal::PastRun| {
                    run.token == token && run.outcome != Ending::Unknown
                };
                let done = journal.done.as_ref().filter(ended);
                if done.is_some() || journal.failed.as_ref().is_some_and(|run| ended(&run)) {
                    self.past.ended.push(token);
                }
                let begun = self.past.begun.iter_mut();
                for begun in begun.filter(|begun| done.is_some() && begun.token == token) {
                    begun.done = true;
                }
            }
        }
        self.journal.push((data, self.now));
    }

    /// Lets a wrong variant count an attempt only when it has ended.
    fn counted(&self, data: Vec<u8>) -> Vec<u8> {
        if self.shortcut != Shortcut::CountsAfterwards {
            return data;
        }
        let mut journal = Journal::parse(&data, self.now).expect("it is a journal");
        if journal.running.is_some() {
            journal.attempts = self.present().attempts;
        } else if let Some(run) = &journal.failed
            && run.outcome == Ending::Failed
        {
            journal.attempts.insert(run.slot.clone(), run.attempt);
        }
        journal.text()
    }

    /// Lets wrong variants write the state for the next run without the mark.
    fn moved(&self, token: i64, data: Vec<u8>) -> Vec<u8> {
        let mut journal = Journal::parse(&data, self.now).expect("it is a journal");
        let moves = match self.shortcut {
            Shortcut::LeavesStateAtTheBeginning => journal.running.is_some(),
            Shortcut::LeavesStateOfAFailure => journal.running.is_none(),
            _ => false,
        };
        if moves {
            journal.state = Some(left_by(token));
            return journal.text();
        }
        data
    }

    pub(super) fn begins(&self, data: &[u8]) -> bool {
        Journal::parse(data, self.now).is_some_and(|journal| journal.running.is_some())
    }

    pub(super) fn present(&self) -> Journal {
        let last = self.journal.last();
        last.and_then(|(data, time)| Journal::parse(data, *time))
            .unwrap_or_default()
    }

    fn version(&self) -> i32 {
        self.journal.len() as i32 - 1
    }

    pub(super) fn is_there(&self, token: i64) -> bool {
        self.line.iter().any(|place| place.token == token)
    }

    pub(super) fn leave_line(&mut self, token: i64) {
        self.line.retain(|place| place.token != token);
    }
}
