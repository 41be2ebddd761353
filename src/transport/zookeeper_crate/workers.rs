//! The threads on which the crate's calls block.

use std::time::Duration;

use crossbeam_channel::Receiver;
use zookeeper::ZooKeeper;

use super::calls;
use super::shared::{Job, Link, LinkNews, Owned, Shared, Task};
use crate::system::clock::since_boot;
use crate::transport::Failure;
use zklock_core::connection::is_sync;
use zklock_jute::{Reply, Request};

impl Shared {
    /// Runs a worker until there are no more jobs.
    pub(super) fn work(&self, owned: &Owned, jobs: &Receiver<Job>) {
        for job in jobs {
            match job {
                Job::Calls(session, tasks) => self.run(&owned.handle, session, tasks),
                Job::Probe => self.probe(&owned.handle),
            }
        }
    }

    fn probe(&self, handle: &ZooKeeper) {
        let root = Request::exists("/");
        let link = self.life.lock().link;
        let sent = since_boot();
        let answer = calls::perform(handle, root, None, &self.watches);
        self.life.lock().probing = None;
        if answer != Err(Failure::Lost) {
            self.tell_answered(link, sent);
        }
        match answer {
            // The loss is of any session: another one may have begun during the probe.
            Err(Failure::Lost) => self.went_down(None),
            // Any answer shows that the server is there.
            _ => drop(self.news.send(LinkNews::Alive)),
        }
    }

    fn run(&self, handle: &ZooKeeper, session: i64, tasks: Vec<Task>) {
        let mut lost = false;
        for task in tasks {
            // A request that was made in one session must not be sent in another.
            if lost || !self.is_open(task.id, session) {
                self.answer(task.id, Err(Failure::NotSent));
                continue;
            }
            if is_sync(&task.request) {
                self.wait_for_those_before(task.id);
            }
            let sent = since_boot();
            let answer = calls::perform(handle, task.request, task.watch, &self.watches);
            if answer != Err(Failure::Lost) {
                self.tell_answered(Link::Up(session), sent);
            }
            lost = answer == Err(Failure::Lost);
            if lost {
                // The loss is reported at once, so that no other worker continues in this session.
                self.went_down(Some(session));
            }
            self.answer(task.id, answer);
        }
    }

    /// Reports an answer, unless it is from a connection that has ended: the server of the next one
    /// may not know of it.
    fn tell_answered(&self, link: Link, sent: Duration) {
        let life = self.life.lock();
        if matches!(link, Link::Up(_)) && life.link == link {
            self.status.answered(sent, since_boot());
        }
    }

    /// Waits until every earlier call is answered, as a sync promises.
    fn wait_for_those_before(&self, id: u64) {
        let mut life = self.life.lock();
        while life.open.contains_key(&id) && life.open.keys().any(|other| *other < id) {
            self.answered.wait(&mut life);
        }
    }

    fn is_open(&self, id: u64, session: i64) -> bool {
        let life = self.life.lock();
        life.link == Link::Up(session) && life.open.contains_key(&id)
    }

    /// Answers a call, unless the end of the transport has answered it.
    fn answer(&self, id: u64, answer: Result<Reply, Failure>) {
        let open = self.life.lock().open.remove(&id);
        self.answered.notify_all();
        if let Some(open) = open {
            (open.answer)(answer);
        }
    }
}
