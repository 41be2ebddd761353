//! What every guard owns: a place at the head of a queue, and the duty to give it up.
//!
//! A [`Hold`] is the only thing in the locks that acts when it is dropped; the guards are
//! plain structs around it, so that they can be taken apart.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, bounded};

use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::guard::{FencingToken, GuardEvent, GuardState};
use crate::session::Session;
use crate::session::ask::over;
use crate::session::drive::Reached;
use crate::session::leftovers::Ended;
use crate::session::limit::Limit;
use crate::session::proof::{self, Proof};
use crate::session::transport::Failure;
use crate::session::vigil::Vigil;

#[derive(Debug)]
pub(crate) struct Hold {
    session: Arc<Session>,
    vigil: Arc<Vigil>,
    token: FencingToken,
    /// The number of the vigil; taken when the nodes are given up.
    watched: Option<u64>,
}

impl Hold {
    pub(crate) fn new(session: &Arc<Session>, reached: Reached) -> Self {
        let Reached { vigil, mine } = reached;
        Self {
            watched: Some(session.vigils.begin(vigil.clone())),
            session: session.clone(),
            vigil,
            token: FencingToken::new(mine.born.czxid),
        }
    }

    pub(crate) fn token(&self) -> FencingToken {
        self.token
    }

    pub(crate) fn nodes(&self) -> &[String] {
        self.vigil.nodes()
    }

    /// The first of the nodes; a mutex has one only.
    pub(crate) fn node(&self) -> &str {
        self.nodes().first().map_or("", String::as_str)
    }

    pub(crate) fn check(&self) -> Result<()> {
        self.vigil.check()
    }

    pub(crate) fn state(&self) -> GuardState {
        self.vigil.state()
    }

    pub(crate) fn valid_for(&self) -> Duration {
        self.vigil.valid_for()
    }

    pub(crate) fn events(&self) -> &Receiver<GuardEvent> {
        self.vigil.events()
    }

    /// Has the quorum confirm the nodes now.
    pub(crate) fn verify(&self) -> Result<()> {
        self.check()?;
        let limit = Limit::after(self.valid_for());
        let abilities = self.session.transport.abilities();
        let mut asker = self.session.asker();
        let sent = Moment::now();
        let requests = proof::requests(abilities, self.nodes());
        let count = requests.len();
        let mut ticket = asker.post(requests.into_iter().map(|request| (request, None)));
        let mut answers = Vec::with_capacity(count);
        for _ in 0..count {
            let Ok(answered) = asker.wait(ticket, &limit) else {
                break;
            };
            answers.push(answered);
            ticket = ticket.next();
        }
        self.judge(sent, proof::judge(abilities, &answers), &answers)
    }

    fn judge(
        &self,
        sent: Moment,
        proof: Proof,
        answers: &[crate::session::ask::Answered],
    ) -> Result<()> {
        match proof {
            Proof::Confirmed => self.vigil.confirm(sent),
            Proof::Gone(_) => self.vigil.lose(),
            Proof::Unanswered => {}
        }
        self.check()?;
        if answers.contains(&Err(Failure::Closed)) {
            return Err(over(&self.session.hub.link()));
        }
        match proof {
            Proof::Confirmed => Ok(()),
            _ => Err(Error::Suspect {
                path: self.vigil.path().to_owned(),
            }),
        }
    }

    /// Gives the nodes up and waits for the answer, at most until the lock is lost.
    pub(crate) fn release(mut self) -> Result<()> {
        let held = self.check();
        let deadline = Instant::now().checked_add(self.valid_for());
        let count = self.nodes().len();
        let (ended, endings) = bounded(count);
        self.give_up(Some(&ended));
        drop(ended);
        held?;
        for _ in 0..count {
            let limit = Limit::new(deadline, None);
            let ending = crossbeam_channel::select! {
                recv(endings) -> ending => ending.ok(),
                recv(limit.timer) -> _ => None,
            };
            if ending != Some(Ended::Deleted) {
                return Err(self.vigil.lost());
            }
        }
        Ok(())
    }

    fn give_up(&mut self, waiter: Option<&crossbeam_channel::Sender<Ended>>) {
        if let Some(watched) = self.watched.take() {
            self.session.vigils.end(watched);
            self.session
                .leftovers
                .release(self.vigil.nodes(), self.vigil.session(), waiter);
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.give_up(None);
    }
}
