//! The threads on which the crate's calls block.

use crossbeam_channel::Receiver;
use zookeeper::ZooKeeper;

use super::calls;
use super::shared::{Errand, Job, Link, News, Owned, Shared};
use crate::jute::{Reply, Request};
use crate::time::clock::Moment;
use crate::transport::Failure;

impl Shared {
    /// What a worker does until there are no more jobs.
    pub(super) fn work(&self, owned: &Owned, jobs: &Receiver<Job>) {
        for job in jobs {
            match job {
                Job::Calls(session, errands) => self.run(&owned.handle, session, errands),
                Job::Probe => self.probe(&owned.handle),
            }
        }
    }

    fn probe(&self, handle: &ZooKeeper) {
        let root = Request::Exists {
            path: "/".to_owned(),
            watch: false,
        };
        let sent = Moment::now();
        let answer = calls::perform(handle, root, None, &self.watches);
        self.life.lock().probing = None;
        if answer != Err(Failure::Lost) {
            self.status.answered(sent, Moment::now());
        }
        match answer {
            // As in `run`: a session may have begun since, and ended with this.
            Err(Failure::Lost) => self.went_down(None),
            // Whatever the server said, it was there to say it.
            _ => drop(self.news.send(News::Alive)),
        }
    }

    fn run(&self, handle: &ZooKeeper, session: i64, errands: Vec<Errand>) {
        let mut lost = false;
        for errand in errands {
            // What was decided in one session is not done in another.
            if lost || !self.is_wanted(errand.id, session) {
                self.answer(errand.id, Err(Failure::NotSent));
                continue;
            }
            if matches!(errand.request, Request::Sync { .. }) {
                self.wait_for_those_before(errand.id);
            }
            let sent = Moment::now();
            let answer = calls::perform(handle, errand.request, errand.watch, &self.watches);
            if answer != Err(Failure::Lost) {
                self.status.answered(sent, Moment::now());
            }
            lost = answer == Err(Failure::Lost);
            if lost {
                // At once, so that no other worker goes on in the session's name.
                self.went_down(Some(session));
            }
            self.answer(errand.id, answer);
        }
    }

    /// Waits until every call that was sent earlier is answered, as a sync promises; the
    /// other workers have them, or this one has had them.
    fn wait_for_those_before(&self, id: u64) {
        let mut life = self.life.lock();
        while life.open.contains_key(&id) && life.open.keys().any(|other| *other < id) {
            self.answered.wait(&mut life);
        }
    }

    fn is_wanted(&self, id: u64, session: i64) -> bool {
        let life = self.life.lock();
        life.link == Link::Up(session) && life.open.contains_key(&id)
    }

    /// Answers a call, unless that was done when the transport ended.
    fn answer(&self, id: u64, answer: Result<Reply, Failure>) {
        let open = self.life.lock().open.remove(&id);
        self.answered.notify_all();
        if let Some(open) = open {
            (open.answer)(answer);
        }
    }
}
