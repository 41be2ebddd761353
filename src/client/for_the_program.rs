//! Methods that only the program needs.

use std::time::{Duration, Instant};

use super::Client;
use crate::builder::ClientBuilder;
use crate::contender::Contender;
use crate::error::{Error, Result, reasons_and_advice};
use crate::hold::Hold;
use crate::job::Job;
use crate::path;
use crate::session::Session;
use crate::system::channel::Receiver;
use crate::time::limit::Limit;
use crate::transport::handover::{Inherited, SessionKey};
use zklock_core::release_note::is_note;
use zklock_jute::{Reply, Request};

impl Client {
    /// Returns the key with which another process can use the session, for the program. A process
    /// that has it can end the session, and do all that its credentials allow.
    #[doc(hidden)]
    pub fn session_key(&self) -> Option<String> {
        self.locks.session.transport.key().map(|key| key.text())
    }

    /// Returns how long no server has answered; `None` if one has answered on this connection. For
    /// the program.
    #[doc(hidden)]
    pub fn silent_for(&self) -> Option<Duration> {
        self.locks.session.status.silent_for()
    }

    /// Returns why no server serves this client, and what to do about it; `None` if nothing is known. For the program.
    #[doc(hidden)]
    pub fn why_silent(&self) -> Option<String> {
        let trouble = self.locks.session.status.trouble();
        (!trouble.is_empty()).then(|| reasons_and_advice(&trouble))
    }

    /// As [`close`](Self::close), with another limit for each step; for the program.
    ///
    /// # Errors
    ///
    /// As [`close`](Self::close).
    #[doc(hidden)]
    pub fn close_within(&self, longest: Duration) -> Result<()> {
        let limit = Limit::after(longest);
        match self.locks.session.close(longest) {
            true => Ok(()),
            false => Err(Error::Unconfirmed {
                what: "the end of the session",
                next: "its locks are free when it has timed out",
                limit: limit.spent(),
            }),
        }
    }

    /// As [`wait_for_change`](Self::wait_for_change), to a deadline if there is one, and at most
    /// until `cancel` has a message; then it returns `None`. For the program.
    ///
    /// # Errors
    ///
    /// As [`wait_for_change`](Self::wait_for_change).
    #[doc(hidden)]
    pub fn wait_for_change_until(
        &self,
        path: &str,
        known: &[Contender],
        deadline: Option<Instant>,
        cancel: &Receiver<()>,
    ) -> Result<Option<Vec<Contender>>> {
        path::check(path)?;
        let limit = Limit::new(deadline, Some(cancel.clone()));
        let present = self.locks.session.wait_for_change(path, known, &limit)?;
        Ok(present.filter(|_| !limit.is_over()))
    }

    /// Returns whether the holders of these nodes, which are gone, have noted that they released in
    /// order, for the program. Blocks for a round trip or two.
    #[doc(hidden)]
    pub fn have_released(&self, nodes: &[String]) -> bool {
        self.locks.session.have_released(nodes)
    }

    /// Puts a hold at the end of the queue at a path, for the program; returns its node. Blocks for
    /// a few round trips, and waits for no contender.
    #[doc(hidden)]
    pub fn pause(&self, path: &str, hold: &Hold) -> Result<String> {
        let (session, job) = (&self.locks.session, Job::new(&self.locks, path)?);
        let there = match session.read(&Request::get(path), path) {
            Err(Error::NoAuth { .. }) => None,
            there => there?,
        };
        // A node that a command has left counts as nothing. The owner of any other node is unknown,
        // and the end of the pause deletes a node that the job has taken over. kazoo remembers that
        // its node exists.
        let is_left = matches!(there, Some(Reply::Data { data, stat })
            if stat.num_children == 0 && is_note(&Vec::from(data.clone())));
        if is_left && session.settings.dialect.takes_containers() {
            job.take_over(&Session::query_limit())?;
        }
        session.plant_hold(path, hold)
    }

    /// Deletes a directory that [`pause`](Self::pause) has created and that has not been used
    /// since, for the program.
    #[doc(hidden)]
    pub fn tidy_after_hold(&self, path: &str) -> Result<()> {
        path::check(path)?;
        self.locks.session.tidy_after_hold(path)
    }

    /// Returns the lock that the last wait or try found taken, and the hold that has it, for the
    /// program; `None` if only one lock was asked for, and no hold has it. Does no I/O.
    #[doc(hidden)]
    pub fn found_taken(&self) -> Option<(String, Option<Hold>)> {
        self.locks.session.taken.lock().clone()
    }

    /// Returns a directory in which a server has refused the deletion of a node that this client has left, for the
    /// program. Does no I/O.
    #[doc(hidden)]
    pub fn kept_in(&self) -> Option<String> {
        self.locks.session.cleaner.forbidden()
    }

    /// Returns how long a lock that nobody is ahead for is held back, if that takes long, for the
    /// program: the connection broke, and the leader must have heard of the session since. Does no
    /// I/O.
    #[doc(hidden)]
    pub fn held_back(&self) -> Option<Duration> {
        self.locks.session.held_back()
    }

    /// Returns the nodes below a path that are not contenders, for the program.
    #[doc(hidden)]
    pub fn strangers(&self, path: &str) -> Result<Vec<String>> {
        path::check(path)?;
        self.locks.session.strangers(path)
    }
}

impl ClientBuilder {
    /// Ends the session of another process, which has died, for the program: see
    /// `Client::session_key`.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect) and [`Client::close`].
    #[doc(hidden)]
    pub fn end_session(self, key: &str) -> Result<()> {
        let Some(key) = SessionKey::parse(key) else {
            return Err(Error::BadArgument {
                name: "key",
                rule: "it must be what Client::session_key has returned".into(),
            });
        };
        let timeout = self.asked_timeout();
        let (session, limit) = self.open_inherited(Inherited {
            key,
            timeout,
            heard_of: Duration::ZERO,
            is_kept: false,
        })?;
        session.caller().connected(&limit)?;
        Client::over(session).close()
    }
}
