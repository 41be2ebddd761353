//! The marks of slots as done, by their order or by themselves.

use alloc::borrow::ToOwned;
use alloc::string::String;

use super::slots::{MOST_OPEN, Standing, kept, kept_run};
use super::{Journal, Outcome, PastRun};

impl Journal {
    /// Returns whether this slot is to be run, by a client whose slots are done `by_itself` or by their order.
    pub fn standing(&self, slot: &str, by_itself: bool) -> Standing {
        let highest = self.slot.as_deref();
        let by_order = match by_itself {
            true => highest == Some(slot),
            false => highest.is_some_and(|highest| slot <= highest),
        };
        let floor = self.slots.floor.as_ref().filter(|floor| slot <= &***floor);
        match (self.slots.open.contains(slot), self.run_of(slot), floor) {
            (true, ..) => Standing::Due,
            (_, Some(run), _) => Standing::Done(run),
            _ if by_order => Standing::Done(self.run_above(slot)),
            (.., Some(floor)) => Standing::Forgotten(floor.clone()),
            _ => Standing::Due,
        }
    }

    /// Returns the last run of this slot that failed, unless the slot is known to have been done since.
    /// If other slots have failed since, only the number of its `attempts` may be left.
    pub(crate) fn last_attempt(&self, slot: &str, attempts: u32) -> Option<PastRun> {
        let done = self.run_of(slot);
        let is_it = |run: &&PastRun| {
            let since = done.as_ref().is_none_or(|done| done.token < run.token);
            since && run.slot == slot && run.outcome != Outcome::Done
        };
        let counted = || PastRun {
            outcome: Outcome::Failed,
            ..kept_run(slot, &(0, attempts, None))
        };
        let known = self.runs().into_iter().find(is_it).cloned();
        known.or_else(|| (0 < attempts).then(counted))
    }

    /// Returns the run that has done this slot, if it is known.
    fn run_of(&self, slot: &str) -> Option<PastRun> {
        let mut done = self.done_runs();
        done.find(|run| run.slot == slot).cloned().or_else(|| {
            let kept = self.slots.single.as_ref()?.get(slot)?;
            Some(kept_run(slot, kept))
        })
    }

    /// Returns the runs that are done and known as a whole, the newest first.
    fn done_runs(&self) -> impl Iterator<Item = &PastRun> {
        let all = self.done.iter().chain(&self.history.runs);
        all.filter(|run| run.outcome == Outcome::Done)
    }

    /// Returns a run that is done and whose slot is this one or higher.
    fn run_above(&self, slot: &str) -> PastRun {
        let highest = self.slot.as_deref().unwrap_or(slot);
        // A run without a slot tells nothing about slots, except that it is done.
        let last = || self.done.clone().filter(|run| run.slot.is_empty());
        let run = self.run_of(highest).or_else(last);
        run.unwrap_or_else(|| kept_run(highest, &(0, 0, None)))
    }

    /// Marks the slot of this run as done, `by_itself` or by its order.
    pub(super) fn mark(&mut self, run: &PastRun, by_itself: bool) {
        let slot = &run.slot;
        // A run without a slot leaves the highest slot as it is.
        if slot.is_empty() {
            self.attempts.remove(slot);
            return;
        }
        let highest = self.slot.as_ref();
        if by_itself || highest.is_some_and(|highest| slot < highest) {
            let done = self.done.iter().chain(&self.history.runs);
            self.slots
                .begin(done.filter(|run| run.outcome == Outcome::Done));
        }
        if let Some(single) = &mut self.slots.single {
            single.insert(slot.clone(), kept(run));
            self.slots.trim();
        }
        // Lower slots may still be run by themselves.
        self.attempts.remove(slot);
        self.slots.open.remove(slot);
        if !by_itself && self.slot.as_ref().is_none_or(|highest| highest < slot) {
            self.slot = Some(slot.clone());
        }
    }

    /// Returns the slots that are to be run again, although they would be done by their order.
    pub fn open_slots(&self) -> impl Iterator<Item = &str> {
        self.slots.open.iter().map(String::as_str)
    }

