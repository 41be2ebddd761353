//! Waits until nobody uses a job's path for another kind of lock.

use std::collections::BTreeSet;

use crossbeam_channel::Receiver;
use zklock::{Client, Contender, Error, Role};
use zklock_core::mending::{Standing, is_free, standing};

use crate::acquire::look_around;
use crate::failure::{CONFIG, Failure};
use crate::other_kinds::{hold_ends, is_ours, used_by};
use crate::sanitize::plain;
use crate::stderr::say;
use crate::wait_limit::WaitLimit;

/// A path that was not a job's when a job was to be run.
pub(super) struct JobPath<'a> {
    client: &'a Client,
    path: &'a str,
    limit: WaitLimit,
    cancel: &'a Receiver<()>,
    has_told: bool,
    /// How many of the last runs were refused although no contender was there.
    empty: u32,
    /// Whether all who have used the path for another lock are known to have released it.
    pub(super) in_order: bool,
}

/// What the data of the path's node says.
enum Data {
    OfAJob,
    /// The path can be a job's as soon as nobody uses it.
    Free,
    /// A job's record may have been there before.
    Replaced,
    Kept,
}

impl<'a> JobPath<'a> {
    pub(super) fn new(
        client: &'a Client,
        path: &'a str,
        limit: WaitLimit,
        cancel: &'a Receiver<()>,
    ) -> Self {
        Self {
            client,
            path,
            limit,
            cancel,
            has_told: false,
            empty: 0,
            in_order: true,
        }
    }

    /// Waits until nobody uses the path for another lock, after a run was refused. Returns whether another run may
    /// begin, and `false` at the end of the wait. Fails with the refusal if no wait helps.
    pub(super) fn is_given_up(&mut self, refusal: Error) -> Result<bool, Failure> {
        let mut present = self.client.contenders(self.path)?;
        self.empty = u32::from(present.is_empty()) * (self.empty + 1);
        // Whoever refused the first of two runs may have gone since.
        if 1 < self.empty {
            return Err(refusal.into());
        }
        let mut seen = BTreeSet::new();
        while let Some(first) = present.first() {
            match self.data()? {
                Data::OfAJob => break,
                // Those who are there may be runs of this job.
                Data::Replaced if first.role() == Role::Exclusive => return Err(refusal.into()),
                Data::Replaced | Data::Kept => return Err(in_use(self.path, first)),
                Data::Free => {}
            }
            if present.iter().any(|one| one.hold().is_some()) {
                self.in_order = false;
                return self.is_hold_over(&present);
            }
            self.check(&present)?;
            self.tell_of(first);
            if self.limit.is_over() {
                return Ok(false);
            }
            seen.extend(present.iter().map(|one| one.node().to_owned()));
            let (deadline, known) = (self.limit.deadline(), &present);
            let changed =
                self.client
                    .wait_for_change_until(self.path, known, deadline, self.cancel)?;
            let Some(changed) = changed else {
                return Ok(false);
            };
            present = changed;
        }
        let seen: Vec<_> = seen.into_iter().collect();
        self.in_order &= self.client.have_released(&seen);
        Ok(true)
    }

    fn data(&self) -> Result<Data, Failure> {
        let node = self.client.nodes().get(self.path)?;
        let Some(node) = node else {
            return Ok(Data::Free);
        };
        Ok(match standing(node.data()) {
            Standing::Whole => Data::OfAJob,
            _ if is_free(node.data(), node.version()) => Data::Free,
            Standing::Torn | Standing::Unclaimed => Data::Replaced,
            Standing::Kept => Data::Kept,
        })
    }

    fn is_hold_over(&self, present: &[Contender]) -> Result<bool, Failure> {
        let is_over = hold_ends(self.client, (self.path, present), self.limit, self.cancel)?;
        let hold = present.iter().find_map(Contender::hold);
        if let (WaitLimit::OneTry, false, Some(hold)) = (self.limit, is_over, hold) {
            let hold = plain(&hold.to_string());
            say(&format!("{} is {hold}", plain(self.path)));
        }
        Ok(is_over)
    }

    /// Fails if another library has a contender there for which a job would not be in the queue.
    fn check(&self, present: &[Contender]) -> Result<(), Failure> {
        if !present.iter().all(is_ours) {
            self.client.mutex(self.path)?.try_lock()?;
        }
        Ok(())
    }

    fn tell_of(&mut self, other: &Contender) {
        if !std::mem::replace(&mut self.has_told, true) {
            let used = used_by(self.path, other);
            look_around(self.path);
            say(&format!(
                "{used}, and free for this job when nobody uses it so: give each kind of lock a path of its own"
            ));
        }
    }
}

/// Returns the failure of a question about a job's record, which says who uses the path for another lock, if somebody
/// does.
pub(super) fn failure(client: &Client, path: &str, error: Error) -> Failure {
    let present = match error {
        Error::Unmarked { .. } => client.contenders(path).unwrap_or_default(),
        _ => Vec::new(),
    };
    let other = present.first().map(|other| in_use(path, other));
    other.unwrap_or_else(|| error.into())
}

fn in_use(path: &str, other: &Contender) -> Failure {
    let used = used_by(path, other);
    let message = format!("{used}, and not a job's: give the job a path of its own");
    Failure::new(CONFIG, message)
}
