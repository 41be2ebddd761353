//! Follows the ensemble from server to server, if the user asked for that.
//!
//! On every connection the client reads the members from `/zookeeper/config`, with a watch. No caller waits
//! for that.

use std::mem;

use super::members::Members;
use super::shared::{Shared, Stage, State};
use zklock_jute::{ErrorCode, Event, OpCode, Reply, Request, xid};

/// It is no part of a chroot.
const CONFIG: &str = "/zookeeper/config";

/// How much is shown of a configuration that cannot be read.
const LONGEST: usize = 200;

impl Shared {
    /// A server has given a session: asks it for the members, if they are to be followed.
    pub(super) fn arrived(&self, state: &mut State) {
        if !self.config.follow_reconfiguration {
            return;
        }
        if let Some(target) = &state.target {
            state.list.is_served_by(target);
        }
        state.ask_for_members();
    }

    /// Asks again if this event is a change of the configuration.
    pub(super) fn hear_of_members(&self, event: &Event) {
        if self.config.follow_reconfiguration && event.path == CONFIG {
            let mut state = self.state.lock();
            state.ask_for_members();
            self.flush(state);
        }
    }

    /// Takes the answer. Whatever is wrong with it leaves the list as it is.
    pub(super) fn members_came(&self, code: ErrorCode, body: &[u8]) {
        let members = match code {
            ErrorCode::OK => self.read(body),
            ErrorCode::NO_NODE => Err("there is none".to_owned()),
            code => Err(code.to_string()),
        };
        match members {
            Ok(members) => self.follow(&members),
            Err(why) => self.complain(why.chars().take(LONGEST).collect()),
        }
    }

    fn read(&self, body: &[u8]) -> Result<Members, String> {
        match Reply::decode(OpCode::GET_DATA, body) {
            Ok(Reply::Data { data, .. }) => Members::parse(&data, self.config.tls.is_some()),
            _ => Err("the answer cannot be read".to_owned()),
        }
    }

    fn follow(&self, members: &Members) {
        let mut state = self.state.lock();
        state.complaint.clear();
        let State { list, target, .. } = &mut *state;
        let target = target.as_ref();
        let is_new = target.is_some_and(|target| list.follow(members, target));
        drop(state);
        if is_new {
            let servers: Vec<_> = members.servers.iter().map(ToString::to_string).collect();
            log::info!("the servers of the ensemble are {}", servers.join(", "));
        }
    }

    /// Says it once.
    fn complain(&self, why: String) {
        let before = mem::replace(&mut self.state.lock().complaint, why.clone());
        if before != why {
            log::warn!("cannot follow the ensemble's configuration in {CONFIG}: {why}");
        }
    }
}

impl State {
    /// Whether the server of the connection is to be left now: no request is open, which would have to
    /// be asked again.
    pub(super) fn is_to_move(&self) -> bool {
        self.list.is_left_out() && self.stage == Stage::Serving && self.queue.oldest().is_none()
    }

    fn ask_for_members(&mut self) {
        let path = CONFIG.to_owned();
        let request = Request::GetData { path, watch: true };
        let queue = &mut self.queue;
        queue.push_aside(|out| request.encode(xid::MEMBERS, out));
    }
}

#[cfg(test)]
mod tests;