    /// Opens this slot to be run again, with as many attempts as at first. Returns whether anything was
    /// known of it; `None` if too many slots are open again.
    pub fn forget(&mut self, slot: &str) -> Option<bool> {
        let attempted = self.attempts.remove(slot).is_some();
        if self.standing(slot, false) == Standing::Due {
            return Some(attempted);
        }
        if let Some(single) = &mut self.slots.single {
            single.remove(slot);
        }
        // The slot may also be done by its order, be the last one, or be below the floor.
        if self.standing(slot, false) != Standing::Due {
            self.slots.open.insert(slot.to_owned());
        }
        (self.slots.open.len() <= MOST_OPEN).then_some(true)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::End;
    use super::super::slots::MOST_BYTES;
    use super::super::tests::run;
    use super::*;

    /// Runs this slot to its end, and has the journal written and read.
    fn done(journal: Journal, slot: &str, token: i64, by_itself: bool) -> Journal {
        let end = End {
            outcome: Outcome::Done,
            message: None,
            state: None,
        };
        let read = |journal: Journal| Journal::parse(&journal.text(), token).expect("a journal");
        let begun = read(journal.begin(run(slot, token)));
        read(begun.end(end, by_itself))
    }

    /// Says of each slot whether it is done (`+`), due (`-`) or forgotten (`?`).
    fn told(journal: &Journal, by_itself: bool, slots: &str) -> String {
        let mark = |slot| match journal.standing(slot, by_itself) {
            Standing::Done(_) => "+",
            Standing::Due => "-",
            Standing::Forgotten(_) => "?",
        };
        let marks = slots.split(' ').map(|slot| format!("{slot}{}", mark(slot)));
        marks.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_slot_is_done_by_itself_or_by_its_order() {
        #[rustfmt::skip]
        let table = [
            // what is done; `*` by itself      in order             by itself
            ("",                       "a- b- c- d- e-", "a- b- c- d- e-"),
            ("c",                      "a+ b+ c+ d- e-", "a- b- c+ d- e-"),
            ("b c",                    "a+ b+ c+ d- e-", "a- b- c+ d- e-"),
            ("c a*",                   "a+ b+ c+ d- e-", "a+ b- c+ d- e-"),
            ("c* a*",                  "a+ b- c+ d- e-", "a+ b- c+ d- e-"),
            ("d* b",                   "a+ b+ c- d+ e-", "a- b+ c- d+ e-"),
            ("d* b c",                 "a+ b+ c+ d+ e-", "a- b+ c+ d+ e-"),
            // A slot that is run again in order.
            ("b d c",                  "a+ b+ c+ d+ e-", "a- b- c+ d+ e-"),
        ];
        for (what, in_order, by_itself) in table {
            let runs = what.split(' ').filter(|slot| !slot.is_empty()).zip(1..);
            let journal = runs.fold(Journal::default(), |journal, (slot, token)| {
                done(
                    journal,
                    slot.trim_end_matches('*'),
                    token,
                    slot.ends_with('*'),
                )
            });
            assert_eq!(told(&journal, false, "a b c d e"), in_order, "{what}");
            assert_eq!(told(&journal, true, "a b c d e"), by_itself, "{what}");
        }
    }

    #[test]
    fn who_finds_a_slot_done_learns_of_its_run() {
        let journal = ["c", "a*", "b"].into_iter().zip(7..);
        let journal = journal.fold(Journal::default(), |journal, (slot, token)| {
            done(
                journal,
                slot.trim_end_matches('*'),
                token,
                slot.ends_with('*'),
            )
        });
        for (slot, by_itself, expected) in [("a", true, 8), ("b", true, 9), ("c", false, 7)] {
            let Standing::Done(run) = journal.standing(slot, by_itself) else {
                panic!("{slot} is done")
            };
            assert_eq!((&*run.slot, run.token, run.attempt), (slot, expected, 1));
            assert!(run.started.is_some());
        }
    }

    #[test]
    fn what_has_fallen_out_is_not_taken_for_due() {
        let mut journal = Journal::default();
        let mut slots = 0;
        while journal.slots.floor.is_none() {
            slots += 1;
            journal = done(journal, &format!("{slots:05}"), slots, true);
        }
        assert!(slots > 300, "{slots} slots have room");
        let beside = journal.text().len();
        assert!(beside < MOST_BYTES + 512, "{beside} bytes");
        let forgotten = Standing::Forgotten("00001".to_owned());
        for slot in ["00000", "00001"] {
            assert_eq!(journal.standing(slot, true), forgotten, "{slot}");
        }
        assert_eq!(told(&journal, true, "00002 99999"), "00002+ 99999-");
        // Those below all that are kept fall out at once if there is no room, and are not run twice.
        for low in ["000002", "000001"] {
            journal = done(journal, low, 999, true);
            assert_ne!(journal.standing(low, true), Standing::Due);
        }
        // Long names, and such that JSON writes with more bytes.
        let names = (0..80).map(|name| format!("{name:03}{}", "\"".repeat(253)));
        let journal = names.zip(1000..).fold(journal, |journal, (name, token)| {
            done(journal, &name, token, true)
        });
        let beside = journal.text().len();
        assert!(beside < MOST_BYTES + 2048, "{beside} bytes");
    }

    /// Somebody may write a record of any length, and the next run holds its lock meanwhile.
    #[test]
    fn a_record_that_is_far_too_long_is_cut_at_once() {
        let slots = (0..20_000).map(|slot| (format!("{slot:05}"), (7, 1, None)));
        let mut journal = Journal::default();
        journal.slots.single = Some(slots.collect());
        // Minutes, if each slot that falls out has all others written anew.
        let journal = done(journal, "99999", 9, true);
        let left = journal.slots.single.unwrap();
        assert!(json!(left).to_string().len() <= MOST_BYTES && left.len() > 300);
        assert!(journal.slots.floor < left.keys().next().cloned());
    }

    #[test]
    fn a_slot_that_is_forgotten_is_due_until_it_is_done() {
        for by_itself in [false, true] {
            let runs = ["a", "b", "c"].into_iter().zip(1..);
            let mut journal = runs.fold(Journal::default(), |journal, (slot, token)| {
                done(journal, slot, token, by_itself)
            });
            for slot in ["b", "c"] {
                assert_eq!(journal.forget(slot), Some(true));
                let read = Journal::parse(&journal.text(), 9);
                assert_eq!(read.as_ref(), Some(&journal));
            }
            assert_eq!(journal.forget("b"), Some(false));
            assert_eq!(journal.forget("x"), Some(false));
            assert_eq!(told(&journal, by_itself, "a b c d"), "a+ b- c- d-");
            let journal = done(journal, "b", 9, by_itself);
            assert_eq!(told(&journal, by_itself, "a b c d"), "a+ b+ c- d-");
            let journal = done(journal, "c", 11, by_itself);
            assert_eq!(told(&journal, by_itself, "a b c d"), "a+ b+ c+ d-");
        }
    }

    #[test]
    fn attempts_at_a_slot_count_until_it_is_done_or_forgotten() {
        let failed = Journal::default().begin(run("b", 1));
        let mut journal = done(failed, "c", 2, false);
        assert_eq!(journal.attempts.get("b"), Some(&1));
        assert!(!journal.attempts.contains_key("c"));
        assert_eq!(journal.clone().forget("b"), Some(true));
        journal = done(journal, "b", 3, true);
        assert!(journal.attempts.is_empty());
    }

    #[test]
    fn the_last_attempt_at_a_slot_is_known_by_its_number_when_others_have_failed_since() {
        let journal = Journal::default().begin(run("a", 1)).begin(run("b", 2));
        let journal = Journal::parse(&journal.begin(run("c", 3)).text(), 9).unwrap();
        let last = |slot, attempts| {
            let last = journal.last_attempt(slot, attempts)?;
            Some((last.slot, last.token, last.attempt))
        };
        assert_eq!(last("a", 1), Some(("a".to_owned(), 0, 1)));
        assert_eq!(last("b", 1), Some(("b".to_owned(), 2, 1)));
        assert_eq!(last("x", 0), None);
        let journal = done(journal, "b", 4, true);
        assert_eq!(journal.last_attempt("b", 0), None);
    }

    #[test]
    fn few_slots_are_open_again_at_a_time() {
        let mut journal = done(Journal::default(), "b", 1, false);
        for slot in 0..MOST_OPEN {
            assert_eq!(journal.forget(&format!("a{slot}")), Some(true));
        }
        assert_eq!(journal.clone().forget("a"), None);
        let mut journal = done(journal, "a7", 3, false);
        assert_eq!(journal.forget("a"), Some(true));
    }

    #[test]
    fn what_cannot_be_read_is_not_left_out() {
        let table = [
            r#""single":1"#,
            r#""single":{"a":1}"#,
            r#""single":{"a":[1,1]}"#,
            r#""single":{"a":[1,-1,1]}"#,
            r#""floor":1"#,
            r#""open":{}"#,
            r#""open":[1]"#,
        ];
        for more in table {
            let text = format!(r#"{{"job":2,{more}}}"#);
            assert_eq!(Journal::parse(text.as_bytes(), 0), None, "{text}");
        }
    }
}
